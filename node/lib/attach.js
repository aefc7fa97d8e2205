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
 * Lets a server of node's listen through lanes: it is returned, and its `listen`, `close`, events
 * and all else work as before, with TLS. Whoever speaks TLS itself (https, tls, http2's secure
 * server) gets connections whose handshake is done.
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
  read.net.noDelay ??= true;
  begin(server, read, protocolsOf(server));
  if (server instanceof tls.Server) {
    // It would begin a handshake of its own.
    const [beginHandshake] = server.listeners('connection');
    server.removeListener('connection', beginHandshake);
  }
  define(server);
  return server;
}

/** What the server speaks, by the names of ALPN. */
function protocolsOf(server) {
  if (server.ALPNProtocols) {
    return OPTIONS.ALPNProtocols.read(server.ALPNProtocols, 'server.ALPNProtocols');
  }
  if (server instanceof http2.createServer().constructor) {
    return ['h2'];
  }
  return server instanceof http.Server ? ['http/1.1'] : [];
}

module.exports = { attach };
