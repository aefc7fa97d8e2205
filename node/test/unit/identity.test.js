'use strict';

// For any event of a lane about a client, and any certificate, no property throws. And no client is
// authorized with a certificate that cannot be read.
//
//   node test/unit/identity.test.js [--rounds N] [--seed S]    (the long form)

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const { defineIdentity, kChannel } = require('../../lib/identity.js');
const { Opening } = require('../../lib/message.js');
const { Opened, failedOf } = require('../../lib/open.js');
const { authority, leaf } = require('../certificates');
const { openPayload } = require('./lane-end.js');

const CERTIFICATES = path.join(__dirname, '../../../testdata/certificates');
const FILES = ['p256.crt', 'rsa.crt', 'ed25519.crt', 'version1-p256.crt'];
const BELIEVED = Opening.ASKED | Opening.VERIFIED;
const ROUNDS = argument('--rounds', 2_000);
const SEED = argument('--seed', 1);

class Socket {
  constructor(payload) {
    this[kChannel] = {
      opened: payload.toString('latin1'),
      lane: { certificate: () => undefined },
    };
  }
}
defineIdentity(Socket.prototype);

const root = authority('Root');
const own = leaf(root, 'alice');

test('a chain is told up to the first certificate that cannot be read', () => {
  const noise = crypto.randomBytes(40);
  const socket = shown([own.der, noise, root.der]);
  assert.equal(socket.getPeerCertificate().subject.CN, 'alice');
  const detailed = socket.getPeerCertificate(true);
  assert.equal(detailed.subject.CN, 'alice');
  assert.equal(detailed.issuerCertificate, undefined);
  const whole = shown([own.der, root.der]).getPeerCertificate(true);
  assert.equal(whole.issuerCertificate.subject.CN, 'Root');
  assert.equal(socket.getPeerX509Certificate().subject, 'CN=alice');
  assert.deepEqual([socket.authorized, socket.authorizationError], [true, null]);
});

test('only whole certificates are told', () => {
  const payload = openPayload({ flags: BELIEVED, chain: [own.der, root.der] });
  const lengths = (text) => new Opened(text).chain.map(({ length }) => length);
  const text = payload.toString('latin1');
  assert.deepEqual(lengths(text), [own.der.length, root.der.length]);
  assert.deepEqual(lengths(text.slice(0, -1)), [own.der.length]);
  assert.deepEqual(lengths(text.slice(0, -root.der.length - 5)), []);
});

test('nobody is authorized without a certificate that can be read', () => {
  const [noise, nothing] = [crypto.randomBytes(40), Buffer.alloc(0)];
  for (const chain of [[], [noise], [nothing], [nothing, own.der]]) {
    const socket = shown(chain);
    assert.deepEqual([socket.authorized, socket.authorizationError], [false, 'CERT_REJECTED']);
    assert.deepEqual(socket.getPeerCertificate(), {});
    assert.deepEqual(socket.getPeerCertificate(true), {});
    assert.equal(socket.getPeerX509Certificate(), undefined);
  }
});

test(`${ROUNDS} payloads of seed ${SEED} throw at nobody`, () => {
  const dice = new Dice(SEED);
  const known = [own.der, root.der, ...FILES.map(der)];
  for (let round = 0; round < ROUNDS; round++) {
    const payload = mutated(dice, openPayload(drawn(dice, known)));
    try {
      judge(payload);
    } catch (error) {
      error.message += ` (round ${round}: ${payload.toString('base64')})`;
      throw error;
    }
  }
});

/** Asks a socket everything. */
function judge(payload) {
  const socket = new Socket(payload);
  for (const name of Object.getOwnPropertyNames(Socket.prototype)) {
    if (name !== 'constructor' && typeof socket[name] !== 'function') void socket[name];
  }
  for (const ask of ['address', 'getProtocol', 'getCipher', 'isSessionReused', 'getSession']) {
    socket[ask]();
  }
  const [brief, detailed] = [socket.getPeerCertificate(), socket.getPeerCertificate(true)];
  const x509 = socket.getPeerX509Certificate();
  const isThere = x509 !== undefined;
  assert.deepEqual([brief.raw, detailed.raw], [x509?.raw, x509?.raw]);
  if (socket.authorized) {
    assert.ok(isThere && socket.authorizationError === null);
  }
  const opened = new Opened(payload.toString('latin1'));
  const bytes = opened.chain.reduce((sum, { length }) => sum + 4 + length, 0);
  assert.ok(bytes <= payload.length, 'no certificate reaches beyond the payload');
  failedOf(payload);
}

function shown(chain) {
  return new Socket(openPayload({ flags: BELIEVED, chain }));
}

/** A payload as a lane writes it, with certificates that a client may have made up. */
function drawn(dice, known) {
  const chain = Array.from({ length: dice.below(6) }, () => {
    const certificate = dice.of(known);
    return dice.below(3) === 0 ? certificate : mutated(dice, certificate);
  });
  const flags = dice.below(4) === 0 ? dice.below(256) : BELIEVED;
  return { flags, chain, family: dice.of([0, 4, 6, 9]), name: 'a.test', alpn: 'h2' };
}

/** A few bytes changed, cut off, doubled or made up. */
function mutated(dice, bytes) {
  let changed = Buffer.from(bytes);
  for (let times = dice.below(4); times > 0 && changed.length > 0; times--) {
    const at = dice.below(changed.length);
    switch (dice.below(4)) {
      case 0:
        changed[at] = dice.below(256);
        break;
      case 1:
        changed = changed.subarray(0, at);
        break;
      case 2:
        changed = Buffer.concat([changed.subarray(0, at), changed.subarray(Math.max(0, at - 8))]);
        break;
      default:
        changed[at] ^= 1 << dice.below(8);
    }
  }
  return changed;
}

function der(file) {
  return new crypto.X509Certificate(fs.readFileSync(path.join(CERTIFICATES, file))).raw;
}

function argument(name, otherwise) {
  const at = process.argv.indexOf(name);
  return at < 0 ? otherwise : Number(process.argv[at + 1]);
}

/** Even dice that repeat: xorshift32. */
class Dice {
  constructor(seed) {
    this.state = seed >>> 0 || 1;
  }

  below(bound) {
    this.state ^= this.state << 13;
    this.state ^= this.state >>> 17;
    this.state ^= this.state << 5;
    return (this.state >>> 0) % bound;
  }

  of(list) {
    return list[this.below(list.length)];
  }
}
