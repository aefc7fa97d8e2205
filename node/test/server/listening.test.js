'use strict';

// Listening: the kinds of addresses, and the ends of a server.

const assert = require('node:assert/strict');
const { fork } = require('node:child_process');
const dns = require('node:dns');
const { once } = require('node:events');
const fs = require('node:fs');
const http2 = require('node:http2');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const sealane = require('sealane');
const { CORE } = require('../../lib/server');
const {
  connect,
  connected,
  httpsSite,
  onlyIPv6,
  own,
  pair,
  request,
  start,
  tlsSite,
} = require('../site');
const { event, pause, within } = require('../within');

const LOCAL = { host: '127.0.0.1', port: 0 };
const PORTS_TRIED = 10;

test('an address that is taken is told as node tells it', async (t) => {
  const first = await tlsSite(t);
  const { port } = first.address();
  const second = sealane.createTLSServer(own);
  second.listen(port, '127.0.0.1');
  const [error] = await within(once(second, 'error'), 'the error');
  assert.equal(error.code, 'EADDRINUSE');
  assert.equal(error.message, `listen EADDRINUSE: address already in use 127.0.0.1:${port}`);
  assert.deepEqual([error.address, error.port, error.syscall], ['127.0.0.1', port, 'listen']);
  assert.equal(second.listening, false);
  // It may try again.
  await start(t, second);
  assert.throws(() => second.listen(0), { code: 'ERR_SERVER_ALREADY_LISTEN' });
});

test('an address that is not ours is told as an error', async () => {
  const server = sealane.createTLSServer(own).listen(0, '192.0.2.1');
  const [error] = await within(once(server, 'error'), 'the error');
  assert.equal(error.code, 'EADDRNOTAVAIL');
});

test('names are looked up', async (t) => {
  const named = await start(t, sealane.createTLSServer(own), { host: 'localhost', port: 0 });
  assert.ok(['127.0.0.1', '::1'].includes(named.address().address));
});

test('both families are served where none is named', { skip: onlyIPv6 }, async (t) => {
  const any = await start(t, sealane.createTLSServer(own), { port: 0 });
  assert.equal(any.address().address, '::');
  const client = await connected(t, any);
  assert.equal(client.remoteFamily, 'IPv4');
  // Another program may have the same port of IPv4.
  const ports = [];
  for (let i = 0; i < PORTS_TRIED; i += 1) {
    const only6 = sealane.createTLSServer(own);
    await start(t, only6, { host: '::', port: 0, ipv6Only: true });
    ports.push(only6.address().port);
    if (await refuses(ports.at(-1))) return;
  }
  assert.fail(`IPv4 is served too on ${ports}`);
});

test('a name that nobody has is an error of the lookup', async (t) => {
  // A machine without a resolver takes longer than any test to report that.
  t.mock.method(dns, 'lookup', (hostname, _options, done) => {
    const fields = { code: 'ENOTFOUND', hostname, syscall: 'getaddrinfo' };
    process.nextTick(done, Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), fields));
  });
  const server = sealane.createTLSServer(own).listen(0, 'nobody.invalid');
  const [error] = await within(once(server, 'error'), 'the error');
  assert.deepEqual([error.syscall, error.hostname], ['getaddrinfo', 'nobody.invalid']);
});

test('a path is a socket in the file system, gone with the server', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sealane-'));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const where = path.join(folder, 'socket');
  const server = sealane.createTLSServer(own, (socket) => socket.end('over a path'));
  await start(t, server, { path: where, writableAll: true });
  assert.equal(server.address(), where);
  assert.equal(fs.statSync(where).mode & 0o222, 0o222);
  const client = connect(t, server);
  const [bytes] = await event(client, 'data');
  assert.equal(String(bytes), 'over a path');
  await within(new Promise((resolve) => server.close(resolve)), 'close');
  assert.equal(fs.existsSync(where), false);
});

test('a descriptor that listens already is taken', async (t) => {
  const first = net.createServer().listen(LOCAL);
  await event(first, 'listening');
  t.after(() => first.close());
  const { fd } = first._handle;
  const server = sealane.createTLSServer(own);
  await start(t, server, { fd });
  assert.deepEqual(server.address(), first.address());
});

test('a signal ends it', async () => {
  const controller = new AbortController();
  const server = sealane.createTLSServer(own).listen({ ...LOCAL, signal: controller.signal });
  await event(server, 'listening');
  controller.abort();
  await event(server, 'close');
  assert.equal(server.address(), null);
  const late = sealane.createTLSServer(own).listen({ ...LOCAL, signal: controller.signal });
  await event(late, 'close');
});

test('close waits for connections, and lets none in', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const { port } = server.address();
  let closed = false;
  server.close((error) => {
    closed = true;
    assert.ifError(error);
  });
  assert.equal(server.listening, false);
  socket.write('still here');
  const [bytes] = await event(client, 'data');
  assert.equal(String(bytes), 'still here');
  // The lanes hear of it a moment later.
  while (!(await within(refuses(port), 'an attempt'))) {
    await pause(2);
  }
  assert.equal(closed, false);
  client.end();
  await event(server, 'close');
});

function refuses(port) {
  const client = net.connect(port, '127.0.0.1');
  const outcome = new Promise((resolve) => {
    client.once('connect', () => resolve(false));
    client.once('error', () => resolve(true));
  });
  return outcome.finally(() => client.destroy());
}

test('a server that never listened says so when it is closed', async () => {
  const server = sealane.createTLSServer(own);
  const [error] = await new Promise((resolve) => server.close((...args) => resolve(args)));
  assert.equal(error.code, 'ERR_SERVER_NOT_RUNNING');
});

test('a server listens again after it was closed, even while connections live', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  server.close();
  server.listen(LOCAL);
  await event(server, 'listening');
  const other = await pair(t, server);
  socket.write('old');
  assert.equal(String((await event(client, 'data'))[0]), 'old');
  client.end();
  other.client.end();
  await within(new Promise((resolve) => server.close(resolve)), 'close');
});

test('an HTTP server closes its idle connections, and all of them when told', async (t) => {
  const server = await httpsSite(t, {}, (_request, response) => response.end('x'));
  const agent = new (require('node:https').Agent)({ keepAlive: true });
  t.after(() => agent.destroy());
  await request(server, { agent });
  await within(new Promise((resolve) => server.close(resolve)), 'close with an idle connection');

  server.listen(LOCAL);
  await event(server, 'listening');
  server.removeAllListeners('request');
  const arrived = event(server, 'request');
  const hangs = request(server).catch((error) => error.code);
  await arrived;
  server.closeAllConnections();
  assert.equal(await hangs, 'ECONNRESET');
});

test('getConnections, maxConnections and drop', async (t) => {
  const server = await tlsSite(t);
  server.maxConnections = 1;
  await pair(t, server);
  const dropped = event(server, 'drop');
  const second = connect(t, server);
  const [{ remotePort, localPort }] = await dropped;
  assert.equal(localPort, server.address().port);
  assert.ok(remotePort > 0);
  await within(once(second, 'close'), 'the end of the second');
  const count = await new Promise((resolve) => server.getConnections((_, n) => resolve(n)));
  assert.equal(count, 1);
});

test('a block list closes connections', async (t) => {
  const blockList = new net.BlockList();
  blockList.addAddress('127.0.0.1');
  const server = await tlsSite(t, { blockList });
  const client = connect(t, server);
  const secured = once(client, 'secureConnect').then(() => 'secured');
  // A reset that arrives while node connects is read with the connection's outcome: an end follows.
  const refused = once(client, 'end').then(() => 'ECONNRESET');
  const outcome = Promise.race([secured, refused]).catch(({ code }) => code);
  assert.equal(await within(outcome, 'the end of it'), 'ECONNRESET', 'before the handshake');
});

for (const isLookedAt of [false, true]) {
  const also = isLookedAt ? ', also if certificates were looked for meanwhile' : '';
  test(`a rule that is added later blocks from the second time on${also}`, async (t) => {
    await blockedLater(t, (server) => isLookedAt && server[CORE].certificate(-1));
  });
}

async function blockedLater(t, look) {
  const blockList = new net.BlockList();
  const server = await tlsSite(t, { blockList });
  const outcome = (client) =>
    new Promise((resolve) => {
      let secured = false;
      client.once('secureConnect', () => (secured = true));
      client.on('error', () => {});
      client.once('close', () => resolve(secured));
      client.resume();
    });
  // Both ends of it: a connection without its event yet is the first to be blocked.
  await pair(t, server);
  blockList.addSubnet('127.0.0.0', 8);
  look(server);
  assert.equal(await within(outcome(connect(t, server)), 'the end of the next'), true);
  const told = async () => (await outcome(connect(t, server))) === false || told();
  assert.equal(await within(told(), 'a reset before the handshake'), true);
}

test('await using closes', { skip: !Symbol.asyncDispose }, async () => {
  const server = sealane.createServer(own).listen(LOCAL);
  await event(server, 'listening');
  await within(server[Symbol.asyncDispose](), 'its end');
  assert.equal(server.listening, false);
});

test('attach gives lanes to servers of node', async (t) => {
  const plain = http2.createServer((_request, response) => response.end('h2'));
  assert.equal(sealane.attach(plain, own), plain);
  assert.throws(() => sealane.attach(plain, own), /has lanes already/);
  assert.throws(() => sealane.attach({}, own), { code: 'ERR_INVALID_ARG_TYPE' });
  const listening = net.createServer().listen(LOCAL);
  await event(listening, 'listening');
  assert.throws(() => sealane.attach(listening, own), /listens already/);
  listening.close();

  await start(t, plain);
  assert.equal(await overHttp2(t, plain), 'h2');
});

test('attach gives lanes to a secure HTTP/2 server, HTTP/1 included', async (t) => {
  const secure = http2.createSecureServer({ allowHTTP1: true }, (request, response) => {
    response.end(request.httpVersion);
  });
  sealane.attach(secure, own);
  await start(t, secure);
  assert.equal(await overHttp2(t, secure), '2.0');
  assert.equal((await request(secure, { ALPNProtocols: ['http/1.1'] })).text, '1.1');
});

async function overHttp2(t, server) {
  const session = http2.connect(`https://127.0.0.1:${server.address().port}`, {
    rejectUnauthorized: false,
  });
  t.after(() => session.destroy());
  const stream = session.request({ ':path': '/' });
  const chunks = [];
  stream.on('data', (chunk) => chunks.push(chunk));
  await within(once(stream, 'end'), 'the end of a stream');
  session.close();
  return String(Buffer.concat(chunks));
}

test('workers of a cluster share port and sessions, with a lane each', async () => {
  const primary = fork(path.join(__dirname, 'cluster.js'), { stdio: 'inherit' });
  const [outcome] = await within(once(primary, 'message'), "the primary's report");
  const { visits } = outcome;
  const resumed = [visits - 1, visits - 1];
  assert.deepEqual(outcome, { lanesOfEach: true, listening: 2, resumed, visits, workers: 2 });
  const [code] = await within(once(primary, 'exit'), "the primary's end");
  assert.equal(code, 0);
});

test("address and listening look at the lanes' handle alone, for Bun", async (t) => {
  const own = ['address', 'listening'].map((name) =>
    Object.getOwnPropertyDescriptor(net.Server.prototype, name),
  );
  t.after(() => {
    Object.defineProperty(net.Server.prototype, 'address', own[0]);
    Object.defineProperty(net.Server.prototype, 'listening', own[1]);
  });
  const none = { configurable: true, get: () => undefined };
  for (const name of ['address', 'listening']) {
    Object.defineProperty(net.Server.prototype, name, none);
  }
  const server = sealane.createTLSServer();
  assert.deepEqual([server.address(), server.listening], [null, false]);
  server.listen(0, '127.0.0.1');
  assert.ok(server.address().port > 0);
  assert.equal(server.listening, true);
  server.close();
  await event(server, 'close');
});
