'use strict';

// Sockets that a program has opened itself, and hands to a server by `emit('connection', socket)`.
// After test-tls-socket-close, test-tls-generic-stream, test-tls-destroy-stream,
// test-tls-destroy-stream-12, test-tls-ticket, test-tls-ticket-12.

const assert = require('node:assert');
const fs = require('node:fs');
const http2 = require('node:http2');
const https = require('node:https');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { Duplex } = require('node:stream');
const { test } = require('node:test');
const tls = require('node:tls');

const { authority, leaf } = require('../certificates');
const {
  attach,
  createSecureContext,
  createServer,
  createTLSServer,
  isSealane,
  onlySealane,
} = require('../implementation');
const { ca, connect, connected, own, refused, request, start, ticket } = require('../site');
const { collect, event, take, until } = require('../within');

const commonName = (client) => client.getPeerCertificate().subject.CN;
const a = leaf(ca, 'a.example.com');
const b = leaf(ca, 'b.example.com');

/** A port that hands its connections to `server`. */
async function door(t, server, wrap = (socket) => socket) {
  const listener = net.createServer((socket) => server.emit('connection', wrap(socket)));
  return start(t, listener);
}

/** A stream that is no socket, over one. */
function asStream(socket) {
  const stream = new Duplex({
    read() {
      socket.resume();
    },
    write: (chunk, encoding, done) => socket.write(chunk, encoding, done),
    final: (done) => socket.end(done),
    destroy(error, done) {
      socket.destroy();
      done(error);
    },
  });
  socket.on('data', (chunk) => stream.push(chunk) || socket.pause());
  socket.on('end', () => stream.push(null));
  socket.on('error', (error) => stream.destroy(error));
  return stream;
}

test('https: requests over it, and over the own port', async (t) => {
  const seen = [];
  const server = createServer(own, (incoming, answer) => {
    seen.push([incoming.socket instanceof tls.TLSSocket, incoming.socket.server === server]);
    answer.end(incoming.url);
  });
  await start(t, server);
  const through = await door(t, server);
  assert.strictEqual((await request(through, { path: '/handed' })).text, '/handed');
  assert.strictEqual((await request(server, { path: '/own' })).text, '/own');
  assert.deepStrictEqual(seen, [
    [true, true],
    [true, true],
  ]);
});

for (const maxVersion of ['TLSv1.2', 'TLSv1.3']) {
  test(`${maxVersion}: sockets and streams, to a server that does not listen`, async (t) => {
    const server = createTLSServer({ ...own, maxVersion }, (socket) => {
      socket.write(`${socket.getProtocol()} `);
      socket.pipe(socket);
    });
    for (const wrap of [(socket) => socket, asStream]) {
      const through = await door(t, server, wrap);
      const client = await connected(t, through);
      client.end('echo');
      assert.strictEqual(String(await collect(client)), `${maxVersion} echo`);
    }
  });
}

test('certificates by name: addContext, SNICallback, setSecureContext', async (t) => {
  const named = createTLSServer(own, (socket) => socket.end());
  named.addContext('a.example.com', a);
  named.addContext('*.example.com', b);
  const through = await door(t, named);
  const seen = async (servername, where = through) =>
    commonName(await connected(t, where, { servername, checkServerIdentity() {} }));
  assert.strictEqual(await seen('x.example.com'), 'b.example.com');
  assert.strictEqual(await seen('localhost'), 'localhost');
  const renewed = leaf(ca, 'renewed.example.com');
  named.setSecureContext({ cert: renewed.cert, key: renewed.key });
  assert.strictEqual(await seen('localhost'), 'renewed.example.com');

  const SNICallback = (name, done) => {
    if (name === 'a.example.com') done(null, createSecureContext(a));
    else if (name === 'bad.example.com') done(new Error('nobody of that name'));
    else done(null, null);
  };
  const asking = createTLSServer({ ...own, SNICallback }, (socket) => socket.end());
  const errors = [];
  asking.on('tlsClientError', (error) => errors.push(error.message));
  const asked = await door(t, asking);
  assert.strictEqual(await seen('a.example.com', asked), 'a.example.com');
  assert.strictEqual(await seen('localhost', asked), 'localhost');
  await refused(t, asked, { servername: 'bad.example.com' });
  assert.deepStrictEqual(errors, ['nobody of that name']);
});

test('clients must show the certificates that the server asks for', async (t) => {
  const clients = authority('Authority of clients');
  const known = leaf(clients, 'client');
  const options = { ...own, ca: clients.cert, requestCert: true };
  const server = createTLSServer(options, (socket) =>
    socket.end(`${socket.authorized} ${socket.getPeerCertificate().subject.CN}`),
  );
  let secure = 0;
  server.on('secureConnection', () => (secure += 1));
  const through = await door(t, server);
  await refused(t, through, { maxVersion: 'TLSv1.2' });
  assert.strictEqual(secure, 0);
  const client = connect(t, through, { cert: known.cert, key: known.key });
  assert.strictEqual(String(await collect(client)), 'true client');
});

test('a handshake that fails is told by the server', async (t) => {
  for (const server of [createTLSServer(own), createServer(own)]) {
    const through = await door(t, server);
    const told = event(server, 'tlsClientError');
    const stranger = net.connect(through.address().port, '127.0.0.1');
    t.after(() => stranger.destroy());
    stranger.on('error', () => {}).end('no TLS at all');
    const [error, socket] = await told;
    assert.match(error.code, /^ERR_SSL_/);
    assert.ok(socket instanceof tls.TLSSocket);
  }
});

test('sessions go on between servers of equal ticketKeys', async (t) => {
  const ticketKeys = Buffer.alloc(48, 7);
  const doors = [];
  for (let i = 0; i < 2; i++) {
    const server = createTLSServer({ ...own, ticketKeys }, (socket) => socket.end('x'));
    doors.push(await door(t, server));
  }
  const session = await ticket(t, doors[0]);
  const again = await connected(t, doors[1], { session });
  assert.strictEqual(again.isSessionReused(), true);
});

test("http2: a secure server of node's, with lanes", { skip: onlySealane }, async (t) => {
  const server = http2.createSecureServer({ allowHTTP1: true }, (incoming, answer) =>
    answer.end(incoming.httpVersion),
  );
  attach(server, { ...own, ALPNProtocols: ['h2', 'http/1.1'] });
  await start(t, server);
  for (const where of [server, await door(t, server)]) {
    const session = http2.connect(`https://localhost:${where.address().port}`, { ca: ca.cert });
    t.after(() => session.destroy());
    assert.strictEqual(String(await collect(session.request())), '2.0');
    session.close();
    assert.strictEqual((await request(where)).text, '1.1');
  }
});

test('who ends the socket below ends the one above', async (t) => {
  const sockets = [];
  const server = createTLSServer(own, (socket) => sockets.push(socket));
  const through = await door(t, server, (socket) => sockets.push(socket) && socket);
  const client = await connected(t, through);
  client.write('x');
  await until(() => sockets.length === 2, 'both sockets');
  const [below, above] = sockets;
  assert.strictEqual(String(await take(above, 1)), 'x');
  const closed = event(above, 'close');
  below.destroy();
  await closed;
  assert.strictEqual(above.destroyed, true);
});

test('key logs, and protocols', async (t) => {
  const ALPNProtocols = ['first', 'second'];
  const server = createTLSServer({ ...own, ALPNProtocols }, (socket) =>
    socket.end(socket.alpnProtocol),
  );
  const lines = [];
  server.on('keylog', (line) => lines.push(String(line)));
  const through = await door(t, server);
  const client = connect(t, through, { ALPNProtocols: ['second', 'first'] });
  assert.strictEqual(String(await collect(client)), 'first');
  assert.ok(lines.length >= 4, String(lines));
});

test('certificates from files, by name, and read again', { skip: onlySealane }, async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sealane-foreign-'));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const write = (name, { cert, key }) => fs.writeFileSync(path.join(folder, name), cert + key);
  write('a.pem', a);
  write('b.pem', b);
  const server = createTLSServer({ certificates: folder }, (socket) => socket.end());
  const through = await door(t, server);
  const seen = async (servername) => commonName(await connected(t, through, { servername }));
  assert.strictEqual(await seen('a.example.com'), 'a.example.com');
  assert.strictEqual(await seen('b.example.com'), 'b.example.com');
  write('c.pem', leaf(ca, 'c.example.com'));
  await server.reload();
  assert.strictEqual(await seen('c.example.com'), 'c.example.com');
});

test("TLS over one of the server's own sockets", async (t) => {
  for (const handover of isSealane ? ['ring', 'socket'] : [undefined]) {
    const inner = createTLSServer(own, (socket) => socket.pipe(socket));
    const options = handover ? { ...own, handover } : own;
    const outer = createTLSServer(options, (socket) => inner.emit('connection', socket));
    await start(t, outer);
    const socket = await connected(t, outer);
    const client = tls.connect({ socket, ca: ca.cert, servername: 'localhost' });
    t.after(() => client.destroy());
    client.write('inside');
    assert.strictEqual(String(await take(client, 6)), 'inside');
    client.end();
  }
});

test('who asks by instanceof, or has patched https, finds node', async (t) => {
  const emitted = [];
  const { emit } = https.Server.prototype;
  https.Server.prototype.emit = function (name, ...args) {
    emitted.push(name);
    return emit.call(this, name, ...args);
  };
  t.after(() => delete https.Server.prototype.emit);
  for (const handover of isSealane ? ['ring', 'socket'] : [undefined]) {
    emitted.length = 0;
    const seen = [];
    const server = createServer(handover ? { ...own, handover } : own, ({ socket }, answer) => {
      seen.push(socket instanceof tls.TLSSocket, socket instanceof net.Socket);
      answer.end();
    });
    assert.ok(server instanceof https.Server && server instanceof tls.Server);
    await start(t, server);
    assert.strictEqual((await request(server)).status, 200);
    assert.deepStrictEqual(seen, [true, true]);
    for (const name of ['listening', 'connection', 'secureConnection', 'request']) {
      assert.ok(emitted.includes(name), `${name} of ${emitted}`);
    }
  }
  assert.ok(createTLSServer(own) instanceof tls.Server);
});
