'use strict';

/**
 * The implementation under test: Sealane, or node's own tls and https as the oracle of its
 * behaviour.
 *
 * IMPLEMENTATION=node or sealane (the default) chooses. For Sealane, HANDOVER=auto, ring or socket
 * and LANES=1..8 set the options that a test leaves open.
 */

const https = require('node:https');
const tls = require('node:tls');

const name = process.env.IMPLEMENTATION || 'sealane';
if (name !== 'node' && name !== 'sealane') {
  throw new Error(`IMPLEMENTATION must be node or sealane, not ${name}`);
}
const isSealane = name === 'sealane';
const package_ = isSealane ? require('..') : undefined;

/** The options of a server of Sealane unless the test sets others. Node's own has neither. */
const defaults = isSealane
  ? { lanes: Number(process.env.LANES || 2), handover: process.env.HANDOVER || 'auto' }
  : {};

/**
 * A server of raw TLS, as `tls.createServer` makes it.
 * @returns {import('node:tls').Server}
 */
function createTLSServer(options, onSecureConnection) {
  if (typeof options === 'function') return createTLSServer({}, options);
  const all = { ...defaults, ...options };
  return isSealane
    ? package_.createTLSServer(all, onSecureConnection)
    : tls.createServer(all, onSecureConnection);
}

/**
 * A server of HTTP/1 over TLS, as `https.createServer` makes it.
 * @returns {import('node:https').Server}
 */
function createServer(options, onRequest) {
  if (typeof options === 'function') return createServer({}, options);
  const all = { ...defaults, ...options };
  return isSealane ? package_.createServer(all, onRequest) : https.createServer(all, onRequest);
}

/**
 * Gives an HTTP server of any kind (of http, http2 or a framework) its TLS: Sealane by `attach`.
 * There is no such function in node, where the caller makes a secure server from the start.
 */
function attach(server, options) {
  return package_.attach(server, { ...defaults, ...options });
}

/** `tls.createSecureContext`, or Sealane's. */
function createSecureContext(options) {
  return (isSealane ? package_ : tls).createSecureContext(options);
}

/**
 * For intended differences between Sealane and node: has both values, returns the one that counts.
 * @template T
 * @param {{ node: T, sealane: T }} both
 * @returns {T}
 */
function differs(both) {
  return both[name];
}

/** The reason why a test runs only against Sealane, or `false` there: for node:test's `skip`. */
const onlySealane = isSealane ? false : 'node has no such thing';
/** The reason why a test runs only against node, or `false` there. */
const onlyNode = isSealane ? 'Sealane does not offer it' : false;

module.exports = {
  attach,
  createSecureContext,
  createServer,
  createTLSServer,
  defaults,
  differs,
  isSealane,
  name,
  onlyNode,
  onlySealane,
  package: package_,
  Server: isSealane ? package_.Server : https.Server,
  TLSServer: isSealane ? package_.TLSServer : tls.Server,
  TLSSocket: isSealane ? package_.TLSSocket : tls.TLSSocket,
};
