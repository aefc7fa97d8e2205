'use strict';

// A server's life: listen, address, close and its kin, timeouts of HTTP, maxConnections.
// After test-https-close, test-https-server-close-*, test-https-server-async-dispose,
// test-https-set-timeout-server, test-https-timeout-server*, test-https-server-*-timeout,
// test-https-server-keep-alive-timeout, test-https-server-connections-checking-leak,
// test-tls-reinitialize-listeners, test-tls-server-connection-server, test-https-timeout.

const assert = require('node:assert');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');

const { createServer, createTLSServer, differs, isSealane } = require('../implementation');
const {
  connected,
  endsOf,
  hasIPv6,
  httpsSite,
  own,
  pair,
  request,
  start,
  tlsSite,
} = require('../site');
const { collect, ended, event, pause, until, within } = require('../within');

const hello = (_incoming, answer) => answer.end('hello');
const closing = (server) =>
  within(
    new Promise((resolve) => {
      server.close(resolve);
    }),
    'close',
  );
const GET = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';

test('listen: its forms', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sealane-'));
  const forms = [
    [[0], (address) => address.port > 0],
    [[0, '127.0.0.1'], (address) => address.address === '127.0.0.1'],
    [[0, '127.0.0.1', 10], (address) => address.family === 'IPv4'],
    [[0, 'localhost'], (address) => ['127.0.0.1', '::1'].includes(address.address)],
    [[{ port: '0', host: '127.0.0.1' }], (address) => address.port > 0],
    [[], (address) => address.port > 0],
    [[path.join(folder, 'one')], (address) => address === path.join(folder, 'one')],
    [[{ path: path.join(folder, 'two') }], (address) => address === path.join(folder, 'two')],
  ];
  if (hasIPv6) {
    forms.push(
      [[{ port: 0, host: '::1' }], (address) => address.family === 'IPv6'],
      [[{ port: 0, host: '::', ipv6Only: true }], (address) => address.address === '::'],
    );
  }
  for (const [given, holds] of forms) {
    const server = createTLSServer(own);
    assert.strictEqual(server.address(), null);
    const returned = server.listen(...given, () => {});
    assert.strictEqual(returned, server);
    await event(server, 'listening');
    assert.strictEqual(server.listening, true);
    assert.ok(holds(server.address()), JSON.stringify([given, server.address()]));
    await closing(server);
    assert.strictEqual(server.listening, false);
    // A path is still returned after the close, in node as well.
    if (typeof server.address() !== 'string') assert.strictEqual(server.address(), null);
  }
  fs.rmSync(folder, { recursive: true });
});

test('listen refuses what is no port, and a server that listens', async (t) => {
  for (const port of [-1, 65_536, 1.5, 'abc', NaN]) {
    assert.throws(
      () => createTLSServer(own).listen({ port }),
      (error) => /^ERR_(SOCKET_BAD_PORT|INVALID_ARG_VALUE)$/.test(error.code),
      String(port),
    );
  }
  const server = await tlsSite(t);
  assert.throws(() => server.listen(0), { code: 'ERR_SERVER_ALREADY_LISTEN' });
});

test('a port that is taken: EADDRINUSE as an event', async (t) => {
  const other = net.createServer().listen(0, '127.0.0.1');
  await event(other, 'listening');
  t.after(() => other.close());
  const server = createTLSServer(own);
  server.listen(other.address().port, '127.0.0.1');
  const [error] = await event(server, 'error');
  assert.strictEqual(error.code, 'EADDRINUSE');
  assert.strictEqual(error.syscall, 'listen');
  assert.strictEqual(error.port, other.address().port);
  assert.strictEqual(error.address, '127.0.0.1');
  assert.strictEqual(server.listening, false);
  server.listen(0, '127.0.0.1');
  await event(server, 'listening');
  await closing(server);
});

test('listen with an AbortSignal', async () => {
  const controller = new AbortController();
  const server = createTLSServer(own);
  server.listen({ port: 0, host: '127.0.0.1', signal: controller.signal });
  await event(server, 'listening');
  const closed = event(server, 'close');
  controller.abort();
  await closed;
});

test('close and listen again', async () => {
  const server = createServer(own, hello);
  for (let i = 0; i < 3; i += 1) {
    server.listen(0, '127.0.0.1');
    await event(server, 'listening');
    assert.strictEqual((await request(server)).text, 'hello');
    await closing(server);
  }
});

test('close in the tick of listen', async () => {
  const server = createTLSServer(own);
  server.listen(0, '127.0.0.1');
  await closing(server);
});

test('close of a server that does not listen tells so', async () => {
  const server = createTLSServer(own);
  const error = await new Promise((resolve) => {
    server.close(resolve);
  });
  assert.strictEqual(error.code, 'ERR_SERVER_NOT_RUNNING');
});

test('close waits for connections, and takes no new ones', async () => {
  const server = createTLSServer(own);
  server.listen(0, '127.0.0.1');
  await event(server, 'listening');
  const t = { after() {} };
  endsOf.set(server, new Set());
  const { client, socket } = await pair(t, server);
  const { port } = server.address();
  let closed = false;
  server.close(() => {
    closed = true;
  });
  const late = net.connect(port, '127.0.0.1');
  const [error] = await event(late, 'error').catch((failure) => [failure]);
  // A lane closes its listener a moment after the call: connections in between are reset.
  assert.match(error.code, differs({ node: /^ECONNREFUSED$/, sealane: /^ECONN(REFUSED|RESET)$/ }));
  assert.strictEqual(closed, false);
  socket.end('last words');
  assert.strictEqual(String(await collect(client)), 'last words');
  await until(() => closed, 'close');
});

test('http: close ends idle connections by itself', async () => {
  const t = { after() {} };
  const server = createServer(own, hello);
  server.listen(0, '127.0.0.1');
  await event(server, 'listening');
  endsOf.set(server, new Set());
  const client = await connected(t, server);
  client.write(GET);
  await event(client, 'data');
  const ended = event(client.resume(), 'close');
  await closing(server);
  await ended;
});

test('closeIdleConnections and closeAllConnections', async (t) => {
  const server = await httpsSite(t, {}, (incoming, answer) => {
    answer.write('partly');
    if (incoming.url === '/') answer.end();
  });
  const [idle, busy] = [await connected(t, server), await connected(t, server)];
  idle.write(GET);
  await event(idle, 'data');
  busy.write(GET.replace('/', '/busy'));
  await event(busy, 'data');
  await pause(20);
  const idleClosed = event(idle.resume(), 'close');
  server.closeIdleConnections();
  await idleClosed;
  assert.strictEqual(busy.destroyed, false);
  const busyClosed = ended(busy);
  server.closeAllConnections();
  await busyClosed;
});

test('Symbol.asyncDispose closes', { skip: !Symbol.asyncDispose }, async () => {
  const server = createServer(own, hello);
  server.listen(0, '127.0.0.1');
  await event(server, 'listening');
  await within(server[Symbol.asyncDispose](), 'asyncDispose');
  assert.strictEqual(server.listening, false);
});

test('getConnections', async (t) => {
  const server = await tlsSite(t);
  const count = () =>
    new Promise((resolve, reject) => {
      server.getConnections((error, n) => (error ? reject(error) : resolve(n)));
    });
  assert.strictEqual(await count(), 0);
  const ends = [await pair(t, server), await pair(t, server), await pair(t, server)];
  assert.strictEqual(await count(), 3);
  for (const { client, socket } of ends) {
    socket.resume();
    client.end();
    await event(socket, 'close');
  }
  assert.strictEqual(await count(), 0);
});

test('maxConnections: more are dropped', async (t) => {
  const server = await tlsSite(t, isSealane ? { lanes: 1 } : {});
  server.maxConnections = 2;
  const good = [await pair(t, server), await pair(t, server)];
  const third = net.connect(server.address().port, '127.0.0.1');
  t.after(() => third.destroy());
  // Let in by the kernel, ended before any TLS; Sealane may let it wait for its turn instead.
  const thirdEnded = ended(third);
  if (!isSealane) await thirdEnded;
  for (const { socket } of good) assert.strictEqual(socket.destroyed, false);
});

test('setTimeout of the server: the timeout event has the socket', async (t) => {
  const server = await httpsSite(t, {}, hello);
  assert.strictEqual(server.setTimeout(50), server);
  const timed = event(server, 'timeout');
  const client = await connected(t, server);
  const [socket] = await timed;
  assert.strictEqual(socket.encrypted, true);
  socket.destroy();
  await ended(client);
});

test('setTimeout of the server without a listener ends the connection', async (t) => {
  const server = await httpsSite(t, {}, hello);
  server.setTimeout(50);
  const client = await connected(t, server);
  await event(client.resume(), 'close');
});

test('setTimeout of an answer: its event, and no end', async (t) => {
  const server = await httpsSite(t);
  let heard = 0;
  server.on('request', (_incoming, answer) => {
    answer.setTimeout(30, () => {
      heard += 1;
      answer.end('late');
    });
  });
  assert.strictEqual((await request(server)).text, 'late');
  assert.strictEqual(heard, 1);
});

test('keepAliveTimeout ends who asks nothing more', async (t) => {
  const server = await httpsSite(t, { keepAliveTimeout: 50 }, hello);
  const client = await connected(t, server);
  client.write(GET);
  assert.match(String(await collect(client)), /hello$/);
});

test('headersTimeout and requestTimeout: 408', async (t) => {
  for (const name of ['headersTimeout', 'requestTimeout']) {
    const server = await httpsSite(
      t,
      {
        [name]: 100,
        connectionsCheckingInterval: 25,
        ...(name === 'requestTimeout' ? { headersTimeout: 100 } : {}),
      },
      () => {},
    );
    const client = await connected(t, server);
    client.write('POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n');
    if (name === 'requestTimeout') client.write('\r\nhalf');
    assert.match(String(await collect(client)), /^HTTP\/1\.1 408 /, name);
  }
});

test('listeners for secureConnection may be replaced', async (t) => {
  const server = await start(
    t,
    createTLSServer(own, () => assert.fail('removed')),
  );
  server.removeAllListeners('secureConnection');
  server.on('secureConnection', (socket) => socket.end('second'));
  const client = await connected(t, server);
  assert.strictEqual(String(await collect(client)), 'second');
});

test('sockets know their server', async (t) => {
  const server = await tlsSite(t);
  const { socket } = await pair(t, server);
  assert.strictEqual(socket.server, server);
});

test('connection comes with each connection', async (t) => {
  const server = await tlsSite(t);
  const order = [];
  server.on('connection', () => order.push('connection'));
  server.on('secureConnection', () => order.push('secureConnection'));
  await pair(t, server);
  assert.deepStrictEqual(order, ['connection', 'secureConnection']);
});

test("a server's ref and unref give it back", async (t) => {
  const server = await tlsSite(t);
  assert.strictEqual(server.unref(), server);
  assert.strictEqual(server.ref(), server);
  const { socket } = await pair(t, server);
  assert.strictEqual(socket.destroyed, false);
});
