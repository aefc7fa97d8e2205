'use strict';

// How often a client's certificate is read: that takes OpenSSL longer than all else JavaScript does
// for a connection.

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const test = require('node:test');
const { authority, leaf } = require('../certificates');

let read = 0;
/** Counts, and is otherwise node's. */
class Counted extends crypto.X509Certificate {
  constructor(der) {
    super(der);
    read += 1;
  }
}
crypto.X509Certificate = Counted;
const { defineIdentity, kChannel } = require('../../lib/identity.js');
const { Opening } = require('../../lib/message.js');
const { openPayload } = require('./lane-end.js');

class Socket {
  constructor(chain) {
    const payload = openPayload({ flags: Opening.ASKED | Opening.VERIFIED, chain });
    this[kChannel] = { opened: payload.toString('latin1') };
  }
}
defineIdentity(Socket.prototype);

const root = authority('Root');
const CLIENTS_KNOWN = 128;

test('a client that comes again is believed without reading its certificate again', () => {
  const { der } = leaf(root, 'often');
  read = 0;
  for (let i = 0; i < 100; i += 1) {
    const socket = new Socket([der, root.der]);
    assert.deepEqual([socket.authorized, socket.authorizationError], [true, null]);
  }
  assert.equal(read, 1);
  const socket = new Socket([der]);
  assert.equal(socket.authorized, true);
  assert.equal(socket.getPeerCertificate().subject.CN, 'often');
  assert.equal(socket.getPeerX509Certificate().subject, 'CN=often');
  assert.equal(read, 2);
});

test('what one certificate is worth says nothing of another', () => {
  const { der } = leaf(root, 'one');
  assert.equal(new Socket([der]).authorized, true);
  const broken = Buffer.from(der);
  broken[1] ^= 1;
  for (let i = 0; i < 2; i += 1) {
    const socket = new Socket([broken]);
    assert.deepEqual([socket.authorized, socket.authorizationError], [false, 'CERT_REJECTED']);
    assert.equal(new Socket([]).authorized, false);
  }
});

test('it is known of a bounded number of clients, those that came last', () => {
  const ders = Array.from({ length: CLIENTS_KNOWN + 1 }, (_, i) => leaf(root, `client ${i}`).der);
  const isKnown = (der) => {
    read = 0;
    assert.equal(new Socket([der]).authorized, true);
    return read === 0;
  };
  for (const der of ders.slice(0, -1)) isKnown(der);
  assert.equal(isKnown(ders[0]), true);
  assert.equal(isKnown(ders.at(-1)), false);
  assert.deepEqual([isKnown(ders[0]), isKnown(ders[2]), isKnown(ders[1])], [true, true, false]);
});
