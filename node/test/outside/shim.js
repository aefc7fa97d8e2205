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

/** What the contexts that node made were made from. */
const optionsOf = new WeakMap();

/** A context of Sealane's in place of one of node's, which gives its key to nobody. */
function ours(context) {
  const options = optionsOf.get(context);
  return options === undefined ? context : sealane.createSecureContext(options);
}

/** The same options, but for what is made of node's contexts. */
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

/** A class of servers that takes what was written for node's: also called as a function. */
function standIn(Server, NodeServer) {
  class Seen extends Server {
    /** As before: what is no server of node's own to others does not become one by this file. */
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
    // A class of node's that inherits calls it with what it makes.
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
    // Node says what is wrong with it.
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

/** Whether `attach` is to be told, and not node's server. */
function isOfTLS(name) {
  const option = OPTIONS[name];
  return option !== undefined && (!option.group || CALLS.attach.groups.includes(option.group));
}

syncBuiltinESMExports();
