// Node's https, http2 and tls as clients: PORT-HTTP1 PORT-HTTP2 CA FILE-SIZE; prints what they saw,
// a fact per line.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';
import https from 'node:https';
import tls from 'node:tls';

const [http1Port, http2Port, authority, sizeText] = process.argv.slice(2);
const ca = readFileSync(authority);
const size = Number(sizeText);
const sent = Buffer.alloc(size, 'sealane?');
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

// One connection per request.
function overHttp1(version, method, path, body, session) {
  return new Promise((resolve, reject) => {
    let ticket;
    const request = https.request(
      { host: 'localhost', port: http1Port, path, method, ca, session, agent: false,
        minVersion: version, maxVersion: version },
      async (answer) => {
        const { socket } = answer;
        const facts = { version: socket.getProtocol(), reused: socket.isSessionReused() };
        try {
          facts.body = await collect(answer);
        } catch (error) {
          reject(error);
        }
        resolve({ ...facts, ticket, status: answer.statusCode });
      },
    );
    request.on('socket', (socket) => socket.on('session', (found) => { ticket = found; }));
    request.on('error', reject);
    request.end(body);
  });
}

function overHttp2(version, requests) {
  return new Promise((resolve, reject) => {
    const session = http2.connect(`https://localhost:${http2Port}`,
      { ca, minVersion: version, maxVersion: version });
    session.on('error', reject);
    const all = requests.map(async ({ headers, body }) => {
      const stream = session.request(headers);
      stream.end(body);
      return collect(stream);
    });
    Promise.all(all).then((bodies) => {
      const version = session.socket.getProtocol();
      const facts = { version, protocol: session.alpnProtocol, bodies };
      session.close(() => resolve(facts));
    }, reject);
  });
}

for (const version of ['TLSv1.2', 'TLSv1.3']) {
  const first = await overHttp1(version, 'GET', `/${size}`);
  console.log(`${first.version} http/1.1 download ${sha256(first.body)} reused=${first.reused}`);
  const again = await overHttp1(version, 'GET', `/${size}`, undefined, first.ticket);
  console.log(`${again.version} http/1.1 download ${sha256(again.body)} reused=${again.reused}`);
  const upload = await overHttp1(version, 'POST', '/upload', sent);
  console.log(`${upload.version} http/1.1 upload ${sha256(sent)} ${upload.body}`);

  const { bodies, ...facts } = await overHttp2(version, [
    { headers: { ':path': `/${size}` } },
    { headers: { ':path': '/upload', ':method': 'POST' }, body: sent },
  ]);
  console.log(`${facts.version} ${facts.protocol} download ${sha256(bodies[0])}`);
  console.log(`${facts.version} ${facts.protocol} upload ${sha256(sent)} ${bodies[1]}`);
}

const stranger = tls.connect({ host: 'localhost', port: http1Port, servername: 'localhost' });
stranger.on('secureConnect', () => { console.log('verified a stranger'); stranger.destroy(); });
stranger.on('error', () => console.log('refused a stranger'));
