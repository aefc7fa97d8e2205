'use strict';

// Which certificate and key a server shows, and how they are given and changed.
// After test-tls-add-context, test-tls-set-secure-context, test-tls-multi-key,
// test-tls-key-mismatch, test-tls-no-rsa-key, test-tls-cert-chains-concat, test-tls-passphrase,
// test-tls-peer-certificate*, test-tls-getcertificate-x509, test-tls-friendly-error-message,
// test-tls-secure-context-usage-order, test-tls-connect-secure-context,
// test-tls-options-boolean-check, test-https-options-boolean-check, test-https-resume-after-renew.

const assert = require('node:assert');
const crypto = require('node:crypto');
const { test } = require('node:test');

const { authority, certificate, leaf } = require('../certificates');
const {
  createSecureContext,
  createServer,
  createTLSServer,
  differs,
  isSealane,
} = require('../implementation');
const {
  ca,
  connect,
  connected,
  httpsSite,
  own,
  ownLeaf,
  pair,
  refused,
  request,
  start,
  tlsSite,
} = require('../site');
const { event } = require('../within');

const a = leaf(ca, 'a.example.com');
const b = leaf(ca, 'b.example.com');
const commonName = (client) => client.getPeerCertificate().subject.CN;

test('addContext: exact names, wildcards, options or a context, the last one wins', async (t) => {
  const wild = leaf(ca, '*.wild.example.com');
  const server = await tlsSite(t);
  server.addContext('a.example.com', a);
  server.addContext('b.example.com', createSecureContext(b));
  server.addContext('*.wild.example.com', wild);
  const seen = async (servername) =>
    commonName(await connected(t, server, { servername, checkServerIdentity() {} }));
  assert.strictEqual(await seen('a.example.com'), 'a.example.com');
  assert.strictEqual(await seen('b.example.com'), 'b.example.com');
  assert.strictEqual(await seen('x.wild.example.com'), '*.wild.example.com');
  assert.strictEqual(await seen('x.y.wild.example.com'), 'localhost');
  assert.strictEqual(await seen('wild.example.com'), 'localhost');
  assert.strictEqual(await seen('unknown.example.com'), 'localhost');
  server.addContext('a.example.com', b);
  assert.strictEqual(await seen('a.example.com'), 'b.example.com');
});

test('addContext needs a name', async (t) => {
  const server = await tlsSite(t);
  assert.throws(() => server.addContext('', a), { code: 'ERR_TLS_REQUIRED_SERVER_NAME' });
  assert.throws(() => server.addContext(undefined, a), { code: 'ERR_TLS_REQUIRED_SERVER_NAME' });
});

test('setSecureContext changes what new connections get; old ones go on', async (t) => {
  const server = await httpsSite(t, {}, (_incoming, answer) => answer.end('ok'));
  const before = await pair(t, server);
  assert.strictEqual(commonName(before.client), 'localhost');
  const renewed = leaf(ca, ['localhost', 'renewed.example.com']);
  server.setSecureContext({ cert: renewed.cert, key: renewed.key });
  const after = await connected(t, server);
  assert.match(after.getPeerCertificate().subjectaltname, /renewed\.example\.com/);
  before.client.write('GET / HTTP/1.0\r\n\r\n');
  const [answer] = await event(before.client, 'data');
  assert.match(String(answer), /^HTTP\/1\.1 200/);
});

test('setSecureContext refuses what is no object, and what is wrong changes nothing', async (t) => {
  const server = await tlsSite(t);
  for (const wrong of [null, undefined, 'key', 7, true]) {
    assert.throws(() => server.setSecureContext(wrong), { code: 'ERR_INVALID_ARG_TYPE' });
  }
  assert.throws(() => server.setSecureContext({ cert: 'not a certificate', key: own.key }));
  assert.throws(() => server.setSecureContext({ cert: a.cert, key: b.key }));
  assert.strictEqual(commonName(await connected(t, server)), 'localhost');
});

test('a server gets its certificate by setSecureContext after it listens', async (t) => {
  const server = await start(t, createTLSServer());
  server.on('tlsClientError', () => {});
  await refused(t, server);
  server.setSecureContext(own);
  assert.strictEqual(commonName(await connected(t, server)), 'localhost');
});

test('several kinds of keys: the client chooses by what it can verify', async (t) => {
  const rsa = leaf(ca, 'localhost', { kind: 'rsa' });
  for (const [cert, key] of [
    [
      [ownLeaf.cert, rsa.cert],
      [ownLeaf.key, rsa.key],
    ],
    // Keys find their certificates in any order.
    [
      [ownLeaf.cert, rsa.cert],
      [rsa.key, ownLeaf.key],
    ],
  ]) {
    if (!isSealane && key[0] === rsa.key) continue;
    const server = await tlsSite(t, { cert, key });
    const kindFor = async (sigalgs) => {
      const client = await connected(t, server, { sigalgs });
      return client.getPeerX509Certificate().publicKey.asymmetricKeyType;
    };
    assert.strictEqual(await kindFor('ECDSA+SHA256'), 'ec');
    assert.strictEqual(await kindFor('RSA-PSS+SHA256'), 'rsa');
  }
});

test('keys of each kind: P-256, P-384, Ed25519, RSA', async (t) => {
  for (const kind of ['p256', 'p384', 'ed25519', 'rsa']) {
    const { cert, key } = leaf(ca, 'localhost', { kind });
    const server = await tlsSite(t, { cert, key });
    for (const version of ['TLSv1.2', 'TLSv1.3']) {
      const client = await connected(t, server, { minVersion: version, maxVersion: version });
      assert.strictEqual(client.authorized, true, `${kind} ${version}`);
    }
  }
});

test("a key that is not the certificate's is refused at once", () => {
  for (const make of [createTLSServer, createServer, createSecureContext]) {
    assert.throws(
      () => make({ cert: a.cert, key: b.key }),
      (error) => {
        assert.match(error.message, differs({ node: /key values mismatch/i, sealane: /key/i }));
        if (!isSealane) assert.strictEqual(error.code, 'ERR_OSSL_X509_KEY_VALUES_MISMATCH');
        return true;
      },
    );
  }
});

test('a certificate or key that is none is refused at once', () => {
  assert.throws(() => createTLSServer({ cert: 'nothing', key: own.key }));
  assert.throws(() => createTLSServer({ cert: own.cert, key: 'nothing' }));
  const cut = own.cert.slice(0, own.cert.length / 2);
  assert.throws(() => createTLSServer({ cert: cut, key: own.key }));
});

test('certificates and keys as strings, buffers, typed arrays, lists and { pem }', async (t) => {
  const bytes = (text) => new Uint8Array(Buffer.from(text));
  const view = (text) => new DataView(bytes(text).buffer);
  for (const options of [
    { cert: own.cert, key: own.key },
    { cert: Buffer.from(own.cert), key: Buffer.from(own.key) },
    { cert: bytes(own.cert), key: bytes(own.key) },
    { cert: view(own.cert), key: view(own.key) },
    { cert: [own.cert], key: [own.key] },
    { cert: own.cert, key: [{ pem: own.key }] },
  ]) {
    const server = await tlsSite(t, options);
    assert.strictEqual(commonName(await connected(t, server)), 'localhost');
  }
});

test('options that are no certificate, key or authority are refused by type', () => {
  for (const wrong of [true, 1, { pem: own.key }, [own.key, true]]) {
    assert.throws(() => createTLSServer({ cert: own.cert, key: wrong }), {
      code: 'ERR_INVALID_ARG_TYPE',
      name: 'TypeError',
      message: /options\.key/,
    });
  }
  for (const wrong of [true, 1, {}, [own.cert, true]]) {
    assert.throws(() => createTLSServer({ cert: wrong, key: own.key }), {
      code: 'ERR_INVALID_ARG_TYPE',
      message: /options\.cert/,
    });
  }
  for (const wrong of [true, 1, {}, [own.cert, true]]) {
    assert.throws(() => createServer({ ...own, ca: wrong }), {
      code: 'ERR_INVALID_ARG_TYPE',
      message: /options\.ca/,
    });
  }
});

test('false and undefined mean that an option is not given', () => {
  for (const nothing of [false, undefined, null]) {
    assert.ok(createTLSServer({ cert: nothing, key: nothing, ca: nothing }));
    assert.ok(createServer({ ...own, ca: nothing }));
  }
});

test('a chain in one text reaches the client whole', async (t) => {
  const middle = certificate({ name: 'Between', authority: true, issuer: ca });
  const end = leaf(middle, 'localhost');
  const server = await tlsSite(t, { cert: end.cert + middle.cert, key: end.key });
  const { client } = await pair(t, server);
  assert.strictEqual(client.authorized, true);
  const chain = client.getPeerCertificate(true);
  assert.strictEqual(chain.issuerCertificate.subject.CN, 'Between');
  assert.strictEqual(chain.issuerCertificate.issuerCertificate.subject.CN, ca.name);
});

test('encrypted keys open with passphrase, which may stand beside each key', async (t) => {
  const secret = ownLeaf.privateKey.export({
    format: 'pem',
    type: 'pkcs8',
    cipher: 'aes-256-cbc',
    passphrase: 'sesame',
  });
  for (const options of [
    { key: secret, passphrase: 'sesame' },
    { key: [{ pem: secret, passphrase: 'sesame' }] },
    { key: [{ pem: secret }], passphrase: 'sesame' },
    { key: own.key, passphrase: 'not needed' },
  ]) {
    const server = await tlsSite(t, { cert: own.cert, ...options });
    assert.strictEqual(commonName(await connected(t, server)), 'localhost');
  }
  assert.throws(() => createTLSServer({ cert: own.cert, key: secret, passphrase: 'wrong' }));
  assert.throws(() => createTLSServer({ cert: own.cert, key: secret }));
});

test('keys in the older forms of PEM', async (t) => {
  const rsa = leaf(ca, 'localhost', { kind: 'rsa' });
  for (const [made, type] of [
    [ownLeaf, 'sec1'],
    [rsa, 'pkcs1'],
  ]) {
    const key = made.privateKey.export({ format: 'pem', type });
    const server = await tlsSite(t, { cert: made.cert, key });
    assert.strictEqual((await connected(t, server)).authorized, true);
  }
});

test("the server's own certificate by getCertificate and getX509Certificate", async (t) => {
  const server = await tlsSite(t);
  const { socket } = await pair(t, server);
  const x509 = socket.getX509Certificate();
  assert.ok(x509 instanceof crypto.X509Certificate);
  assert.deepStrictEqual(x509.raw, ownLeaf.der);
  const legacy = socket.getCertificate();
  assert.strictEqual(legacy.subject.CN, 'localhost');
  assert.strictEqual(legacy.fingerprint256, x509.fingerprint256);
});

test('the certificate by name is the one that getCertificate tells', async (t) => {
  const server = await tlsSite(t);
  server.addContext('a.example.com', a);
  const { socket } = await pair(t, server, { servername: 'a.example.com' });
  assert.strictEqual(socket.getCertificate().subject.CN, 'a.example.com');
});

test('https: a session of before the renewal does not stop a new connection', async (t) => {
  const server = await httpsSite(t, {}, (_incoming, answer) => answer.end('ok'));
  const first = connect(t, server);
  const [session] = await event(first, 'session');
  first.destroy();
  const renewed = leaf(authority('Renewed'), 'localhost');
  server.setSecureContext({ cert: renewed.cert, key: renewed.key });
  const answer = await request(server, { session, rejectUnauthorized: false });
  assert.strictEqual(answer.text, 'ok');
});
