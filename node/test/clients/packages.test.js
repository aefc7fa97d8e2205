'use strict';

// Client packages of npm: undici and autocannon; and node's own fetch and http2.

const assert = require('node:assert');
const http2 = require('node:http2');
const { test } = require('node:test');

const autocannon = require('autocannon');
const undici = require('undici');

const { ca } = require('../site');
const { collect, event, within } = require('../within');
const { http1Site, http2Site, large, sha256 } = require('./serving');

const base = (server) => `https://127.0.0.1:${server.address().port}`;

for (const allowH2 of [false, true]) {
  test(`undici over ${allowH2 ? 'HTTP/2' : 'HTTP/1.1'}`, async (t) => {
    const server = await http2Site(t);
    const agent = new undici.Agent({ allowH2, connect: { ca: ca.cert, servername: 'localhost' } });
    t.after(() => agent.destroy());
    const ask = async (path, more = {}) => {
      const { body, statusCode } = await undici.request(base(server) + path, {
        dispatcher: agent,
        ...more,
      });
      assert.strictEqual(statusCode, 200);
      return Buffer.from(await body.arrayBuffer());
    };
    assert.strictEqual(String(await ask('/')), allowH2 ? 'version=2.0' : 'version=1.1');
    assert.ok((await ask('/large')).equals(large));
    const hash = await ask('/upload', { method: 'POST', body: large });
    assert.strictEqual(String(hash), sha256(large));
    await Promise.all(Array.from({ length: 100 }, () => ask('/')));
  });
}

test('undici pipelines', async (t) => {
  const server = await http1Site(t);
  const client = new undici.Client(base(server), {
    pipelining: 10,
    connect: { ca: ca.cert, servername: 'localhost' },
  });
  t.after(() => client.destroy());
  const answers = await Promise.all(
    Array.from({ length: 200 }, async () => {
      const { body } = await client.request({ path: '/', method: 'GET' });
      return body.text();
    }),
  );
  assert.ok(answers.every((text) => text === 'version=1.1'));
});

test('autocannon, with and without keep-alive', async (t) => {
  const server = await http1Site(t);
  for (const headers of [{}, { connection: 'close' }]) {
    const result = await within(
      autocannon({
        url: base(server),
        connections: 10,
        amount: 200,
        headers,
        tlsOptions: { ca: ca.cert, servername: 'localhost' },
      }),
      'autocannon',
      60_000,
    );
    assert.strictEqual(result.non2xx, 0);
    assert.strictEqual(result.timeouts, 0);
    if (headers.connection) {
      // It counts a connection that the server ends as an error besides.
      assert.ok(result['2xx'] >= 100, String(result['2xx']));
    } else {
      assert.strictEqual(result.errors, 0);
      assert.strictEqual(result['2xx'], 200);
    }
  }
});

test("node's http2: many streams, and a large body each way", async (t) => {
  const server = await http2Site(t);
  const session = http2.connect(base(server), { ca: ca.cert, servername: 'localhost' });
  t.after(() => session.destroy());
  const ask = async (path, body) => {
    const stream = session.request({ ':path': path, ':method': body ? 'POST' : 'GET' });
    stream.end(body);
    return collect(stream);
  };
  const pages = await Promise.all(Array.from({ length: 200 }, () => ask('/')));
  assert.ok(pages.every((page) => String(page) === 'version=2.0'));
  assert.ok((await ask('/large')).equals(large));
  assert.strictEqual(String(await ask('/upload', large)), sha256(large));
  assert.strictEqual(session.alpnProtocol, 'h2');
  const closed = event(session, 'close');
  session.close();
  await closed;
});

test('what an http2 server knows of its connections', async (t) => {
  const server = await http2Site(t);
  const told = new Promise((resolve) => {
    server.once('session', (session) => resolve(session.socket));
  });
  const session = http2.connect(base(server), { ca: ca.cert, servername: 'localhost' });
  t.after(() => session.destroy());
  await event(session, 'connect');
  const socket = await within(told, 'a session');
  assert.strictEqual(socket.remoteAddress, '127.0.0.1');
  assert.strictEqual(socket.remotePort, session.socket.localPort);
  assert.strictEqual(socket.encrypted, true);
  assert.strictEqual(socket.alpnProtocol, 'h2');
  assert.strictEqual(socket.servername, 'localhost');
  assert.strictEqual(socket.getProtocol(), 'TLSv1.3');
});
