'use strict';

// TLS off Node's main thread. See index.d.ts for what each of these is.

const { attach } = require('./attach');
const { SecureContext, createSecureContext, createSecureContextAsync } = require('./context');
const { Server, TLSServer, createServer, createTLSServer } = require('./server');
const { TLSSocket } = require('./socket');

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
