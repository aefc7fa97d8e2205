'use strict';

const assert = require('node:assert');
const { X509Certificate } = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const tls = require('node:tls');
const { Command, Event, Opening } = require('../../lib/message.js');
const { TLSSocket } = require('../../lib/socket.js');
const { pair, turn } = require('./lane-end.js');

const CERTIFICATES = path.join(__dirname, '../../../testdata/certificates');
const FILES = ['p256.crt', 'rsa.crt'];
const ID = { slot: 0, generation: 1 };

function opened(fields, options) {
  const all = pair(options);
  all.end.open(ID, fields);
  all.lane.drain();
  return { ...all, socket: all.told.sockets[0] };
}

test('a socket tells what was agreed on', () => {
  const { socket } = opened({
    flags: Opening.RESUMED,
    alpn: 'http/1.1',
    name: 'a.example',
    suite: 0xc02f,
    version: 0x0303,
    remotePort: 40000,
    localPort: 8443,
  });
  assert.equal(socket.encrypted, true);
  assert.equal(socket.alpnProtocol, 'http/1.1');
  assert.equal(socket.servername, 'a.example');
  assert.equal(socket.getProtocol(), 'TLSv1.2');
  assert.deepEqual(socket.getCipher(), {
    name: 'ECDHE-RSA-AES128-GCM-SHA256',
    standardName: 'TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256',
    version: 'TLSv1.2',
  });
  assert.equal(socket.isSessionReused(), true);
  assert.deepEqual([socket.authorized, socket.authorizationError], [false, null]);
  assert.deepEqual(
    [socket.remoteAddress, socket.remoteFamily, socket.remotePort],
    ['192.0.2.7', 'IPv4', 40000],
  );
  assert.deepEqual(socket.address(), { address: '127.0.0.1', family: 'IPv4', port: 8443 });
  assert.deepEqual(socket.getPeerCertificate(), {});
  assert.equal(socket.getPeerX509Certificate(), undefined);
  assert.equal(socket.getEphemeralKeyInfo(), null);
  assert.deepEqual([socket.readyState, socket.pending, socket.connecting], ['open', false, false]);
});

test('nothing agreed on is told as node tells it', () => {
  const { socket } = opened({ family: 0 });
  assert.deepEqual([socket.alpnProtocol, socket.servername], [false, false]);
  assert.deepEqual([socket.remoteAddress, socket.remotePort], [undefined, undefined]);
  assert.deepEqual(socket.address(), {});
});

test('addresses of IPv6 are written as everywhere', () => {
  const cases = {
    '::': Array(16).fill(0),
    '::1': [...Array(15).fill(0), 1],
    '::ffff:192.0.2.1': [...Array(10).fill(0), 255, 255, 192, 0, 2, 1],
    '2001:db8::1:0:0:1': [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1],
    '2001:db8:0:1:1:1:1:1': [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
    'fe80::': [0xfe, 0x80, ...Array(14).fill(0)],
  };
  for (const [text, remote] of Object.entries(cases)) {
    const { socket } = opened({ family: 6, remote });
    assert.equal(socket.remoteAddress, text);
    assert.equal(socket.remoteFamily, 'IPv6');
  }
});

test("a client's certificate, and who issued it", () => {
  const [first, second] = FILES.map(
    (name) => new X509Certificate(fs.readFileSync(path.join(CERTIFICATES, name))),
  );
  const chain = [first.raw, second.raw];
  const error = 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY';
  const { socket } = opened({ flags: Opening.ASKED, name: 'x', error, chain });
  assert.equal(socket.authorized, false);
  assert.equal(socket.authorizationError, error);
  assert.equal(socket.getPeerCertificate().fingerprint256, first.fingerprint256);
  assert.equal(socket.getPeerCertificate().issuerCertificate, undefined);
  const { issuerCertificate } = socket.getPeerCertificate(true);
  assert.equal(issuerCertificate.fingerprint256, second.fingerprint256);
  assert.equal(socket.getPeerX509Certificate().fingerprint256, first.fingerprint256);
});

test('what is not offered says why, and what to do instead', () => {
  const { socket } = opened();
  for (const name of ['renegotiate', 'exportKeyingMaterial', 'getFinished', 'enableTrace']) {
    assert.throws(() => socket[name](), {
      code: 'ERR_SEALANE_NOT_OFFERED',
      message: new RegExp(`^TLSSocket.${name} is not offered: .+; .+`),
    });
  }
  assert.throws(() => new TLSSocket(), { code: 'ERR_ILLEGAL_CONSTRUCTOR' });
});

test("every method and getter of node's socket is there", () => {
  const { socket } = opened();
  const own = Object.getOwnPropertyNames(tls.TLSSocket.prototype);
  const missing = own.filter((name) => !name.startsWith('_') && !(name in socket));
  assert.deepEqual(
    missing.filter((name) => name !== 'ssl'),
    [],
  );
});

test('idle sockets time out once, and again after they were used', async () => {
  const { socket } = opened();
  let timeouts = 0;
  socket.on('timeout', () => (timeouts += 1));
  const alive = setInterval(() => {}, 1000);
  assert.equal(socket.setTimeout(5), socket);
  assert.equal(socket.timeout, 5);
  await once(socket, 'timeout');
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(timeouts, 1);
  socket.write('x');
  await once(socket, 'timeout');
  assert.equal(timeouts, 2);
  socket.setTimeout(1, () => assert.fail('it was turned off'));
  socket.setTimeout(0);
  await new Promise((resolve) => setTimeout(resolve, 20));
  clearInterval(alive);
  assert.equal(timeouts, 2);
  assert.throws(() => socket.setTimeout('5'), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => socket.setTimeout(-1), { code: 'ERR_OUT_OF_RANGE' });
  assert.throws(() => socket.setTimeout(5, 'x'), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('a shorter timeout takes the place of a longer one', async () => {
  const { socket } = opened();
  const alive = setTimeout(() => assert.fail('it waited for the longer one'), 30_000);
  socket.setTimeout(60_000);
  socket.setTimeout(5);
  await once(socket, 'timeout');
  clearTimeout(alive);
});

test('options go to the lane', async () => {
  const { end, socket } = opened();
  socket.setNoDelay();
  socket.setNoDelay(false);
  socket.setKeepAlive(true, 2500);
  socket.setKeepAlive(false);
  await turn();
  const told = end.all().filter(({ kind }) => kind === Command.OPTION);
  assert.deepEqual(
    told.map(({ payload }) => [payload.readUInt32LE(0), payload.readUInt32LE(4)]),
    [
      [1, 1],
      [1, 0],
      [2, 3],
      [2, 0],
    ],
  );
});

test('writing after the client has ended is its doing', async () => {
  const { end, lane, socket } = opened();
  socket.resume();
  end.send(Event.END, ID);
  lane.drain();
  socket.once('end', () => {
    socket.end();
    socket.write('late', (error) => assert.equal(error.code, 'EPIPE'));
  });
  const [error] = await once(socket, 'error');
  assert.equal(error.message, 'This socket has been ended by the other party');
});
