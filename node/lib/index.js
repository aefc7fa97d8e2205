'use strict';

// TLS off Node's main thread. See index.d.ts for the documentation of each export.

const { attach } = require('./attach.js');
const { SecureContext, createSecureContext, createSecureContextAsync } = require('./context.js');
const { Server, TLSServer, createServer, createTLSServer } = require('./server.js');
const { TLSSocket } = require('./socket.js');

module.exports = {
  SecureContext,
  Server,
  TLSServer,
  TLSSocket,
  attach,
  createSecureContext,
  createSecureContextAsync,
  createServer,
  createTLSServer,
};
