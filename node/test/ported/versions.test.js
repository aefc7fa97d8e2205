'use strict';

// Versions, cipher suites, groups, signature schemes, and a socket's properties about them. After
// test-tls-min-max-version, test-tls-set-ciphers*, test-tls-honorcipherorder, test-tls-getcipher,
// test-tls-getprotocol, test-tls-ecdh*, test-tls-set-sigalgs, test-tls-client-getephemeralkeyinfo,
// test-tls-exportkeyingmaterial, test-tls-basic-validations, test-tls-no-sslv3, test-tls-dhe,
// test-tls-client-mindhsize.

const assert = require('node:assert');
const { constants } = require('node:crypto');
const { test } = require('node:test');
const tls = require('node:tls');

const { leaf } = require('../certificates');
const {
  createSecureContext,
  createServer,
  createTLSServer,
  differs,
  isSealane,
} = require('../implementation');
const { ca, connected, own, pair, refused, tlsSite } = require('../site');
const { event } = require('../within');

test('the version that both speak', async (t) => {
  for (const [server, client, expected] of [
    [{}, {}, 'TLSv1.3'],
    [{}, { maxVersion: 'TLSv1.2' }, 'TLSv1.2'],
    [{ maxVersion: 'TLSv1.2' }, {}, 'TLSv1.2'],
    [{ minVersion: 'TLSv1.3' }, {}, 'TLSv1.3'],
    [{ minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' }, {}, 'TLSv1.2'],
    [{ secureProtocol: 'TLSv1_2_method' }, {}, 'TLSv1.2'],
  ]) {
    if (server.secureProtocol && isSealane) continue;
    const site = await tlsSite(t, server);
    const ends = await pair(t, site, client);
    assert.strictEqual(ends.socket.getProtocol(), expected);
    assert.strictEqual(ends.client.getProtocol(), expected);
  }
});

test('no version in common', async (t) => {
  for (const [server, client] of [
    [{ minVersion: 'TLSv1.3' }, { maxVersion: 'TLSv1.2' }],
    [{ maxVersion: 'TLSv1.2' }, { minVersion: 'TLSv1.3' }],
    [{}, { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' }],
  ]) {
    const site = await tlsSite(t, server);
    site.on('secureConnection', () => assert.fail('there is no version in common'));
    const failed = event(site, 'tlsClientError');
    const error = await refused(t, site, client);
    assert.ok(error instanceof Error);
    const [said] = await failed;
    assert.ok(said instanceof Error);
  }
});

test('versions that are none, or that do not fit together', () => {
  const code = differs({
    node: 'ERR_TLS_INVALID_PROTOCOL_VERSION',
    sealane: 'ERR_INVALID_ARG_VALUE',
  });
  for (const make of [createSecureContext, createTLSServer, createServer]) {
    for (const name of ['minVersion', 'maxVersion']) {
      assert.throws(() => make({ ...own, [name]: 'fhqwhgads' }), { code, name: 'TypeError' });
    }
  }
  // A range that holds nothing is an error of ours; node finds it at the first handshake.
  const empty = () => createTLSServer({ ...own, minVersion: 'TLSv1.3', maxVersion: 'TLSv1.2' });
  differs({ node: () => assert.ok(empty()), sealane: () => assert.throws(empty) })();
});

test('TLS 1.1 and older are not offered', () => {
  for (const minVersion of ['TLSv1', 'TLSv1.1']) {
    const make = () => createTLSServer({ ...own, minVersion });
    differs({ node: () => assert.ok(make()), sealane: () => assert.throws(make, /TLSv1\.2/) })();
  }
});

const SUITES = [
  ['TLSv1.3', 'TLS_AES_128_GCM_SHA256', 'TLS_AES_128_GCM_SHA256', 'p256'],
  ['TLSv1.3', 'TLS_AES_256_GCM_SHA384', 'TLS_AES_256_GCM_SHA384', 'p256'],
  ['TLSv1.3', 'TLS_CHACHA20_POLY1305_SHA256', 'TLS_CHACHA20_POLY1305_SHA256', 'p256'],
  ['TLSv1.2', 'ECDHE-ECDSA-AES128-GCM-SHA256', 'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256', 'p256'],
  ['TLSv1.2', 'ECDHE-ECDSA-AES256-GCM-SHA384', 'TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384', 'p256'],
  [
    'TLSv1.2',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
    'TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256',
    'p256',
  ],
  ['TLSv1.2', 'ECDHE-RSA-AES128-GCM-SHA256', 'TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256', 'rsa'],
  ['TLSv1.2', 'ECDHE-RSA-AES256-GCM-SHA384', 'TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384', 'rsa'],
  ['TLSv1.2', 'ECDHE-RSA-CHACHA20-POLY1305', 'TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256', 'rsa'],
];

test('each suite by its name, on the server alone; getCipher tells it as node does', async (t) => {
  const made = { p256: own, rsa: leaf(ca, 'localhost', { kind: 'rsa' }) };
  for (const [version, name, standardName, kind] of SUITES) {
    const { cert, key } = made[kind];
    const server = await tlsSite(t, { cert, key, ciphers: name });
    const { client, socket } = await pair(t, server, { minVersion: version, maxVersion: version });
    const expected = { name, standardName, version };
    assert.deepStrictEqual(client.getCipher(), expected);
    assert.deepStrictEqual(socket.getCipher(), expected);
  }
});

test('suites of TLS 1.3 and 1.2 in one list', async (t) => {
  const ciphers = 'TLS_AES_128_GCM_SHA256:ECDHE-ECDSA-AES256-GCM-SHA384';
  const server = await tlsSite(t, { ciphers });
  for (const [maxVersion, name] of [
    ['TLSv1.3', 'TLS_AES_128_GCM_SHA256'],
    ['TLSv1.2', 'ECDHE-ECDSA-AES256-GCM-SHA384'],
  ]) {
    const { socket } = await pair(t, server, { maxVersion });
    assert.strictEqual(socket.getCipher().name, name);
  }
});

test('no suite in common', async (t) => {
  const server = await tlsSite(t, { ciphers: 'ECDHE-ECDSA-AES256-GCM-SHA384' });
  const failed = event(server, 'tlsClientError');
  const error = await refused(t, server, {
    ciphers: 'ECDHE-ECDSA-AES128-GCM-SHA256',
    maxVersion: 'TLSv1.2',
  });
  assert.match(error.code, /HANDSHAKE_FAILURE|ECONNRESET/);
  await failed;
});

test("honorCipherOrder: the server's order, unless it is false", async (t) => {
  const suites = ['ECDHE-ECDSA-AES256-GCM-SHA384', 'ECDHE-ECDSA-AES128-GCM-SHA256'];
  const ciphers = suites.join(':');
  const client = {
    ciphers: suites.toReversed?.().join(':') ?? suites.slice().reverse().join(':'),
    maxVersion: 'TLSv1.2',
  };
  for (const [honorCipherOrder, expected] of [
    [true, suites[0]],
    [undefined, suites[0]],
    [false, suites[1]],
  ]) {
    const server = await tlsSite(t, { ciphers, honorCipherOrder });
    const { socket } = await pair(t, server, client);
    assert.strictEqual(socket.getCipher().name, expected, String(honorCipherOrder));
  }
});

test('names of suites that are none', () => {
  for (const ciphers of ['no-such-cipher', 'FOO:BAR']) {
    assert.throws(() => createTLSServer({ ...own, ciphers }), /cipher/i);
  }
  for (const ciphers of [1, true, {}, []]) {
    assert.throws(() => createTLSServer({ ...own, ciphers }), {
      code: 'ERR_INVALID_ARG_TYPE',
      message: /options\.ciphers/,
    });
    assert.throws(() => createSecureContext({ ciphers }), { code: 'ERR_INVALID_ARG_TYPE' });
  }
});

test("OpenSSL's language for lists of suites", async (t) => {
  for (const [ciphers, name] of [
    [tls.DEFAULT_CIPHERS, 'ECDHE-ECDSA-AES128-GCM-SHA256'],
    ['HIGH:!aNULL:!MD5:!AES128:!AESCCM', 'ECDHE-ECDSA-AES256-GCM-SHA384'],
    ['AES128-SHA:ECDHE+CHACHA20:@STRENGTH', 'ECDHE-ECDSA-CHACHA20-POLY1305'],
  ]) {
    const server = await tlsSite(t, { ciphers, maxVersion: 'TLSv1.2' });
    const { socket } = await pair(t, server);
    assert.strictEqual(socket.getCipher().name, name, ciphers);
  }
  for (const ciphers of ['aes256-sha-none', 'FOOBARBAZ']) {
    assert.throws(() => createTLSServer({ ...own, ciphers }), /no[_ ]cipher[_ ]match/i);
  }
});

test('secureProtocol and secureOptions', async (t) => {
  const { SSL_OP_NO_TICKET, SSL_OP_NO_TLSv1_3 } = constants;
  for (const [options, version, resumes] of [
    [{ secureProtocol: 'TLSv1_2_method' }, 'TLSv1.2', true],
    [{ secureProtocol: 'TLS_method' }, 'TLSv1.3', true],
    [{ secureOptions: SSL_OP_NO_TLSv1_3 }, 'TLSv1.2', true],
    [{ secureOptions: SSL_OP_NO_TLSv1_3 | SSL_OP_NO_TICKET }, 'TLSv1.2', false],
  ]) {
    const server = await tlsSite(t, options);
    const { client } = await pair(t, server);
    assert.strictEqual(client.getProtocol(), version);
    // In TLS 1.2 it has come with the handshake.
    if (version === 'TLSv1.2') assert.strictEqual(client.getTLSTicket() !== undefined, resumes);
  }
  assert.throws(
    () => createTLSServer({ ...own, secureProtocol: 'TLSv1_2_method', minVersion: 'TLSv1.2' }),
    { code: 'ERR_TLS_PROTOCOL_VERSION_CONFLICT' },
  );
});

test('ecdhCurve: a group, a list of groups, auto', async (t) => {
  // In TLS 1.2 the client's groups are also the curves of keys that it takes: so not an EC key.
  const { cert, key } = leaf(ca, 'localhost', { kind: 'rsa' });
  for (const [ecdhCurve, client, name, size] of [
    ['prime256v1', {}, 'prime256v1', 256],
    ['secp384r1', {}, 'secp384r1', 384],
    ['X25519', {}, 'X25519', 253],
    ['P-256:P-384', { ecdhCurve: 'P-384' }, 'secp384r1', 384],
    ['P-521:P-256', { ecdhCurve: 'P-256' }, 'prime256v1', 256],
    ['auto', { ecdhCurve: 'P-256' }, 'prime256v1', 256],
  ]) {
    const server = await tlsSite(t, { cert, key, ecdhCurve, maxVersion: 'TLSv1.2' });
    const ends = await pair(t, server, client);
    assert.deepStrictEqual(ends.client.getEphemeralKeyInfo(), { type: 'ECDH', name, size });
    // A server asks in vain, as in node.
    assert.strictEqual(ends.socket.getEphemeralKeyInfo(), null);
  }
});

test('no group in common', async (t) => {
  const server = await tlsSite(t, { ecdhCurve: 'P-256' });
  const failed = event(server, 'tlsClientError');
  await refused(t, server, { ecdhCurve: 'P-384' });
  await failed;
});

test('groups that are none', () => {
  assert.throws(() => createTLSServer({ ...own, ecdhCurve: 1 }), {
    code: 'ERR_INVALID_ARG_TYPE',
    message: /options\.ecdhCurve/,
  });
  assert.throws(() => createTLSServer({ ...own, ecdhCurve: 'no-such-curve' }), /ecdhCurve|ECDH/i);
});

test('sigalgs: what the server signs with', async (t) => {
  const rsa = leaf(ca, 'localhost', { kind: 'rsa' });
  const options = { cert: rsa.cert, key: rsa.key, sigalgs: 'RSA-PSS+SHA512:RSA-PSS+SHA384' };
  const server = await tlsSite(t, options);
  await connected(t, server, { sigalgs: 'RSA-PSS+SHA384' });
  const failed = event(server, 'tlsClientError');
  await refused(t, server, { sigalgs: 'RSA-PSS+SHA256' });
  await failed;
  assert.throws(() => createTLSServer({ ...own, sigalgs: 1 }), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => createTLSServer({ ...own, sigalgs: '' }), { code: 'ERR_INVALID_ARG_VALUE' });
});

test('exportKeyingMaterial', async (t) => {
  const server = await tlsSite(t);
  const { client, socket } = await pair(t, server);
  if (isSealane) {
    // The secrets of a session do not leave its lane.
    assert.throws(() => socket.exportKeyingMaterial(128, 'a label'), {
      code: 'ERR_SEALANE_NOT_OFFERED',
    });
    return;
  }
  const context = Buffer.from([0, 1, 2, 3]);
  for (const rest of [['a label'], ['a label', context], ['a label', Buffer.alloc(0)]]) {
    const mine = socket.exportKeyingMaterial(128, ...rest);
    assert.strictEqual(mine.length, 128);
    assert.deepStrictEqual(mine, client.exportKeyingMaterial(128, ...rest));
  }
});

test('renegotiation: there is none', async (t) => {
  const server = await tlsSite(t);
  const { socket } = await pair(t, server);
  if (isSealane) {
    assert.throws(() => socket.renegotiate({}, () => {}), /renegotiat/i);
    return;
  }
  const refusal = await new Promise((resolve) => {
    socket.once('error', resolve);
    socket.renegotiate({}, (error) => resolve(error));
  });
  assert.ok(refusal instanceof Error);
});

test('what is refused as an option says its type', () => {
  for (const [name, wrong] of [
    ['handshakeTimeout', 'abcd'],
    ['sessionTimeout', 'abcd'],
    ['ticketKeys', 'abcd'],
    ['ecdhCurve', 1],
    ['ciphers', 1],
  ]) {
    assert.throws(() => createTLSServer({ ...own, [name]: wrong }), {
      code: 'ERR_INVALID_ARG_TYPE',
      name: 'TypeError',
      message: new RegExp(`options\\.${name}`),
    });
  }
  assert.throws(() => createTLSServer({ key: 'dummy', passphrase: 1 }), {
    code: 'ERR_INVALID_ARG_TYPE',
    message: /passphrase/,
  });
});

test('what Sealane does not offer throws, with what to do instead', {
  skip: isSealane ? false : 'node offers it',
}, () => {
  for (const more of [
    { pskCallback() {} },
    { dhparam: 'auto' },
    { secureOptions: 1 },
    { privateKeyEngine: 'x' },
    { enableTrace: true },
    { secureProtocol: 'TLSv1_method' },
    { sessionIdContext: 5 },
  ]) {
    assert.throws(
      () => createTLSServer({ ...own, ...more }),
      (error) => {
        assert.match(error.code, /^ERR_/);
        assert.ok(error.message.includes(Object.keys(more)[0]), error.message);
        return true;
      },
      JSON.stringify(Object.keys(more)),
    );
  }
});

test('tls.getCiphers knows every suite that a socket can tell', () => {
  const known = tls.getCiphers();
  for (const [, name] of SUITES) assert.ok(known.includes(name.toLowerCase()), name);
});
