'use strict';

// Certificates and ticket keys change under load: no client is dropped, and every lane follows.

const assert = require('node:assert');
const crypto = require('node:crypto');
const https = require('node:https');
const { test } = require('node:test');

const { leaf } = require('../certificates');
const { isSealane } = require('../implementation');
const { ca, connected, httpsSite, request } = require('../site');

const LANES = isSealane ? { lanes: 4 } : {};
const CHANGES = 40;
const CLIENTS = 4;
/** Of this many connections four lanes get some each. */
const AFTERWARDS = 32;

test('setSecureContext under load', async (t) => {
  const server = await httpsSite(t, LANES, (_incoming, answer) => answer.end('ok'));
  const agent = new https.Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  let over = false;
  let answers = 0;
  const clients = Array.from({ length: CLIENTS }, async (_, i) => {
    while (!over) {
      // New connections, and one that lives through every change.
      const { text } = await request(server, i === 0 ? { agent } : {});
      assert.strictEqual(text, 'ok');
      answers += 1;
    }
  });
  const names = ['localhost', '127.0.0.1'];
  let newest;
  for (let i = 0; i < CHANGES; i += 1) {
    newest = leaf(ca, names);
    server.setSecureContext({ cert: newest.cert, key: newest.key });
    server.addContext(`site-${i}.example.com`, newest);
    const before = answers;
    while (answers < before + CLIENTS) await request(server);
  }
  over = true;
  await Promise.all(clients);
  const expected = new crypto.X509Certificate(newest.der).fingerprint256;
  const seen = await Promise.all(
    Array.from(
      { length: AFTERWARDS },
      async () => (await connected(t, server)).getPeerCertificate().fingerprint256,
    ),
  );
  assert.deepStrictEqual([...new Set(seen)], [expected]);
  if (isSealane) {
    const lanes = server.stats().lanes.map((lane) => lane.handshakes);
    assert.strictEqual(lanes.length, 4);
    assert.ok(
      lanes.every((count) => count > 0),
      `handshakes by lane: ${lanes}`,
    );
  }
});

test('ticket keys rotate under load', async (t) => {
  const server = await httpsSite(
    t,
    { ...LANES, ticketKeys: crypto.randomBytes(48) },
    (_incoming, answer) => answer.end('ok'),
  );
  const agent = new https.Agent({ maxCachedSessions: 10 });
  t.after(() => agent.destroy());
  let keys = [];
  for (let i = 0; i < CHANGES; i += 1) {
    keys = [crypto.randomBytes(48), ...keys].slice(0, 3);
    server.setTicketKeys(isSealane ? keys : keys[0]);
    const answers = await Promise.all(
      Array.from({ length: CLIENTS }, () =>
        request(server, { agent, headers: { connection: 'close' } }),
      ),
    );
    assert.ok(answers.every(({ text }) => text === 'ok'));
  }
});
