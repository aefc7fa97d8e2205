'use strict';

// Fields of the certificates in `ca` that count when a client is judged: their dates, how many
// authorities may be below them, and whether they are at the end of a chain at all.

const assert = require('node:assert');
const { test } = require('node:test');

const { authority, leaf, DAY_MS } = require('../certificates');
const { pair, tlsSite } = require('../site');

const days = (count) => new Date(Date.now() + count * DAY_MS);
const root = authority('Root');
const between = authority('Between', { issuer: root });
const over = authority('Over', { from: days(-20), to: days(-1) });
const early = authority('Early', { from: days(1), to: days(20) });
const narrow = authority('Narrow', { pathLength: 0 });
const belowNarrow = authority('Below narrow', { issuer: narrow });

const CASES = [
  ['its authority has expired', [over], leaf(over, 'a'), [], 'CERT_HAS_EXPIRED'],
  ['its authority is not valid yet', [early], leaf(early, 'a'), [], 'CERT_NOT_YET_VALID'],
  ['as many authorities as are allowed', [narrow], leaf(narrow, 'a'), [], null],
  [
    'more authorities than are allowed',
    [narrow],
    leaf(belowNarrow, 'a'),
    [belowNarrow],
    /^(PATH_LENGTH_EXCEEDED|INVALID_CA)$/,
  ],
  ['an intermediate that the server knows', [root, between], leaf(between, 'a'), [], null],
  ['an intermediate that the client sends', [root], leaf(between, 'a'), [between], null],
  ['a root that the client sends too', [root], leaf(between, 'a'), [between, root], null],
  ['issuers out of order, and one twice', [root], leaf(between, 'a'), [root, between, root], null],
  ['an intermediate alone', [between], leaf(between, 'a'), [], /^UNABLE_TO_/],
];

for (const version of ['TLSv1.2', 'TLSv1.3']) {
  for (const [what, ca, own, behind, error] of CASES) {
    test(`${version}: ${what}`, async (t) => {
      const server = await tlsSite(t, {
        requestCert: true,
        rejectUnauthorized: false,
        ca: ca.map(({ cert }) => cert),
      });
      const { socket } = await pair(t, server, {
        minVersion: version,
        maxVersion: version,
        key: own.key,
        cert: [own, ...behind].map(({ cert }) => cert).join(''),
      });
      assert.strictEqual(socket.authorized, error === null);
      if (error instanceof RegExp) assert.match(String(socket.authorizationError), error);
      else assert.strictEqual(socket.authorizationError ?? null, error);
      assert.strictEqual(socket.getPeerCertificate().subject.CN, 'a');
    });
  }
}
