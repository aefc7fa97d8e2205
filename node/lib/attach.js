'use strict';

// Lanes for a server of node's own: http, http2, https or tls.

const http = require('node:http');
const http2 = require('node:http2');
const net = require('node:net');
const tls = require('node:tls');
const { invalidType, invalidValue } = require('./errors.js');
const { CALLS, OPTIONS, readOptions } = require('./options.js');
const { CORE, begin, define } = require('./server.js');

/**
 * Lets a server of node's listen through lanes. It is returned, and its `listen`, `close`, events
 * and all else work as before, with TLS. A server with its own TLS (https, tls, http2's secure
 * server) gets connections after their handshake.
 *
 * @template {import('node:net').Server} S
 * @param {S} server that does not listen
 * @param {object} [options] those of createTLSServer
 * @returns {S}
 */
function attach(server, options) {
  if (!(server instanceof net.Server)) {
    throw invalidType('server', 'a server of http, https, http2, tls or net', server);
  }
  if (server[CORE]) {
    throw invalidValue('server', undefined, 'has lanes already');
  }
  if (server.listening) {
    const instead = 'attach first, then call listen';
    throw invalidValue('server', undefined, 'listens already, without lanes', instead);
  }
  const read = readOptions(options, CALLS.attach);
  if (server instanceof tls.Server) {
    refuseOwnSettings(server, read);
  }
  read.net = { ...ownOfNet(server), noDelay: true, ...read.net };
  begin(server, read, protocolsOf(server));
  define(server);
  return server;
}

/** Throws for settings that would be lost in silence: lanes use the options of `attach` alone. */
function refuseOwnSettings(server, { context, server: given }) {
  const lost = SETTINGS.filter((name) => server[name] && !(name in context) && !(name in given));
  const names = context.certificates ? lost.filter((name) => !CREDENTIALS.includes(name)) : lost;
  if (server._contexts?.length > 0) {
    names.push('addContext');
  }
  const callback = Object.getOwnPropertySymbols(server).find((key) => key.description === SNI);
  if (server[callback] && !given.SNICallback) {
    names.push('SNICallback');
  }
  if (names.length > 0) {
    const reason = `was told of ${names.join(', ')} before, which lanes do not see`;
    throw invalidValue('server', undefined, reason, 'give it to attach too, addContext after it');
  }
}

/**
 * The options that a server of net was made with. An http.Server lets connections be half open by
 * itself.
 */
function ownOfNet(server) {
  const { blockList, highWaterMark, keepAlive, keepAliveInitialDelay, pauseOnConnect } = server;
  const found = {
    allowHalfOpen: server instanceof http.Server ? undefined : server.allowHalfOpen,
    blockList,
    highWaterMark,
    keepAlive,
    // Which node keeps in seconds.
    keepAliveInitialDelay: keepAliveInitialDelay && keepAliveInitialDelay * 1000,
    pauseOnConnect,
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}

/** The protocols of the server, by the names of ALPN. */
function protocolsOf(server) {
  if (server.ALPNProtocols) {
    return OPTIONS.ALPNProtocols.read(server.ALPNProtocols, 'server.ALPNProtocols');
  }
  if (server instanceof http2.createServer().constructor) {
    return ['h2'];
  }
  return server instanceof http.Server ? ['http/1.1'] : [];
}

/** Under which tls.Server keeps its SNICallback. */
const SNI = 'snicallback';
const CREDENTIALS = Object.freeze(['cert', 'key', 'pfx']);
/** By the names under which tls.Server keeps them; those that have no value unless one is given. */
const SETTINGS = Object.freeze([
  ...CREDENTIALS,
  'ca',
  'ciphers',
  'crl',
  'ecdhCurve',
  'maxVersion',
  'minVersion',
  'requestCert',
  'sigalgs',
]);

module.exports = { attach };
