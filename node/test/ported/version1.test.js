'use strict';

// Certificates of X.509 version 1, as `openssl x509 -req -signkey` of OpenSSL 3.0 makes them, and
// as node's own tests serve them (fixtures/keys/agent2-cert.pem among others).

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');

const { onlySealane } = require('../implementation');
const { own, pair, tlsSite } = require('../site');

const FOLDER = path.join(__dirname, '../../../testdata/certificates');
const read = (name) => fs.readFileSync(path.join(FOLDER, name), 'utf8');
const KINDS = ['p256', 'rsa'].map((kind) => ({
  cert: read(`version1-${kind}.crt`),
  key: read(`${kind}.pkcs8.key`),
}));
const anybody = { rejectUnauthorized: false };

for (const version of ['TLSv1.2', 'TLSv1.3']) {
  const only = { minVersion: version, maxVersion: version };
  for (const [index, kind] of KINDS.entries()) {
    test(`${version}, ${index}: served from the start, and by a change as it runs`, async (t) => {
      const server = await tlsSite(t, kind);
      const first = await pair(t, server, { ...only, ...anybody });
      assert.strictEqual(first.client.getPeerCertificate().subject.CN, 'version1.test');
      const other = await tlsSite(t, own);
      other.setSecureContext(kind);
      const second = await pair(t, other, { ...only, ...anybody });
      assert.strictEqual(second.client.getPeerCertificate().subject.CN, 'version1.test');
    });
  }
}

test('a key that cannot be used changes nothing', { skip: onlySealane }, async (t) => {
  const server = await tlsSite(t, own);
  const [p256] = KINDS;
  // The private half, and not the public one.
  const der = Buffer.from(p256.key.replace(/-----.*-----|\s/g, ''), 'base64');
  der.fill(0, 36, 68);
  const key = `-----BEGIN PRIVATE KEY-----\n${der.toString('base64')}\n-----END PRIVATE KEY-----\n`;
  assert.throws(() => server.setSecureContext({ cert: p256.cert, key }), /private key/);
  const { client } = await pair(t, server, anybody);
  assert.strictEqual(client.getPeerCertificate().subject.CN, 'localhost');
});
