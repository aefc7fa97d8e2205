'use strict';

// Server names: SNICallback, the name in the server's events, refusals. After test-tls-sni-*,
// test-tls-snicallback-error, test-tls-empty-sni-context, test-tls-no-cert-required,
// test-https-strict, test-https-agent-sni, test-https-agent-servername.

const assert = require('node:assert');
const https = require('node:https');
const { test } = require('node:test');

const { authority, leaf } = require('../certificates');
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
  pair,
  refused,
  request,
  start,
  ticket,
  tlsSite,
} = require('../site');
const { event, until } = require('../within');

const a = leaf(ca, 'a.example.com');
const b = leaf(ca, 'b.example.com');

function byName(contexts) {
  return (name, done) => done(null, contexts[name] && createSecureContext(contexts[name]));
}

test('SNICallback chooses the certificate; without a context the own one counts', async (t) => {
  const asked = [];
  const choose = byName({ 'a.example.com': a, 'b.example.com': b });
  const server = await tlsSite(t, {
    SNICallback(name, done) {
      asked.push(name);
      choose(name, done);
    },
  });
  for (const [servername, expected] of [
    ['a.example.com', 'a.example.com'],
    ['b.example.com', 'b.example.com'],
    ['localhost', 'localhost'],
  ]) {
    const { client, socket } = await pair(t, server, { servername });
    assert.strictEqual(client.getPeerCertificate().subject.CN, expected);
    assert.strictEqual(client.authorized, true);
    assert.strictEqual(socket.servername, servername);
  }
  assert.deepStrictEqual(asked, ['a.example.com', 'b.example.com', 'localhost']);
});

test('SNICallback may answer later, and other handshakes go on meanwhile', async (t) => {
  let late;
  const server = await tlsSite(t, {
    SNICallback(name, done) {
      if (name === 'a.example.com') late = () => done(null, createSecureContext(a));
      else done(null);
    },
  });
  const waiting = connect(t, server, { servername: 'a.example.com' });
  const other = await connected(t, server);
  assert.strictEqual(other.getPeerCertificate().subject.CN, 'localhost');
  assert.strictEqual(waiting.authorized, false);
  await until(() => late !== undefined, 'SNICallback is asked');
  late();
  await event(waiting, 'secureConnect');
  assert.strictEqual(waiting.getPeerCertificate().subject.CN, 'a.example.com');
});

test('SNICallback is not called for a client that sends no name', async (t) => {
  let asked = 0;
  const server = await tlsSite(t, {
    SNICallback(_name, done) {
      asked += 1;
      done(null);
    },
  });
  const { client, socket } = await pair(t, server, { servername: '', checkServerIdentity() {} });
  assert.strictEqual(client.getPeerCertificate().subject.CN, 'localhost');
  assert.strictEqual(socket.servername, false);
  assert.strictEqual(asked, 0);
});

test('an error of SNICallback ends that handshake with tlsClientError', async (t) => {
  const server = await tlsSite(t, {
    SNICallback: (_name, done) => done(new Error('no such site')),
  });
  const failed = event(server, 'tlsClientError');
  const error = await refused(t, server);
  assert.ok(error.code, 'the client sees an error of TLS or of the connection');
  const [reported, socket] = await failed;
  assert.strictEqual(socket.servername, 'localhost');
  // node may report OpenSSL's error about the rest instead.
  assert.match(reported.message, differs({ node: /./, sealane: /^no such site$/ }));
});

test('something that is no context from SNICallback ends that handshake', async (t) => {
  const server = await tlsSite(t, {
    SNICallback: (_name, done) => done(null, { notAContext: true }),
  });
  const failed = event(server, 'tlsClientError');
  await refused(t, server);
  const [reported] = await failed;
  assert.match(
    reported.message,
    differs({
      node: /Invalid SNI context/,
      sealane: /has no option of a context, but notAContext/,
    }),
  );
});

test('options that say nothing are no context', async (t) => {
  const server = await tlsSite(t, { SNICallback: (_name, done) => done(null, {}) });
  const failed = event(server, 'tlsClientError');
  await refused(t, server);
  const [reported, socket] = await failed;
  assert.strictEqual(reported.message, 'Invalid SNI context');
  assert.strictEqual(socket.servername, 'localhost');
});

test('SNICallback must be a function', () => {
  for (const SNICallback of ['fooled', 42, {}]) {
    assert.throws(() => createTLSServer({ ...a, SNICallback }), { code: 'ERR_INVALID_ARG_TYPE' });
  }
});

test('a server without a certificate of its own lives by SNICallback', async (t) => {
  const server = createTLSServer({
    SNICallback: byName({ 'a.example.com': a }),
  });
  await start(t, server);
  const client = await connected(t, server, { servername: 'a.example.com' });
  assert.strictEqual(client.getPeerCertificate().subject.CN, 'a.example.com');
  server.on('tlsClientError', () => {});
  await refused(t, server, { servername: 'other.example.com' });
});

test('a server may be made without any certificate, to be given one later', () => {
  assert.ok(createTLSServer());
  assert.ok(createServer());
});

test('a name with an unusual form still reaches SNICallback and servername', async (t) => {
  const server = await tlsSite(t, { SNICallback: (_name, done) => done(null) });
  const { socket } = await pair(t, server, {
    servername: 'under_score.example.com',
    checkServerIdentity() {},
  });
  // rustls accepts the names that DNS allows, and an underscore is common there.
  assert.strictEqual(socket.servername, 'under_score.example.com');
});

test('a name whose last label is a number', async (t) => {
  // As `sni.0` of test-https-agent-sni. rustls takes it for no name; there is no way round that.
  const server = await tlsSite(t);
  const options = { servername: 'sni.0', checkServerIdentity() {} };
  if (!isSealane) {
    assert.strictEqual((await pair(t, server, options)).socket.servername, 'sni.0');
    return;
  }
  const failed = event(server, 'tlsClientError');
  const error = await refused(t, server, options);
  assert.match(error.code, /ALERT_ILLEGAL_PARAMETER$/);
  await failed;
});

test('the servername stays with a resumed session', async (t) => {
  const server = await tlsSite(t, { maxVersion: 'TLSv1.2' });
  const session = await ticket(t, server);
  const { client, socket } = await pair(t, server, { session });
  assert.strictEqual(client.isSessionReused(), true);
  // node loses the name of a session that a ticket of TLS 1.2 brings back.
  assert.strictEqual(socket.servername, differs({ node: false, sealane: 'localhost' }));
});

test('https: certificates by Host of the agent, and strangers refused', async (t) => {
  const stranger = authority('Another authority');
  const c = leaf(stranger, 'c.example.com');
  const server = await httpsSite(
    t,
    {
      SNICallback: byName({ 'a.example.com': a, 'c.example.com': c }),
    },
    (incoming, answer) => answer.end(incoming.socket.servername),
  );
  const agent = new https.Agent({ maxSockets: 2, keepAlive: true });
  t.after(() => agent.destroy());
  const get = (host, more) =>
    request(server, {
      agent,
      headers: { host },
      servername: undefined,
      ...more,
    });
  assert.strictEqual((await get('a.example.com')).text, 'a.example.com');
  await assert.rejects(get('c.example.com'), { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' });
  await assert.rejects(get('b.example.com'), { code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
  const trusting = await get('c.example.com', { ca: stranger.cert });
  assert.strictEqual(trusting.text, 'c.example.com');
  assert.strictEqual(trusting.socket.authorized, true);
});

test('names in capitals: names of hosts have no case, but node compares letters', async (t) => {
  const server = await tlsSite(t, {});
  server.addContext('a.example.com', a);
  const { client, socket } = await pair(t, server, {
    servername: 'A.EXAMPLE.com',
    checkServerIdentity() {},
  });
  assert.strictEqual(
    client.getPeerCertificate().subject.CN,
    differs({ node: 'localhost', sealane: 'a.example.com' }),
  );
  assert.strictEqual(socket.servername.toLowerCase(), 'a.example.com');
});
