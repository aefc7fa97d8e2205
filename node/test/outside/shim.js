'use strict';

/**
 * Preloaded into programs that were written for node's own tls, https and http2: their servers
 * become Sealane's. Clients, and contexts for clients, stay node's.
 *
 *   NODE_OPTIONS='--require .../shim.js' node program.js
 *
 * With SERVERS_SEEN=FILE, each server that is made adds a byte to this file.
 */

const fs = require('node:fs');
const http2 = require('node:http2');
const https = require('node:https');
const { syncBuiltinESMExports } = require('node:module');
const tls = require('node:tls');
const sealane = require('../..');
const { CALLS, OPTIONS } = require('../../lib/options.js');

const { appendFileSync } = fs;
const seen = process.env.SERVERS_SEEN;

/** The options of the contexts that node made. */
const optionsOf = new WeakMap();

/** A context of Sealane's in place of one of node's, which does not give out its key. */
function ours(context) {
  const options = optionsOf.get(context);
  return options === undefined ? context : sealane.createSecureContext(options);
}

/** The same options, with node's contexts replaced. */
function converted(options) {
  if (typeof options?.SNICallback !== 'function') return options;
  const { SNICallback } = options;
  return {
    ...options,
    SNICallback(name, done) {
      return SNICallback.call(this, name, (error, context, ...rest) => {
        done(error, error ? context : ours(context), ...rest);
      });
    },
  };
}

/** A class of servers that takes options written for node's: also called as a function. */
function standIn(Server, NodeServer) {
  class Seen extends Server {
    /** As before: a server that others do not take for node's does not become one by this file. */
    static [Symbol.hasInstance](value) {
      return Function.prototype[Symbol.hasInstance].call(NodeServer, value);
    }

    constructor(options, ...rest) {
      super(converted(options), ...rest);
      tell();
    }

    addContext(name, context) {
      super.addContext(name, ours(context));
    }

    setSecureContext(options) {
      super.setSecureContext(ours(options));
    }
  }
  return new Proxy(Seen, {
    // A class of node's that inherits calls it with its new object.
    apply: (_target, self, args) =>
      self instanceof Seen ? Reflect.apply(NodeServer, self, args) : new Seen(...args),
  });
}

function tell() {
  if (seen) appendFileSync(seen, '.');
}

const nodes = {
  createSecureContext: tls.createSecureContext,
  createSecureServer: http2.createSecureServer,
};

tls.createSecureContext = function createSecureContext(...args) {
  const context = nodes.createSecureContext.apply(this, args);
  optionsOf.set(context, args[0] ?? {});
  return context;
};

tls.Server = standIn(sealane.TLSServer, tls.Server);
tls.createServer = function createServer(options, listener) {
  return new tls.Server(options, listener);
};

https.Server = standIn(sealane.Server, https.Server);
https.createServer = function createServer(options, listener) {
  return new https.Server(options, listener);
};

http2.createSecureServer = function createSecureServer(options, listener) {
  if (options !== undefined && (options === null || typeof options !== 'object')) {
    // Node reports the error.
    return nodes.createSecureServer(options, listener);
  }
  const entries = Object.entries(options ?? {});
  const server = nodes.createSecureServer(
    Object.fromEntries(entries.filter(([name]) => !isOfTLS(name))),
    listener,
  );
  const own = Object.fromEntries(entries.filter(([name]) => isOfTLS(name)));
  sealane.attach(server, converted(own));
  tell();
  return server;
};

/** Whether it is an option of `attach`, and not of node's server. */
function isOfTLS(name) {
  const option = OPTIONS[name];
  return option !== undefined && (!option.group || CALLS.attach.groups.includes(option.group));
}

syncBuiltinESMExports();
