'use strict';

// The table of options: what is the same, converted, refused; and that all mistakes are told.

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { test } = require('node:test');
const { CALLS, OPTIONS, defaultLanes, meaning, readOptions } = require('../../lib/options.js');

const CERTIFICATES = path.join(__dirname, '../../../testdata/certificates');
const pem = (name) => fs.readFileSync(path.join(CERTIFICATES, name));

const cert = pem('p256.crt');
const key = pem('p256.pkcs8.key');

const read = (options, on = CALLS.createServer) => readOptions(options, on);
const meant = (options) => meaning(read(options).context);

test('an unknown option throws, with its name and the one that was meant', () => {
  assert.throws(() => read({ alpnProtocols: ['h2'] }), {
    name: 'TypeError',
    code: 'ERR_INVALID_ARG_VALUE',
    option: 'options.alpnProtocols',
    message: /did you mean ALPNProtocols\?/i,
  });
  assert.throws(() => read({ constructor: 1 }), { option: 'options.constructor' });
});

test('options that are not given are no mistake, whatever their name', () => {
  read({ pfx: undefined, nonsense: undefined, cert: null });
  read(undefined);
  read({ enableTrace: false, secureOptions: 0 });
});

test('all mistakes of a call are told at once', () => {
  const options = { threads: 4, minVersion: 'TLSv1', lanes: 0, requestCert: 'yes' };
  assert.throws(
    () => read(options),
    (error) => {
      const found = error.errors.map((one) => one.option);
      assert.deepEqual(
        found,
        Object.keys(options).map((name) => `options.${name}`),
      );
      return found.every((option) => error.message.includes(option));
    },
  );
});

test('each refused option throws with its reason and what to do instead', () => {
  const refused = Object.entries(OPTIONS).filter(([, row]) => row.how === 'refused');
  for (const [name, row] of refused) {
    assert.throws(() => read({ [name]: 'x' }), {
      code: 'ERR_INVALID_ARG_VALUE',
      option: `options.${name}`,
      reason: row.refused,
      alternative: row.instead,
    });
    assert.ok(row.instead, `${name} has no alternative`);
  }
  const names = refused.map(([name]) => name);
  for (const name of [
    'pskCallback',
    'dhparam',
    'secureOptions',
    'pfx',
    'ALPNCallback',
    'threads',
  ]) {
    assert.ok(names.includes(name), name);
  }
});

test('an option in the wrong call throws, and says where it belongs', () => {
  assert.throws(() => read({ keepAliveTimeout: 1 }, CALLS.createTLSServer), {
    message: /is no option of createTLSServer\. Give it to createServer, or to the http\.Server/,
  });
  assert.throws(() => read({ port: 443 }), { message: /Give it to listen/ });
  assert.throws(() => read({ requestCert: true }, CALLS.createSecureContext), {
    message: /once for all names/,
  });
});

test('no message shows a key', () => {
  for (const options of [{ handover: key.toString() }, { lanes: key }, { ciphers: `${key}` }]) {
    assert.throws(
      () => read(options),
      (error) => !error.message.includes(key.toString().split('\n')[1]),
    );
  }
});

test('ciphers are taken by the names of OpenSSL and of IANA', () => {
  const { suites, minVersion } = meant({
    ciphers: 'ECDHE-RSA-AES128-GCM-SHA256:TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256',
  });
  assert.deepEqual(suites, [
    'TLS_AES_256_GCM_SHA384',
    'TLS_CHACHA20_POLY1305_SHA256',
    'TLS_AES_128_GCM_SHA256',
    'TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256',
    'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256',
  ]);
  assert.equal(minVersion, 'TLSv1.2');
  assert.deepEqual(
    meant({ ciphers: 'TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256' }).suites,
    ['TLS_AES_128_GCM_SHA256', 'TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256'],
  );
});

test('ciphers of TLS 1.3 alone mean TLS 1.3 alone, as in node', () => {
  const { suites, minVersion } = meant({ ciphers: 'TLS_AES_128_GCM_SHA256' });
  assert.deepEqual([suites, minVersion], [['TLS_AES_128_GCM_SHA256'], 'TLSv1.3']);
  assert.throws(() => read({ ciphers: 'TLS_AES_128_GCM_SHA256', maxVersion: 'TLSv1.2' }), {
    option: 'options.ciphers',
  });
});

test('filters over OpenSSL suites throw with what is offered', () => {
  for (const ciphers of [
    'HIGH',
    'ECDHE-RSA-AES128-GCM-SHA256:!aNULL',
    '@SECLEVEL=1',
    'AES128-SHA',
  ]) {
    assert.throws(() => read({ ciphers }), {
      option: 'options.ciphers',
      message: /ECDHE-ECDSA-CHACHA20-POLY1305/,
    });
  }
  assert.throws(() => read({ ciphers: ':' }), { option: 'options.ciphers' });
});

test('curves and schemes are taken by both names', () => {
  assert.deepEqual(meant({ ecdhCurve: 'P-256:X25519' }).groups, ['secp256r1', 'x25519']);
  assert.deepEqual(meant({ groups: 'prime256v1' }).groups, ['secp256r1']);
  assert.equal(meant({ ecdhCurve: 'auto' }).groups, undefined);
  assert.throws(() => read({ ecdhCurve: 'P-521' }), { message: /'P-521', which is not offered/ });
  assert.deepEqual(meant({ sigalgs: 'RSA-PSS+SHA256:ed25519' }).schemes, [
    'rsa_pss_rsae_sha256',
    'ed25519',
  ]);
});

test('versions below 1.2 and in the wrong order throw', () => {
  for (const minVersion of ['TLSv1', 'TLSv1.1', 'SSLv3', '1.2']) {
    assert.throws(() => read({ minVersion }), { option: 'options.minVersion' });
  }
  assert.throws(() => read({ minVersion: 'TLSv1.3', maxVersion: 'TLSv1.2' }), {
    option: 'options.minVersion',
  });
  assert.equal(meant({ minVersion: 'TLSv1.3' }).maxVersion, 'TLSv1.3');
});

test('ALPNProtocols are taken as a list and as they are sent', () => {
  const protocols = (value) => read({ ALPNProtocols: value }).server.ALPNProtocols;
  assert.deepEqual(protocols(['h2', 'http/1.1']), ['h2', 'http/1.1']);
  assert.deepEqual(protocols([Buffer.from('h2')]), ['h2']);
  assert.deepEqual(protocols(Buffer.from('\x02h2\x08http/1.1')), ['h2', 'http/1.1']);
  assert.deepEqual(protocols([]), []);
  assert.throws(() => protocols(Buffer.from('\x05h2')), { option: 'options.ALPNProtocols' });
  assert.throws(() => protocols(['']), { code: 'ERR_OUT_OF_RANGE' });
  assert.throws(() => protocols('h2'), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('keys are taken as strings, Buffers, lists and objects, and decrypted', () => {
  const passphrase = 'open';
  const plain = crypto.createPrivateKey(key);
  const encrypted = plain.export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase,
  });
  const traditional = plain.export({ type: 'sec1', format: 'pem', cipher: 'aes128', passphrase });
  const forms = [
    { key },
    { key: key.toString() },
    { key: [key] },
    { key: plain },
    { key: [{ pem: key }] },
    { key: encrypted, passphrase },
    { key: traditional, passphrase },
    { key: [{ pem: encrypted, passphrase }], passphrase: 'of the others' },
  ];
  for (const form of forms) {
    const [got] = meant({ cert, ...form }).key;
    assert.ok(crypto.createPrivateKey(got).equals(plain));
  }
  assert.throws(() => read({ cert, key: encrypted }), {
    message: /is encrypted\. Give its passphr/,
  });
  assert.throws(() => read({ cert, key: encrypted, passphrase: 'wrong' }), {
    message: /cannot be decrypted with its passphrase/,
  });
  assert.throws(() => read({ cert, key: 7 }), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => read({ cert }), { option: 'options.cert' });
});

test('ticket keys are one or several of 48 bytes', () => {
  const keys = (value) => read({ ticketKeys: value }).tickets.ticketKeys;
  assert.deepEqual(keys(Buffer.alloc(48, 1)), [Buffer.alloc(48, 1)]);
  assert.equal(keys([Buffer.alloc(48), Buffer.alloc(48)]).length, 2);
  assert.throws(() => keys(Buffer.alloc(47)), {
    message: /has 47 bytes\. Session ticket keys must be a 48-byte buffer/,
  });
  assert.throws(() => keys([]), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => keys(Array(9).fill(Buffer.alloc(48))), { code: 'ERR_OUT_OF_RANGE' });
  assert.throws(() => keys('x'.repeat(48)), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('numbers have their ranges', () => {
  for (const options of [
    { handshakeTimeout: 0 },
    { lanes: 1.5 },
    { lanes: 100_000 },
    { maxPending: 0 },
    { sessionTimeout: -1 },
    { shutdownTimeout: Number.POSITIVE_INFINITY },
  ]) {
    assert.throws(() => read(options), { code: 'ERR_OUT_OF_RANGE' });
  }
  assert.ok(defaultLanes() >= 1);
});

test('options of HTTP are left to http.Server', () => {
  assert.deepEqual(read({ keepAliveTimeout: 7, maxHeaderSize: 9 }).http, {
    keepAliveTimeout: 7,
    maxHeaderSize: 9,
  });
});

test('a block list must be one', () => {
  read({ blockList: new net.BlockList() });
  assert.throws(() => read({ blockList: ['::1'] }), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('an issuer that only ca holds is sent with the certificate', () => {
  const chain = meant({ cert, key, ca: [cert] }).cert;
  assert.deepEqual(chain, [cert], 'a certificate is no issuer of itself');
});
