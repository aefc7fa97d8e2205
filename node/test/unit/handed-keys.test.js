'use strict';

// Private keys on their way to node's own TLS: in memory that is emptied as soon as node has them.

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { Duplex } = require('node:stream');
const { test } = require('node:test');
const tls = require('node:tls');
const { authority, leaf } = require('../certificates');
const { keyPem } = require('../../lib/credentials.js');

/** The values that node got for keys, with their bytes at that time. */
const given = new Map();
for (const name of ['createServer', 'createSecureContext']) {
  const original = tls[name];
  tls[name] = (options, ...rest) => {
    for (const key of options?.key ?? []) given.set(key, String(key));
    return original.call(tls, options, ...rest);
  };
}
// Looks at node's functions when it is loaded.
const { createTLSServer } = require('../..');

/** A connection in memory: one end reads the other's writes. */
function inMemory() {
  const ends = [0, 1].map(
    (i) =>
      new Duplex({
        read() {},
        write(chunk, _encoding, done) {
          ends[1 - i].push(chunk);
          done();
        },
      }),
  );
  return ends;
}

test('keys are emptied once node has them', async () => {
  const ca = authority('CA');
  for (const kind of ['p256', 'rsa']) {
    given.clear();
    const own = leaf(ca, 'localhost', { kind });
    const server = createTLSServer({ cert: own.cert, key: own.key });
    for (let i = 0; i < 2; i += 1) {
      const [below, other] = inMemory();
      server.emit('connection', below);
      const client = tls.connect({ ca: ca.cert, servername: 'localhost', socket: other });
      await new Promise((resolve, reject) => {
        client.once('secureConnect', resolve).once('error', reject);
      });
      client.destroy();
    }
    // The server's own context, and that of the name.
    assert.equal(given.size, 2);
    for (const [key, text] of given) {
      assert.match(text, /^-----BEGIN [A-Z ]*PRIVATE KEY-----/);
      assert.ok(Buffer.isBuffer(key) && key.every((byte) => byte === 0));
    }
  }
});

test('keys of every length are written as node writes them', () => {
  for (let length = 0; length < 200; length += 1) {
    const der = crypto.randomBytes(length);
    const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
    const text = ['-----BEGIN PRIVATE KEY-----', ...lines, '-----END PRIVATE KEY-----', ''];
    assert.equal(String(keyPem(der, 'pkcs8')), text.join('\n'));
  }
  const { privateKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const der = privateKey.export({ format: 'der', type: 'sec1' });
  const again = crypto.createPrivateKey(keyPem(der, 'sec1'));
  assert.ok(again.equals(privateKey));
});
