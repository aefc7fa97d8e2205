'use strict';

// All forms of `listen`.

const assert = require('node:assert/strict');
const net = require('node:net');
const { test } = require('node:test');
const { readListen } = require('../../lib/listen.js');

const done = () => {};
const where = (...args) => JSON.parse(JSON.stringify(readListen(args).where));

test('ports, hosts and backlogs stand in any of their places', () => {
  for (const args of [
    [],
    [null],
    [undefined],
    [done],
    [null, done],
    [0],
    ['0'],
    [{ port: null }],
  ]) {
    assert.equal(where(...args).port, 0, `${args.length} arguments`);
  }
  assert.deepEqual(where(8443), { port: 8443 });
  assert.deepEqual(where('8443', '::1', 5, done), { port: 8443, host: '::1', backlog: 5 });
  assert.deepEqual(where(8443, 5, done), { port: 8443, backlog: 5 });
  assert.deepEqual(where(8443, '', 5), { port: 8443, backlog: 5 });
  assert.deepEqual(where(8443, undefined, undefined, done), { port: 8443 });
  assert.equal(readListen([8443, done]).callback, done);
  assert.equal(readListen([8443]).callback, undefined);
});

test('paths are strings that are no numbers', () => {
  assert.deepEqual(where('/run/x.sock'), { path: '/run/x.sock' });
  assert.deepEqual(where('/run/x.sock', 7, done), { path: '/run/x.sock', backlog: 7 });
  const options = { path: '/run/x.sock', readableAll: true, writableAll: true };
  assert.deepEqual(where(options), { exclusive: false, path: '/run/x.sock', mode: 0o666 });
  assert.throws(() => where({ path: '\0x', readableAll: true }), { code: 'ERR_INVALID_ARG_VALUE' });
});

test('options say the same', () => {
  const { signal } = new AbortController();
  const options = {
    port: 1,
    host: 'localhost',
    backlog: 3,
    ipv6Only: true,
    reusePort: true,
    signal,
  };
  assert.deepEqual(where(options), {
    port: 1,
    host: 'localhost',
    backlog: 3,
    exclusive: false,
    ipv6Only: true,
    reusePort: true,
  });
  assert.equal(readListen([options]).signal, signal);
  assert.deepEqual(where({ fd: 3, port: 1 }, 9), { exclusive: false, fd: 3, backlog: 9 });
  assert.deepEqual(where({ port: 1, listenTextResolver: done, cb: done, host: undefined }), {
    port: 1,
    exclusive: false,
    ipv6Only: false,
    reusePort: false,
  });
});

test('what cannot be listened on throws as in node', () => {
  for (const port of [-1, 65_536, 1.5, 'a port of a kind', Number.NaN]) {
    const args = typeof port === 'string' ? [{ port }] : [port];
    assert.throws(() => net.createServer().listen(...args), { code: 'ERR_SOCKET_BAD_PORT' });
    assert.throws(() => where(...args), { name: 'RangeError', code: 'ERR_SOCKET_BAD_PORT' });
  }
  assert.throws(() => where({}), { code: 'ERR_INVALID_ARG_VALUE' });
  assert.throws(() => where({ fd: -1 }), { code: 'ERR_INVALID_ARG_VALUE' });
  assert.throws(() => where({ port: 0, signal: 'stop' }), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => where({ port: 0, host: 7 }), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('a handle throws, with what to give instead', (_t, end) => {
  const other = net.createServer().listen(0, '127.0.0.1', () => {
    for (const handle of [other, { handle: other._handle }]) {
      assert.throws(() => where(handle), { message: /give its descriptor as \{ fd \}/i });
    }
    other.close(end);
  });
});
