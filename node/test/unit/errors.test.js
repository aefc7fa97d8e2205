'use strict';

// Errors look as node's own do.

const assert = require('node:assert/strict');
const net = require('node:net');
const { test } = require('node:test');
const { handshakeError, listenError } = require('../../lib/errors.js');
const { asServerName } = require('../../lib/context.js');
const { TARGETS, load } = require('../../lib/native.js');

test('a refused listen tells what node tells', async () => {
  const first = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => first.once('listening', resolve));
  const { port } = first.address();
  const second = net.createServer().listen(port, '127.0.0.1');
  const nodes = await new Promise((resolve) => second.once('error', resolve));
  first.close();

  const raw = Object.assign(new Error('x'), { errno: nodes.errno, syscall: 'listen' });
  const ours = listenError(raw, '127.0.0.1', port);
  assert.equal(ours.message, nodes.message);
  assert.deepEqual({ ...ours }, { ...nodes });
});

test('a refused listen on any port names none, and what is no system error stays', () => {
  const raw = Object.assign(new Error('x'), { errno: -99, syscall: 'listen' });
  const error = listenError(raw, '192.0.2.1', 0);
  assert.match(error.message, /^listen EADDRNOTAVAIL: .* 192\.0\.2\.1$/);
  assert.equal('port' in error, false);
  const said = Object.assign(new Error('listen ERR_X: why'), { code: 'ERR_X' });
  assert.equal(listenError(said, '/a/path', undefined), said);
});

test('a failed handshake has the code that node has for it', () => {
  const failed = { remoteAddress: '::1', remotePort: 7, message: 'why' };
  const error = handshakeError({ ...failed, label: 'plain_http' });
  assert.equal(error.code, 'ERR_SSL_HTTP_REQUEST');
  assert.equal(error.reason, 'plain_http');
  assert.equal(error.message, 'why');
  assert.equal(error.remotePort, 7);
  assert.equal(handshakeError({ ...failed, label: 'client_gone' }).message, 'socket hang up');
  const junk = handshakeError({ ...failed, label: 'not_tls' });
  assert.equal(junk.code, 'ERR_SSL_WRONG_VERSION_NUMBER');
  assert.match(junk.message, /SSL routines:[^:]*:wrong version number: the client speaks/);
  const other = handshakeError({ label: 'handshake_failed', message: '' });
  assert.deepEqual([other.code, other.message], ['ERR_SSL_HANDSHAKE_FAILURE', 'handshake failed']);
});

test('server names are taken as clients send them', () => {
  assert.equal(asServerName('A.Example'), 'a.example');
  assert.equal(asServerName('*.bücher.example.'), '*.xn--bcher-kva.example');
  for (const wrong of ['*', 'a*.example', '*.*.example', '127.0.0.1', 'a b']) {
    assert.throws(() => asServerName(wrong), { code: 'ERR_INVALID_ARG_VALUE' }, wrong);
  }
  assert.throws(() => asServerName(/a/), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('a target without a binary gets advice that works there', () => {
  const on = { platform: 'sunos', arch: 'x64', libc: '', load: () => assert.fail('loads') };
  assert.throws(() => load(on), { code: 'ERR_SEALANE_TARGET', target: 'sunos-x64' });
  assert.throws(() => load(on), { message: /linux-arm64-musl.*node's own https/ });
  // It refuses there.
  assert.throws(
    () => load(on),
    ({ message }) => !message.includes('node/build'),
  );
});

test('a binary that is missing is told with where it was looked for', () => {
  const tried = [];
  const on = {
    platform: 'linux',
    arch: 'arm64',
    libc: 'musl',
    load: (from) => {
      tried.push(from);
      throw new Error('not found\nRequire stack: much');
    },
  };
  assert.throws(() => load(on), { code: 'ERR_SEALANE_BINARY', target: 'linux-arm64-musl' });
  assert.throws(
    () => load(on),
    (error) => !error.message.includes('Require stack'),
  );
  assert.match(tried[0], /sealane\.linux-arm64-musl\.node$/);
  assert.equal(tried[1], '@sealane/linux-arm64-musl');
  assert.equal(load({ ...on, load: (from) => from }), tried[0]);
  assert.ok(TARGETS.includes('linux-x64-gnu'));
});
