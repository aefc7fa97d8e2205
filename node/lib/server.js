'use strict';

// The two servers: `Server`, to its users node's https.Server, and `TLSServer`, their tls.Server.
// Both are net.Servers whose connections come from lanes.

const http = require('node:http');
const net = require('node:net');
const { LaneServer } = require('./core.js');
const { listen } = require('./listen.js');
const { CALLS, readOptions } = require('./options.js');

/** Where a server of ours, or one of node's that is attached, keeps its lanes. */
const CORE = Symbol('sealane');
const REJECTION = Symbol.for('nodejs.rejection');

/**
 * What every server of ours has beside what it inherits. `attach` gives the same to a server of
 * node's.
 */
const methods = Object.freeze({
  listen(...args) {
    return listen(this, this[CORE], args);
  },

  setSecureContext(options) {
    this[CORE].setSecureContext(options);
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

  /** net.Server asks this after each end of a connection: lanes must have ended too. */
  _emitCloseIfDrained() {
    if (!this[CORE].running) {
      net.Server.prototype._emitCloseIfDrained.call(this);
    }
  },
});

/** An HTTPS server whose TLS is done by lanes: http.Server in all else. */
class Server extends http.Server {
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
    super(read.http, onRequest);
    // node's own HTTP begins where the handshake has ended.
    const [beginHttp] = this.listeners('connection');
    this.removeListener('connection', beginHttp);
    this.on('secureConnection', beginHttp);
    this.on('tlsClientError', giveToClientError);
    begin(this, read, ['http/1.1']);
  }

  [REJECTION](error, event, ...args) {
    rejected(http.Server, this, error, event, args);
  }
}

/** A TLS server for any protocol: to its users node's tls.Server. */
class TLSServer extends net.Server {
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
    super();
    if (onSecureConnection) {
      this.on('secureConnection', onSecureConnection);
    }
    begin(this, read, []);
  }

  [REJECTION](error, event, ...args) {
    rejected(net.Server, this, error, event, args);
  }
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
}

/** As https.Server: a failed handshake is a client's error too, if somebody listens for those. */
function giveToClientError(error, socket) {
  if (!this.emit('clientError', error, socket)) {
    socket.destroy(error);
  }
}

/** With captureRejections, what an async listener throws ends its own connection. */
function rejected(Parent, server, error, event, args) {
  if (event === 'secureConnection') {
    args[0].destroy(error);
  } else {
    Parent.prototype[REJECTION].call(server, error, event, ...args);
  }
}

function define(target) {
  for (const [name, value] of Object.entries(methods)) {
    Object.defineProperty(target, name, { configurable: true, value, writable: true });
  }
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
