'use strict';

// A program that requires certificates of clients never sees one that is not trusted.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const { authority, leaf } = require('../certificates');
const { connect, pair, tlsSite } = require('../site');
const { event, until } = require('../within');

const clients = authority('Authority of clients');
/** Dates of certificates are whole seconds, and this one must be valid while its sessions begin. */
const VALID_MS_MIN = 3_000;
const VALID_MS_MAX = 100_000;

for (const version of ['TLSv1.2', 'TLSv1.3']) {
  for (const handover of ['ring', 'socket']) {
    test(`${version}, ${handover}: a session ends with its client's certificate`, async (t) => {
      const asks = { requestCert: true, ca: clients.cert, handover };
      const server = await tlsSite(t, asks);
      const lax = await tlsSite(t, { ...asks, rejectUnauthorized: false });
      const { session, sessionOfLax, to, who } = await whileValid(async (to) => {
        const { cert, key } = leaf(clients, 'brief', { names: undefined, to });
        const who = { cert, key, minVersion: version, maxVersion: version };
        const session = await sessionOf(t, server, who);
        const sessionOfLax = await sessionOf(t, lax, who);
        const { socket } = await pair(t, server, { ...who, session });
        assert.deepEqual([socket.isSessionReused(), socket.authorized], [true, true]);
        return { session, sessionOfLax, to, who };
      });

      await until(() => Date.now() > to.getTime() + 1_000, "the certificate's end");
      server.on('secureConnection', () => assert.fail('it is let in'));
      const failed = event(server, 'tlsClientError');
      const client = connect(t, server, { ...who, session });
      const told = assert.rejects(event(client, 'close'), /certificate expired/);
      client.resume();
      const [error, destroyed] = await failed;
      // Its ticket is not opened, so it is refused as a client that comes for the first time.
      assert.deepEqual([error.code, error.reason], ['ECONNRESET', 'client_certificate']);
      assert.equal(destroyed.authorizationError, 'CERT_HAS_EXPIRED');
      assert.equal(destroyed.destroyed, true);
      await told;

      const judged = await pair(t, lax, { ...who, session: sessionOfLax });
      assert.equal(judged.socket.isSessionReused(), true);
      assert.equal(judged.socket.authorized, false);
      assert.equal(judged.socket.authorizationError, 'CERT_HAS_EXPIRED');
    });
  }
}

/** The result of `begin` while its certificate is valid: on a slow machine, a longer one. */
async function whileValid(begin) {
  for (let validMs = VALID_MS_MIN; ; validMs *= 2) {
    const to = new Date(Date.now() + validMs);
    const begun = await begin(to).catch((error) => ({ error }));
    if (Date.now() < to.getTime() - 1_000) {
      if (begun.error) throw begun.error;
      return begun;
    }
    assert.ok(validMs < VALID_MS_MAX, begun.error);
  }
}

async function sessionOf(t, server, who) {
  const client = connect(t, server, who);
  client.resume();
  const [session] = await event(client, 'session');
  client.destroy();
  return session;
}
