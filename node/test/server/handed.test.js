'use strict';

// Sockets that a program hands over by `emit('connection', socket)`, where node's own TLS serves
// them: nothing is weaker there than on a lane.

const assert = require('node:assert');
const net = require('node:net');
const { test } = require('node:test');
const tls = require('node:tls');

const { authority, leaf } = require('../certificates');
const { attach, createSecureContext, createTLSServer } = require('../implementation');
const { ca, connected, own, refused, start, ticket } = require('../site');
const { collect } = require('../within');

/** A port that hands its connections to `server`. */
async function door(t, server) {
  return start(
    t,
    net.createServer((socket) => server.emit('connection', socket)),
  );
}

/** A server that reports to each client whether it is trusted, and its port. */
async function site(t, options) {
  const server = createTLSServer({ ...own, ...options }, (socket) => {
    const { CN } = socket.getPeerCertificate()?.subject ?? {};
    socket.end(`${socket.isSessionReused()} ${socket.authorized} ${CN}`);
  });
  const through = await door(t, server);
  return { server, through };
}

async function answer(t, through, options) {
  const client = await connected(t, through, options);
  return String(await collect(client));
}

const VERSIONS = ['TLSv1.2', 'TLSv1.3'];

for (const version of VERSIONS) {
  const only = { maxVersion: version, minVersion: version };

  test(`${version}: a session without a certificate is no way around one`, async (t) => {
    const ticketKeys = Buffer.alloc(48, 1);
    const clients = authority('Authority of clients');
    const { cert, key } = leaf(clients, 'client');
    const open = await site(t, { ...only, ticketKeys });
    const strict = await site(t, { ...only, ca: clients.cert, requestCert: true, ticketKeys });
    const session = await ticket(t, open.through);
    assert.strictEqual(await answer(t, open.through, { session }), 'true false undefined');
    let got = 0;
    strict.server.on('secureConnection', () => (got += 1));
    await refused(t, strict.through, { session });
    assert.strictEqual(got, 0);
    // Nor does one with a certificate go on: a lane would judge that certificate again.
    const shown = await ticket(t, strict.through, { cert, key });
    const again = await answer(t, strict.through, { cert, key, session: shown });
    assert.strictEqual(again, 'false true client');
  });

  test(`${version}: who vouched for a client before does not now`, async (t) => {
    const [before, now] = [authority('Before'), authority('Now')];
    const { cert, key } = leaf(before, 'client');
    const options = { ...only, ca: before.cert, rejectUnauthorized: false, requestCert: true };
    const { server, through } = await site(t, options);
    const session = await ticket(t, through, { cert, key });
    assert.strictEqual(await answer(t, through, { cert, key }), 'false true client');
    server.setSecureContext({ ...own, ca: now.cert });
    assert.strictEqual(await answer(t, through, { cert, key, session }), 'false false client');
  });

  test(`${version}: a session goes on where its certificate is served`, async (t) => {
    const ticketKeys = Buffer.alloc(48, 2);
    const first = await site(t, { ...only, ticketKeys });
    const same = await site(t, { ...only, ticketKeys });
    const other = leaf(ca, 'localhost');
    const another = await site(t, { ...only, ...other, ticketKeys });
    const session = await ticket(t, first.through);
    const reused = async ({ through }) =>
      (await connected(t, through, { session })).isSessionReused();
    assert.deepStrictEqual([await reused(same), await reused(another)], [true, false]);
    // The certificates of a name count too.
    same.server.addContext('localhost', createSecureContext(other));
    assert.strictEqual(await reused(same), false);
    const asking = await site(t, {
      ...only,
      SNICallback: (_name, done) => done(null, null),
      ticketKeys,
    });
    assert.strictEqual(await reused(asking), false);
  });
}

test('what a lane would refuse is refused', async (t) => {
  const rsa = leaf(ca, 'localhost', { kind: 'rsa' });
  const { server, through } = await site(t, {
    cert: [own.cert, rsa.cert],
    key: [own.key, rsa.key],
  });
  await start(t, server);
  const refusals = [
    { ciphers: 'AES256-SHA', maxVersion: 'TLSv1.2' },
    { ciphers: 'AES128-GCM-SHA256', maxVersion: 'TLSv1.2' },
    { ciphers: 'ECDHE-RSA-AES256-SHA384', maxVersion: 'TLSv1.2' },
    { ciphers: 'ECDHE-ECDSA-AES256-SHA384', maxVersion: 'TLSv1.2' },
    { ecdhCurve: 'secp521r1' },
    { ecdhCurve: 'X448' },
    { maxVersion: 'TLSv1.2', sigalgs: 'RSA+SHA224:ECDSA+SHA224' },
  ];
  for (const options of refusals) {
    for (const where of [server, through]) {
      const error = await refused(t, where, options);
      assert.match(String(error?.code), /^ERR_SSL_.*HANDSHAKE_FAILURE/, JSON.stringify(options));
    }
  }
  for (const maxVersion of VERSIONS) {
    for (const ciphers of [undefined, 'ECDHE-RSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256']) {
      for (const where of [server, through]) {
        assert.strictEqual(
          await answer(t, where, { ciphers, maxVersion }),
          'false false undefined',
        );
      }
    }
  }
});

test('a listener that the program had put first stays', async (t) => {
  const server = tls.createServer((socket) => socket.end('x'));
  const seen = [];
  server.prependListener('connection', (socket) => seen.push(socket.encrypted === true));
  attach(server, own);
  await start(t, server);
  const through = await door(t, server);
  assert.strictEqual(String(await collect(await connected(t, server))), 'x');
  assert.strictEqual(String(await collect(await connected(t, through))), 'x');
  assert.deepStrictEqual(seen, [true, false]);
});
