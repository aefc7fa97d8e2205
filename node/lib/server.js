'use strict';

// The two servers: `Server` is node's https.Server, and `TLSServer` its tls.Server, with
// connections that come from lanes.

const http = require('node:http');
const https = require('node:https');
const net = require('node:net');
const tls = require('node:tls');
const { LaneServer } = require('./core.js');
const { takeForeign } = require('./foreign.js');
const { listen } = require('./listen.js');
const { CALLS, readOptions } = require('./options.js');

/** The property of a server of ours, or of one of node's that is attached, that holds its lanes. */
const CORE = Symbol('sealane');
const REJECTION = Symbol.for('nodejs.rejection');

/**
 * The methods of our servers in addition to inherited ones. `attach` gives the same to a server of
 * node's.
 */
const methods = Object.freeze({
  listen(...args) {
    return listen(this, this[CORE], args);
  },

  setSecureContext(options) {
    // Node's constructor calls it before there are lanes, for a context that is not used.
    this[CORE]?.setSecureContext(options);
  },

  addContext(servername, context) {
    this[CORE].addContext(servername, context);
  },

  removeContext(servername) {
    return this[CORE].removeContext(servername);
  },

  getTicketKeys() {
    return this[CORE].getTicketKeys();
  },

  setTicketKeys(keys) {
    this[CORE].setTicketKeys(keys);
  },

  reload() {
    return this[CORE].reload();
  },

  stats() {
    return this[CORE].stats();
  },

  /** As net.Server. That of Bun does not look at `_handle`. */
  address() {
    if (this._handle?.getsockname === undefined) return this._pipeName ?? null;
    const bound = {};
    this._handle.getsockname(bound);
    return bound;
  },

  /** net.Server asks this after each end of a connection: lanes must have ended too. */
  _emitCloseIfDrained() {
    if (!this[CORE].running) {
      net.Server.prototype._emitCloseIfDrained.call(this);
    }
  },
});

/** An HTTPS server with TLS by lanes. */
class Server extends https.Server {
  /**
   * @param {object | Function} [options] those of https.createServer, and ours
   * @param {Function} [onRequest]
   */
  constructor(options, onRequest) {
    if (typeof options === 'function') {
      onRequest = options;
      options = {};
    }
    const read = readOptions(options, CALLS.createServer);
    read.net.noDelay ??= true;
    super({ ...read.http, ...clientPolicy(read) }, onRequest);
    begin(this, read, ['http/1.1']);
  }

  /**
   * As http.Server: with captureRejections, a request with a failed listener is answered by 500.
   */
  [REJECTION](error, event, ...args) {
    const { prototype } = event === 'secureConnection' ? tls.Server : http.Server;
    prototype[REJECTION].call(this, error, event, ...args);
  }
}

/** A TLS server for any protocol, with TLS by lanes. */
class TLSServer extends tls.Server {
  /**
   * @param {object | Function} [options] those of tls.createServer, and ours
   * @param {Function} [onSecureConnection]
   */
  constructor(options, onSecureConnection) {
    if (typeof options === 'function') {
      onSecureConnection = options;
      options = {};
    }
    const read = readOptions(options, CALLS.createTLSServer);
    super(clientPolicy(read), onSecureConnection);
    begin(this, read, []);
  }
}

/** The options that node's servers have as properties. */
function clientPolicy({ server: { rejectUnauthorized, requestCert } }) {
  return { rejectUnauthorized, requestCert };
}

/**
 * Gives a server its lanes.
 *
 * @param {import('node:net').Server} server
 * @param {Record<string, Record<string, any>>} read
 * @param {string[]} alpn
 */
function begin(server, read, alpn) {
  const core = new LaneServer(server, read, alpn);
  const { allowHalfOpen, noDelay, pauseOnConnect, keepAlive, highWaterMark } = read.net;
  Object.assign(server, {
    allowHalfOpen: allowHalfOpen ?? false,
    keepAlive: keepAlive ?? false,
    noDelay: noDelay ?? false,
    pauseOnConnect: pauseOnConnect ?? false,
  });
  if (highWaterMark !== undefined) {
    server.highWaterMark = highWaterMark;
  }
  Object.defineProperty(server, CORE, { value: core });
  if (server instanceof tls.Server) {
    takeForeign(server, core);
  }
}

function define(target) {
  for (const [name, value] of Object.entries(methods)) {
    Object.defineProperty(target, name, { configurable: true, value, writable: true });
  }
  const listening = {
    configurable: true,
    get() {
      return Boolean(this._handle);
    },
  };
  Object.defineProperty(target, 'listening', listening);
}

define(Server.prototype);
define(TLSServer.prototype);

/** @param {object | Function} [options] @param {Function} [onRequest] */
function createServer(options, onRequest) {
  return new Server(options, onRequest);
}

/** @param {object | Function} [options] @param {Function} [onSecureConnection] */
function createTLSServer(options, onSecureConnection) {
  return new TLSServer(options, onSecureConnection);
}

module.exports = {
  CORE,
  Server,
  TLSServer,
  begin,
  createServer,
  createTLSServer,
  define,
};
