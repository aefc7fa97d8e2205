'use strict';

// Handshakes that fail, and clients that are none: the server's errors, and that it lives on. After
// test-tls-junk-*, test-tls-hello-parser-failure, test-tls-timeout-server*,
// test-https-timeout-server*, test-tls-handshake-*, test-tls-server-failed-handshake-*,
// test-tls-alert*, test-tls-econnreset, test-tls-wrap-econnreset*, test-https-connecting-to-http,
// test-tls-server-capture-rejection, test-tls-on-empty-socket, test-tls-empty-sni-context,
// test-https-selfsigned-no-keycertsign-no-crash, test-tls-error-stack.

const assert = require('node:assert');
const events = require('node:events');
const net = require('node:net');
const { test } = require('node:test');
const tls = require('node:tls');

const { certificate } = require('../certificates');
const { differs, isSealane } = require('../implementation');
const { connect, connected, httpsSite, refused, request, start, tlsSite } = require('../site');
const { collect, ended, event, pause, until, within } = require('../within');

/** A TCP connection without TLS. */
function plain(t, server) {
  const client = net.connect(server.address().port, '127.0.0.1');
  client.on('error', () => {});
  t.after(() => client.destroy());
  return client;
}

/** The first bytes of a client. */
async function helloOf(t) {
  const listener = await start(t, net.createServer());
  const heard = event(listener, 'connection');
  connect(t, listener);
  const [socket] = await heard;
  const [hello] = await event(socket, 'data');
  socket.destroy();
  return hello.toString('latin1');
}

async function stillServes(t, server) {
  const client = await connected(t, server);
  assert.strictEqual(client.authorized, true);
}

function secureConnectionsFail(server) {
  const fail = () => assert.fail('a client that is none got through');
  server.on('secureConnection', fail);
  return () => server.off('secureConnection', fail);
}

test('junk ends that connection, and is told', async (t) => {
  const server = await tlsSite(t);
  const allow = secureConnectionsFail(server);
  for (const junk of ['blah\nblah\nblah\n', Buffer.alloc(1024, 42), '\x80\x03\x00\x00\x01']) {
    const client = plain(t, server);
    const failed = event(server, 'tlsClientError');
    client.end(junk, 'latin1');
    // An end, and no reset, which would be an error here.
    const rest = collect(client);
    const [error, socket] = await failed;
    assert.ok(error instanceof Error);
    assert.strictEqual(socket._secureEstablished, false);
    await rest;
  }
  allow();
  await stillServes(t, server);
});

test("'connection' comes for a client whose handshake fails, before its error", async (t) => {
  const server = await tlsSite(t);
  const told = [];
  server.on('connection', (socket) => told.push(['connection', socket.remotePort]));
  server.on('tlsClientError', (_error, socket) => {
    told.push(['tlsClientError', socket.remotePort]);
    socket.destroy();
  });
  const client = plain(t, server);
  await event(client, 'connect');
  const { localPort } = client;
  client.end('junk junk junk junk');
  await until(() => told.length === 2, 'both');
  assert.deepStrictEqual(told, [
    ['connection', localPort],
    ['tlsClientError', differs({ node: told[1][1], sealane: localPort })],
  ]);
});

test('a flood of junk ends with an error at the client', async (t) => {
  const server = await tlsSite(t);
  server.on('tlsClientError', () => {});
  const client = plain(t, server);
  const flood = Buffer.alloc(1024 * 1024, 42);
  const closed = event(client, 'close').catch(() => []);
  client.write(flood);
  client.write(flood);
  client.resume();
  await closed;
  await stillServes(t, server);
});

test('plain http to a TLS port', async (t) => {
  const server = await httpsSite(t, {}, () => assert.fail('this was no TLS'));
  const failed = event(server, 'tlsClientError');
  const client = plain(t, server);
  client.end('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const [error] = await failed;
  if (!isSealane) assert.strictEqual(error.code, 'ERR_SSL_HTTP_REQUEST');
  client.resume();
});

test('tlsClientError comes with a socket that tells who it was', async (t) => {
  const server = await tlsSite(t);
  const failed = event(server, 'tlsClientError');
  const client = plain(t, server);
  await event(client, 'connect');
  const { localPort } = client;
  client.write('junk junk junk junk');
  const [error, socket] = await failed;
  assert.ok(error instanceof Error);
  assert.ok(socket instanceof tls.TLSSocket);
  assert.strictEqual(socket.setTimeout(1), socket);
  if (isSealane) {
    assert.strictEqual(socket.remoteAddress, '127.0.0.1');
    assert.strictEqual(socket.remotePort, localPort);
  }
  socket.destroy();
});

test('a client that leaves before it says anything', async (t) => {
  const server = await tlsSite(t);
  secureConnectionsFail(server);
  const errors = [];
  server.on('tlsClientError', (error) => errors.push(error.code));
  const client = plain(t, server);
  await event(client, 'connect');
  client.end();
  await event(client.resume(), 'close');
  await until(() => errors.length === 1, 'the error');
  assert.deepStrictEqual(errors, ['ECONNRESET']);
});

test('a client that resets in the midst of its handshake', async (t) => {
  const server = await tlsSite(t);
  const failed = event(server, 'tlsClientError');
  const client = plain(t, server);
  await event(client, 'connect');
  // The head of a record that never comes.
  client.write(Buffer.from([22, 3, 1, 0, 200, 1, 0]));
  client.resetAndDestroy();
  const [error] = await failed;
  assert.ok(error instanceof Error);
});

test('handshakeTimeout ends who does not finish', async (t) => {
  // Nothing, the start of a hello, and a hello with an answer that is not answered, read in time.
  for (const [sent, handshakeTimeout] of [
    ['', 50],
    ['\x16\x03\x01\x02\x00', 50],
    [await helloOf(t), 1_000],
  ]) {
    const server = await tlsSite(t, { handshakeTimeout });
    const failed = event(server, 'tlsClientError');
    const client = plain(t, server);
    client.write(sent, 'latin1');
    // An end, and no reset, which would be an error here.
    const rest = collect(client);
    const [error, socket] = await failed;
    assert.strictEqual(error.code, 'ERR_TLS_HANDSHAKE_TIMEOUT');
    assert.match(
      error.message,
      differs({ node: /^TLS handshake timeout$/, sealane: /handshakeTimeout/ }),
    );
    // node leaves it to the listener to end the connection; in Sealane the lane has.
    socket.destroy();
    assert.strictEqual((await rest).length > 0, sent.length > 100);
  }
});

test('handshakeTimeout is over with the handshake', async (t) => {
  const handshakeTimeout = 2_000;
  const server = await tlsSite(t, { handshakeTimeout }, (socket) => socket.pipe(socket));
  server.on('tlsClientError', () => assert.fail('this handshake was done'));
  const client = await connected(t, server);
  await pause(handshakeTimeout + 400);
  client.end('still here');
  assert.strictEqual(String(await collect(client)), 'still here');
});

test("https: handshakeTimeout gives clientError's kin too", async (t) => {
  const server = await httpsSite(t, { handshakeTimeout: 50 });
  const failed = event(server, 'tlsClientError');
  const client = plain(t, server);
  const [error, socket] = await failed;
  assert.strictEqual(error.code, 'ERR_TLS_HANDSHAKE_TIMEOUT');
  socket.destroy();
  client.resume();
});

test('a client that does not trust the server', async (t) => {
  for (const version of ['TLSv1.2', 'TLSv1.3']) {
    const server = await tlsSite(t, { minVersion: version, maxVersion: version });
    const failed = version === 'TLSv1.2' ? undefined : event(server, 'tlsClientError');
    failed?.catch(() => {});
    server.on('tlsClientError', () => {});
    const error = await refused(t, server, { ca: undefined });
    assert.strictEqual(error.code, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE');
    await stillServes(t, server);
  }
});

test('a self-signed authority that may not sign certificates', async (t) => {
  const odd = certificate({
    name: 'localhost',
    authority: true,
    signsCertificates: false,
    names: ['localhost'],
  });
  const server = await httpsSite(t, { cert: odd.cert, key: odd.key }, (_incoming, answer) =>
    answer.end('ok'),
  );
  server.on('tlsClientError', () => {});
  const answer = await request(server, { ca: odd.cert, rejectUnauthorized: false });
  assert.strictEqual(answer.text, 'ok');
});

test('plaintext in the midst of a connection ends it', async (t) => {
  for (const version of ['TLSv1.2', 'TLSv1.3']) {
    const server = await tlsSite(t, { minVersion: version, maxVersion: version });
    const raw = net.connect(server.address().port, '127.0.0.1');
    t.after(() => raw.destroy());
    raw.on('error', () => {});
    const arrived = event(server, 'secureConnection');
    const client = tls.connect({ socket: raw, rejectUnauthorized: false });
    client.on('error', () => {});
    await event(client, 'secureConnect');
    const [socket] = await arrived;
    socket.resume();
    const ended = new Promise((resolve) => {
      socket.once('error', resolve);
      socket.once('close', resolve);
    });
    raw.write('this is no record of TLS');
    await within(ended, 'the end of the connection');
    await stillServes(t, server);
  }
});

test('an async secureConnection that fails destroys its socket', async (t) => {
  events.captureRejections = true;
  t.after(() => {
    events.captureRejections = false;
  });
  const reason = new Error('kaboom');
  const errors = [];
  const server = await tlsSite(t, {}, async (socket) => {
    socket.on('error', (error) => errors.push(error));
    throw reason;
  });
  const client = connect(t, server);
  await event(client.resume(), 'close');
  assert.deepStrictEqual(errors, [reason]);
});

test('nobody who listens for tlsClientError: nothing is thrown', async (t) => {
  const server = await tlsSite(t);
  const client = plain(t, server);
  client.end('junk');
  await ended(client);
  await stillServes(t, server);
});

test('many failures at once, and those who come between', async (t) => {
  const server = await tlsSite(t);
  let failed = 0;
  server.on('tlsClientError', () => {
    failed += 1;
  });
  const count = 100;
  const good = [];
  for (let i = 0; i < count; i += 1) {
    plain(t, server).end('junk');
    if (i % 10 === 0) good.push(connected(t, server));
  }
  await Promise.all(good);
  await until(() => failed === count, 'all failures');
});

test('a handshake that fails with an alert: its number is in the error', async (t) => {
  const server = await tlsSite(t, { minVersion: 'TLSv1.3' });
  const failed = event(server, 'tlsClientError');
  const error = await refused(t, server, { maxVersion: 'TLSv1.2' });
  assert.match(error.message, /alert number 70|protocol version/);
  const [said] = await failed;
  assert.match(said.code, differs({ node: /UNSUPPORTED_PROTOCOL/, sealane: /^ERR_|^E[A-Z]+$/ }));
});

test('errors have a stack and a code', async (t) => {
  const server = await tlsSite(t);
  const failed = event(server, 'tlsClientError');
  plain(t, server).end('junk junk junk');
  const [error] = await failed;
  assert.strictEqual(typeof error.stack, 'string');
  assert.strictEqual(typeof error.code, 'string');
});
