'use strict';

// Certificates of clients. After test-tls-server-verify, test-tls-client-auth,
// test-tls-client-verify, test-tls-ca-concat, test-tls-multiple-cas-as-string, test-tls-addca,
// test-tls-add-ca-cert, test-tls-cert-chains-in-ca, test-https-foafssl, test-tls-add-context,
// test-tls-peer-certificate, test-tls-peer-certificate-multi-keys, test-https-agent-*.

const assert = require('node:assert');
const crypto = require('node:crypto');
const { test } = require('node:test');

const { authority, certificate, leaf, revocations, DAY_MS } = require('../certificates');
const { differs } = require('../implementation');
const { ca, connected, httpsSite, pair, refused, request, ticket, tlsSite } = require('../site');
const { event } = require('../within');

const clients = authority('Authority of clients');
const others = authority('Authority of others');
const alice = leaf(clients, 'alice', { names: undefined });
const stranger = leaf(others, 'stranger', { names: undefined });
const own = ({ cert, key }) => ({ cert, key });
const asks = { requestCert: true, ca: clients.cert };
const VERSIONS = ['TLSv1.2', 'TLSv1.3'];

for (const version of VERSIONS) {
  const only = { minVersion: version, maxVersion: version };

  test(`${version}: nothing asked, nothing judged`, async (t) => {
    const server = await tlsSite(t);
    const { socket } = await pair(t, server, { ...only, ...own(alice) });
    assert.strictEqual(socket.authorized, false);
    assert.strictEqual(socket.authorizationError, null);
    assert.deepStrictEqual(socket.getPeerCertificate(), {});
    assert.strictEqual(socket.getPeerX509Certificate(), undefined);
  });

  test(`${version}: asked for, but anyone is let in and judged`, async (t) => {
    const server = await tlsSite(t, { ...asks, rejectUnauthorized: false });
    for (const [who, authorized, error, name] of [
      [own(alice), true, null, 'alice'],
      [own(stranger), false, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'stranger'],
      [{}, false, 'UNABLE_TO_GET_ISSUER_CERT', undefined],
    ]) {
      const { socket } = await pair(t, server, { ...only, ...who });
      assert.strictEqual(socket.authorized, authorized);
      assert.strictEqual(socket.getPeerCertificate().subject?.CN, name);
      const said = socket.authorizationError;
      // Without the others' authority a chain of one ends either way: at an issuer that is missing,
      // or at a signature that cannot be verified.
      if (error === 'UNABLE_TO_VERIFY_LEAF_SIGNATURE') {
        assert.match(String(said), /^UNABLE_TO_(VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT_LOCALLY)$/);
      } else if (error === null) {
        assert.strictEqual(said ?? null, null);
      } else {
        assert.match(
          String(said),
          differs({
            node: /^UNABLE_TO_GET_ISSUER_CERT$/,
            sealane: /^(UNABLE_TO_GET_ISSUER_CERT|PEER_DID_NOT_RETURN(_A_CERTIFICATE)?)$/,
          }),
        );
      }
    }
  });

  test(`${version}: required`, async (t) => {
    const server = await tlsSite(t, { ...asks, rejectUnauthorized: true });
    const errors = [];
    server.on('tlsClientError', (error) => errors.push(error));
    const { socket } = await pair(t, server, { ...only, ...own(alice) });
    assert.strictEqual(socket.authorized, true);
    server.on('secureConnection', () => assert.fail('only alice is let in'));
    const expired = leaf(clients, 'alice', {
      names: undefined,
      to: new Date(Date.now() - DAY_MS / 2),
    });
    for (const [who, code, verdict] of [
      [own(stranger), 'ECONNRESET', /^UNABLE_TO_(VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT_LOCALLY)$/],
      [own(expired), 'ECONNRESET', /^CERT_HAS_EXPIRED$/],
      [{}, 'ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE', /^undefined$/],
    ]) {
      const failed = event(server, 'tlsClientError');
      await refused(t, server, { ...only, ...who });
      const [error, socket] = await failed;
      assert.strictEqual(error.code, code);
      assert.match(String(socket.authorizationError ?? undefined), verdict);
    }
    assert.strictEqual(errors.length, 3);
  });
}

test('required is what requestCert means unless rejectUnauthorized is false', async (t) => {
  const server = await tlsSite(t, asks);
  server.on('tlsClientError', () => {});
  await refused(t, server, {});
  await refused(t, server, own(stranger));
  await connected(t, server, own(alice));
});

test('authorities in a list, in one text, and in a text with words between', async (t) => {
  const texts = [
    [clients.cert, others.cert],
    clients.cert + others.cert,
    `one\n${clients.cert}\ntwo\n${others.cert}`,
    Buffer.from(others.cert + clients.cert),
  ];
  for (const list of texts) {
    const server = await tlsSite(t, { requestCert: true, ca: list, rejectUnauthorized: false });
    for (const who of [alice, stranger]) {
      const { socket } = await pair(t, server, own(who));
      assert.strictEqual(socket.authorized, true);
    }
  }
});

test("a client's chain over an authority between", async (t) => {
  const between = certificate({ name: 'Between', authority: true, issuer: clients });
  const bob = leaf(between, 'bob', { names: undefined });
  const server = await tlsSite(t, { ...asks, rejectUnauthorized: false });
  const whole = await pair(t, server, { cert: bob.cert + between.cert, key: bob.key });
  assert.strictEqual(whole.socket.authorized, true);
  const chain = whole.socket.getPeerCertificate(true);
  assert.strictEqual(chain.subject.CN, 'bob');
  assert.strictEqual(chain.issuerCertificate.subject.CN, 'Between');
  const cut = await pair(t, server, own(bob));
  assert.strictEqual(cut.socket.authorized, false);
  assert.match(
    String(cut.socket.authorizationError),
    /^UNABLE_TO_(VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT_LOCALLY)$/,
  );
});

test("why a client's certificate is no good", async (t) => {
  const now = Date.now();
  const day = (n) => new Date(now + n * DAY_MS);
  const made = (more) => leaf(clients, 'carol', { names: undefined, ...more });
  const expired = made({ from: day(-9), to: day(-2) });
  const early = made({ from: day(2), to: day(9) });
  const wrong = made({ purposes: ['serverAuth'] });
  const revoked = made({});
  const self = certificate({ name: 'self' });
  const lax = { ...asks, rejectUnauthorized: false };
  const plain = await tlsSite(t, lax);
  const listed = await tlsSite(t, { ...lax, crl: revocations(clients, [revoked]) });
  for (const [server, who, error] of [
    [plain, alice, null],
    [plain, expired, 'CERT_HAS_EXPIRED'],
    [plain, early, 'CERT_NOT_YET_VALID'],
    [plain, wrong, 'INVALID_PURPOSE'],
    [plain, self, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
    [plain, revoked, null],
    [listed, revoked, 'CERT_REVOKED'],
    [listed, alice, null],
  ]) {
    const { socket } = await pair(t, server, own(who));
    assert.strictEqual(socket.authorizationError ?? null, error);
    assert.strictEqual(socket.authorized, error === null);
  }
});

test('a revoked certificate is refused where one is required', async (t) => {
  const revoked = leaf(clients, 'dora', { names: undefined });
  const server = await tlsSite(t, { ...asks, crl: [revocations(clients, [revoked])] });
  server.on('tlsClientError', () => {});
  await refused(t, server, own(revoked));
  await connected(t, server, own(alice));
});

test('a text that is no list of the revoked is refused at once', async (t) => {
  await assert.rejects(tlsSite(t, { ...asks, crl: 'not a CRL' }));
});

test('what a certificate says: getPeerCertificate and getPeerX509Certificate', async (t) => {
  const eve = leaf(clients, ['eve', 'eve.example.com'], { organization: 'Acme' });
  const server = await tlsSite(t, asks);
  const { socket } = await pair(t, server, own(eve));
  const legacy = socket.getPeerCertificate();
  const expected = new crypto.X509Certificate(eve.der).toLegacyObject();
  for (const field of [
    'subject',
    'issuer',
    'subjectaltname',
    'valid_from',
    'valid_to',
    'fingerprint',
    'fingerprint256',
    'serialNumber',
    'ext_key_usage',
    'raw',
    'bits',
    'pubkey',
    'asn1Curve',
    'nistCurve',
    'ca',
  ]) {
    assert.deepEqual(legacy[field], expected[field], field);
  }
  assert.strictEqual(legacy.subject.O, 'Acme');
  assert.strictEqual(legacy.issuerCertificate, undefined);
  const x509 = socket.getPeerX509Certificate();
  assert.deepStrictEqual(x509.raw, eve.der);
  assert.strictEqual(x509.verify(new crypto.X509Certificate(clients.der).publicKey), true);
});

test('clients with keys of each kind', async (t) => {
  const server = await tlsSite(t, asks);
  for (const kind of ['p256', 'p384', 'ed25519', 'rsa']) {
    const { cert, key } = leaf(clients, 'frank', { names: undefined, kind });
    for (const version of VERSIONS) {
      const { socket } = await pair(t, server, {
        cert,
        key,
        minVersion: version,
        maxVersion: version,
      });
      assert.strictEqual(socket.authorized, true, `${kind} ${version}`);
    }
  }
});

test('a context by name has authorities of its own', async (t) => {
  const server = await tlsSite(t, {
    requestCert: true,
    rejectUnauthorized: false,
    ca: others.cert,
  });
  const context = { ...leaf(ca, 'context1'), ca: clients.cert };
  server.addContext('context1', context);
  const first = await pair(t, server, { ...own(alice), servername: 'context1' });
  assert.strictEqual(first.socket.authorized, true);
  const second = await pair(t, server, own(alice));
  assert.strictEqual(second.socket.authorized, false);
});

test("a resumed session keeps the client's certificate and its judgement", async (t) => {
  for (const version of VERSIONS) {
    const server = await tlsSite(t, { ...asks, minVersion: version, maxVersion: version });
    const session = await ticket(t, server, own(alice));
    const { client: again, socket } = await pair(t, server, { ...own(alice), session });
    assert.strictEqual(again.isSessionReused(), true, version);
    assert.strictEqual(socket.isSessionReused(), true, version);
    assert.strictEqual(socket.authorized, true);
    assert.strictEqual(socket.getPeerCertificate().subject.CN, 'alice');
  }
});

test("https: who asks is known to the request's socket", async (t) => {
  const server = await httpsSite(t, { ...asks, rejectUnauthorized: false }, (incoming, answer) => {
    const { socket } = incoming;
    const { subject } = socket.getPeerCertificate();
    answer.end(JSON.stringify({ authorized: socket.authorized, name: subject?.CN }));
  });
  const ask = async (who) => JSON.parse((await request(server, who)).text);
  assert.deepStrictEqual(await ask(own(alice)), { authorized: true, name: 'alice' });
  assert.deepStrictEqual(await ask(own(stranger)), { authorized: false, name: 'stranger' });
  assert.deepStrictEqual(await ask({}), { authorized: false });
});
