'use strict';

// A socket as a stream: bytes both ways, pausing, ends, half-open, destroying.
// After test-tls-pause, test-tls-buffersize, test-tls-fast-writing, test-tls-throttle,
// test-tls-interleave, test-tls-zero-clear-in, test-tls-close-notify, test-tls-client-abort*,
// test-tls-client-destroy-soon, test-tls-destroy-*, test-tls-socket-*, test-tls-write-error,
// test-tls-close-event-after-write, test-tls-set-encoding, test-tls-connect-*,
// test-tls-invoke-queued, test-tls-server-large-request,
// test-tls-server-parent-constructor-options,
// test-tls-request-timeout, test-tls-net-socket-keepalive*, test-tls-max-send-fragment,
// test-tls-writewrap-leak, test-tls-connect-hwm-option, test-tls-error-servername, test-https-*.

const assert = require('node:assert');
const crypto = require('node:crypto');
const net = require('node:net');
const { Duplex } = require('node:stream');
const { finished } = require('node:stream/promises');
const { test } = require('node:test');

const { TLSSocket, differs, isSealane } = require('../implementation');
const { connect, connected, onlyIPv6, pair, tlsSite } = require('../site');
const { collect, ended, event, pause, take, until, within } = require('../within');

/** A descriptor may show a plain end where the client has reset the connection. */
const noResets = process.env.HANDOVER === 'socket' && 'a descriptor shows a reset as an end';
const echo = (socket) => {
  socket.pipe(socket);
};

test('bytes both ways, in order, of many sizes', async (t) => {
  const server = await tlsSite(t, {}, echo);
  const client = await connected(t, server);
  const sent = [];
  for (const size of [
    1, 15, 16, 17, 1023, 16_383, 16_384, 16_385, 131_071, 131_072, 131_073, 300_000,
  ]) {
    sent.push(crypto.randomBytes(size));
  }
  for (const chunk of sent) client.write(chunk);
  client.end();
  assert.ok((await collect(client)).equals(Buffer.concat(sent)));
});

test('strings in each encoding, and typed arrays', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  socket.write('äöü€😀', 'utf8');
  socket.write('\xe4\xf6', 'latin1');
  socket.write('c0ffee', 'hex');
  socket.write('aGFsbG8=', 'base64');
  socket.write('hi', 'utf16le');
  socket.write('');
  socket.write(Buffer.alloc(0));
  socket.write(new Uint8Array([1, 2, 3]));
  socket.setDefaultEncoding('hex');
  socket.write('00ff');
  socket.end();
  assert.deepStrictEqual(
    await collect(client),
    Buffer.concat([
      Buffer.from('äöü€😀'),
      Buffer.from([0xe4, 0xf6]),
      Buffer.from('c0ffee', 'hex'),
      Buffer.from('hallo'),
      Buffer.from('hi', 'utf16le'),
      Buffer.from([1, 2, 3, 0, 255]),
    ]),
  );
});

test('setEncoding, and a character that two records share', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  socket.setEncoding('utf8');
  let got = '';
  socket.on('data', (text) => {
    got += text;
  });
  const euro = Buffer.from('€');
  client.write(euro.subarray(0, 1));
  await pause(20);
  client.end(euro.subarray(1));
  await event(socket, 'end');
  assert.strictEqual(got, '€');
});

test('a paused socket hands nothing out until it is resumed, and holds up nobody', async (t) => {
  const server = await tlsSite(t);
  const size = 2 * 1024 * 1024;
  const still = await pair(t, server);
  const lively = await pair(t, server);
  lively.socket.pipe(lively.socket);
  let got = 0;
  still.socket.on('data', (chunk) => {
    got += chunk.length;
  });
  still.socket.pause();
  still.client.write(Buffer.alloc(size, 'x'));
  lively.client.write(Buffer.alloc(size, 'y'));
  assert.strictEqual((await take(lively.client, size)).length, size);
  assert.strictEqual(got, 0);
  assert.strictEqual(still.socket.isPaused(), true);
  still.socket.resume();
  await until(() => got === size, 'the rest');
});

test('pause in the midst of data, then all of it', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const sent = crypto.randomBytes(3 * 1024 * 1024);
  client.end(sent);
  const chunks = [];
  let pauses = 0;
  socket.on('data', (chunk) => {
    chunks.push(chunk);
    if (pauses++ % 7 === 0) {
      socket.pause();
      setTimeout(() => socket.resume(), 1);
    }
  });
  await event(socket, 'end');
  assert.ok(Buffer.concat(chunks).equals(sent));
});

test('allowHalfOpen and pauseOnConnect are properties of the server and its sockets', async (t) => {
  const plain = await tlsSite(t);
  assert.strictEqual(plain.allowHalfOpen, false);
  assert.strictEqual(plain.pauseOnConnect, false);
  const first = await pair(t, plain);
  assert.strictEqual(first.socket.allowHalfOpen, false);
  assert.strictEqual(first.socket.isPaused(), false);
  const server = await tlsSite(t, { allowHalfOpen: true, pauseOnConnect: true });
  assert.strictEqual(server.allowHalfOpen, true);
  assert.strictEqual(server.pauseOnConnect, true);
  const second = await pair(t, server);
  assert.strictEqual(second.socket.allowHalfOpen, true);
  assert.strictEqual(second.socket.isPaused(), true);
  second.client.end('after the pause');
  assert.strictEqual(String(await collect(second.socket)), 'after the pause');
});

test("half-open: the server answers after the client's end", async (t) => {
  const server = await tlsSite(t, { allowHalfOpen: true });
  const { client, socket } = await pair(t, server, { allowHalfOpen: true });
  socket.resume();
  client.end();
  await event(socket, 'end');
  assert.strictEqual(socket.writable, true);
  await pause(10);
  const answer = collect(client);
  socket.end(Buffer.alloc(300_000, 'z'));
  assert.strictEqual((await answer).length, 300_000);
});

test("not half-open: the client's end ends the server's side as well", async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const closed = event(socket, 'close');
  socket.resume();
  client.end('bye');
  const [hadError] = await closed;
  assert.strictEqual(hadError, false);
  assert.strictEqual(socket.writableEnded, true);
  assert.strictEqual(socket.destroyed, true);
  await event(client.resume(), 'close');
});

test('end of the server: all bytes, then end, then close', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const order = [];
  for (const name of ['end', 'close']) client.on(name, () => order.push(name));
  const all = collect(client);
  const done = new Promise((resolve) => {
    socket.end(Buffer.alloc(1_000_000, 1), resolve);
  });
  assert.strictEqual((await all).length, 1_000_000);
  await within(done, "end's callback");
  await event(client, 'close')
    .catch(() => {})
    .finally(() => {});
  assert.strictEqual(order[0], 'end');
});

test('destroySoon sends what was written', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  socket.write(Buffer.alloc(200_000, 'q'));
  socket.destroySoon();
  assert.strictEqual((await collect(client)).length, 200_000);
});

test('destroy closes both ends, and calls back what was not yet written', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const closed = event(socket, 'close');
  const written = new Promise((resolve) => {
    socket.write('x', resolve);
  });
  socket.destroy();
  assert.strictEqual(socket.destroyed, true);
  await closed;
  await within(written, "write's callback");
  await ended(client);
});

test('destroy with an error emits it, then close', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const order = [];
  socket.on('error', (error) => order.push(error.message));
  socket.on('close', (hadError) => order.push(hadError));
  socket.destroy(new Error('enough'));
  await until(() => order.length === 2, 'error and close');
  assert.deepStrictEqual(order, ['enough', true]);
  await ended(client);
});

test('write after end, write after destroy', async (t) => {
  const server = await tlsSite(t);
  const first = await pair(t, server);
  first.socket.end();
  const after = event(first.socket, 'error').catch((error) => [error]);
  first.socket.write('late');
  assert.strictEqual((await after)[0].code, 'ERR_STREAM_WRITE_AFTER_END');
  const second = await pair(t, server);
  second.socket.destroy();
  const refusal = await within(
    new Promise((resolve) => {
      second.socket.write('x', resolve);
    }),
    "write's callback",
  );
  assert.strictEqual(refusal.code, 'ERR_STREAM_DESTROYED');
});

test('a client that vanishes while the server writes', async (t) => {
  const server = await tlsSite(t, {}, (socket) => {
    socket.on('error', () => {});
    const more = () => {
      while (!socket.destroyed && socket.write(Buffer.alloc(65_536)));
      if (!socket.destroyed) socket.once('drain', more);
    };
    more();
  });
  const closed = event(server, 'secureConnection').then(
    ([socket]) =>
      new Promise((resolve) => {
        socket.once('close', resolve);
      }),
  );
  const client = await connected(t, server);
  await event(client, 'data');
  client.destroy();
  await within(closed, "the server's socket");
});

test('a client that resets: ECONNRESET, then close', { skip: noResets }, async (t) => {
  const server = await tlsSite(t);
  const raw = net.connect(server.address().port, '127.0.0.1').on('error', () => {});
  const { socket } = await pair(t, server, { socket: raw });
  const failed = new Promise((resolve) => {
    socket.once('error', resolve);
  });
  const closed = new Promise((resolve) => {
    socket.once('close', resolve);
  });
  socket.resume();
  raw.resetAndDestroy();
  const error = await within(failed, 'the reset');
  assert.strictEqual(error.code, 'ECONNRESET');
  assert.strictEqual(error.syscall, 'read');
  assert.strictEqual(await within(closed, 'close'), true);
});

test('a reset that nobody listens for does not end the process', { skip: noResets }, async (t) => {
  const server = await tlsSite(t);
  const raw = net.connect(server.address().port, '127.0.0.1').on('error', () => {});
  const { socket } = await pair(t, server, { socket: raw });
  const closed = new Promise((resolve) => {
    socket.once('close', resolve);
  });
  socket.resume();
  raw.resetAndDestroy();
  assert.strictEqual(await within(closed, 'close'), true);
});

test('clients that leave at once', async (t) => {
  const server = await tlsSite(t, {}, (socket) => socket.on('error', () => {}).resume());
  server.on('tlsClientError', () => {});
  for (let i = 0; i < 20; i += 1) {
    const client = connect(t, server);
    if (i % 2 === 0) client.destroy();
    else client.once('connect', () => client.destroy());
    await event(client, 'close');
  }
  const { socket } = await pair(t, server);
  assert.strictEqual(socket.encrypted, true);
});

test('back-pressure: write says false, drain comes, and nothing is lost', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  client.pause();
  const chunk = Buffer.alloc(64 * 1024, 'b');
  let written = 0;
  while (written < 64 * 1024 * 1024) {
    written += chunk.length;
    if (!socket.write(chunk)) break;
  }
  assert.ok(socket.writableNeedDrain, 'a reader that reads nothing stops the writer');
  let more = 0;
  const drained = (async () => {
    for (; more < 50; more += 1) {
      if (!socket.write(chunk)) await event(socket, 'drain');
    }
    socket.end();
  })();
  const got = await collect(client);
  await drained;
  assert.strictEqual(got.length, written + more * chunk.length);
});

test('bufferSize and writableLength go back to zero', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  client.resume();
  for (let i = 1; i < 10; i += 1) socket.write(Buffer.alloc(i * 1000));
  // Bytes that fit into the ring have left JavaScript at once.
  if (!isSealane) assert.ok(socket.writableLength > 0);
  assert.strictEqual(socket.bufferSize, socket.writableLength);
  await until(() => socket.writableLength === 0, 'the writes');
  assert.strictEqual(socket.bufferSize, 0);
});

test('bytesRead and bytesWritten', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  client.write(Buffer.alloc(100_000));
  await take(socket, 100_000);
  socket.end(Buffer.alloc(50_000));
  await collect(client);
  // node counts the bytes of TCP, Sealane the plaintext.
  assert.ok(socket.bytesRead >= 100_000, `${socket.bytesRead}`);
  assert.ok(socket.bytesWritten >= 50_000, `${socket.bytesWritten}`);
});

test('cork and uncork, many writes in a tick', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const chunks = Array.from({ length: 500 }, (_, i) => Buffer.from(`${i},`));
  socket.cork();
  for (const chunk of chunks) socket.write(chunk);
  process.nextTick(() => socket.uncork());
  const expected = Buffer.concat(chunks);
  assert.ok((await take(client, expected.length)).equals(expected));
});

test('callbacks of writes come in order', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  client.resume();
  const order = [];
  for (let i = 0; i < 50; i += 1) socket.write(Buffer.alloc(20_000), () => order.push(i));
  await until(() => order.length === 50, 'the callbacks');
  assert.deepStrictEqual(
    order,
    Array.from({ length: 50 }, (_, i) => i),
  );
});

test('both sides write at once', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const size = 4_000_000;
  const [up, down] = [crypto.randomBytes(size), crypto.randomBytes(size)];
  const [atServer, atClient] = [take(socket, size), take(client, size)];
  client.write(up);
  socket.write(down);
  assert.ok((await atServer).equals(up));
  assert.ok((await atClient).equals(down));
});

test('an idle timeout: setTimeout, its event, and no destruction by itself', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  assert.ok(!socket.timeout);
  const called = event(socket, 'timeout');
  assert.strictEqual(socket.setTimeout(50), socket);
  assert.strictEqual(socket.timeout, 50);
  await called;
  assert.strictEqual(socket.destroyed, false);
  socket.setTimeout(0);
  socket.end('after');
  assert.strictEqual(String(await collect(client)), 'after');
});

test('bytes put the idle timeout off', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  let timeouts = 0;
  socket.setTimeout(60_000, () => {
    timeouts += 1;
  });
  client.write('x');
  await event(socket, 'data');
  socket.setTimeout(0);
  assert.strictEqual(timeouts, 0);
});

test('setNoDelay, setKeepAlive, ref and unref give the socket back', async (t) => {
  const server = await tlsSite(t, { noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 });
  const { client, socket } = await pair(t, server);
  assert.strictEqual(socket.setNoDelay(false), socket);
  assert.strictEqual(socket.setNoDelay(), socket);
  assert.strictEqual(socket.setKeepAlive(true, 1000), socket);
  assert.strictEqual(socket.setKeepAlive(false), socket);
  assert.strictEqual(socket.unref(), socket);
  assert.strictEqual(socket.ref(), socket);
  socket.end('ok');
  assert.strictEqual(String(await collect(client)), 'ok');
});

test('setMaxSendFragment', async (t) => {
  const server = await tlsSite(t);
  const { socket } = await pair(t, server);
  differs({
    node() {
      assert.strictEqual(socket.setMaxSendFragment(16_384), true);
      assert.strictEqual(socket.setMaxSendFragment(511), false);
    },
    sealane() {
      assert.throws(() => socket.setMaxSendFragment(511), /smaller chunks/);
    },
  })();
});

test('addresses of both ends', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  assert.strictEqual(socket.remoteAddress, '127.0.0.1');
  assert.strictEqual(socket.remoteFamily, 'IPv4');
  assert.strictEqual(socket.remotePort, client.localPort);
  assert.strictEqual(socket.localAddress, '127.0.0.1');
  assert.strictEqual(socket.localPort, server.address().port);
  assert.strictEqual(socket.localFamily, 'IPv4');
  assert.deepStrictEqual(socket.address(), {
    address: '127.0.0.1',
    family: 'IPv4',
    port: server.address().port,
  });
  client.destroy();
  await ended(socket);
});

test('addresses of IPv6', { skip: onlyIPv6 }, async (t) => {
  const server = await tlsSite(t, {}, undefined, { host: '::1', port: 0 });
  const { socket } = await pair(t, server, { host: '::1' });
  assert.strictEqual(socket.remoteAddress, '::1');
  assert.strictEqual(socket.remoteFamily, 'IPv6');
  assert.strictEqual(server.address().family, 'IPv6');
});

test('what a socket is', async (t) => {
  const server = await tlsSite(t);
  const { socket } = await pair(t, server);
  assert.ok(socket instanceof Duplex);
  // Over a descriptor of the lane a connection is a net.Socket with the same getters.
  if (process.env.HANDOVER !== 'socket') assert.ok(socket instanceof TLSSocket);
  assert.strictEqual(socket.encrypted, true);
  assert.strictEqual(socket.connecting, false);
  assert.strictEqual(socket.pending, false);
  assert.strictEqual(socket.readyState, 'open');
  assert.strictEqual(socket.readable, true);
  assert.strictEqual(socket.writable, true);
  assert.strictEqual(socket.authorized, false);
  assert.strictEqual(socket.alpnProtocol, false);
  assert.strictEqual(typeof socket.getSession === 'function' || isSealane, true);
});

test('async iteration and stream.finished', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  client.end('some bytes');
  let got = '';
  for await (const chunk of socket) got += chunk;
  assert.strictEqual(got, 'some bytes');
  const second = await pair(t, server);
  const ended = finished(second.socket.resume());
  second.client.end();
  await within(ended, 'finished');
});

test("highWaterMark of the server is its sockets'", async (t) => {
  const server = await tlsSite(t, { highWaterMark: 1234 });
  const { socket } = await pair(t, server);
  // node has the option for its clients only.
  assert.strictEqual(socket.readableHighWaterMark, differs({ node: 16_384, sealane: 1234 }));
});

test("data that comes with the client's Finished is not lost", async (t) => {
  const server = await tlsSite(t, {}, echo);
  const client = connect(t, server);
  // Written before the handshake is done: it leaves with the client's last flight.
  client.end('early');
  assert.strictEqual(String(await collect(client)), 'early');
});

test('read by readable and read()', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const chunks = [];
  socket.on('readable', () => {
    for (let chunk = socket.read(); chunk !== null; chunk = socket.read()) chunks.push(chunk);
  });
  const sent = crypto.randomBytes(1_000_000);
  client.end(sent);
  await event(socket, 'end');
  assert.ok(Buffer.concat(chunks).equals(sent));
});

test('slices of what was read stay as they are', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  const kept = [];
  socket.on('data', (chunk) => kept.push(chunk));
  const sent = [];
  for (let i = 0; i < 200; i += 1) {
    sent.push(Buffer.alloc(10_000, i));
    client.write(sent.at(-1));
  }
  client.end();
  await event(socket, 'end');
  assert.ok(Buffer.concat(kept).equals(Buffer.concat(sent)));
});
