'use strict';

// Our sockets as instances of node's tls.TLSSocket, and so of its net.Socket: programs ask by
// `instanceof` whether a client is encrypted and has shown a certificate.

const tls = require('node:tls');

/**
 * Lets sockets of a class inherit from node's tls.TLSSocket without running its constructor.
 * Methods that it, or net.Socket, overrides of the class's base use a handle of node's, so the
 * base's own ones are put back.
 *
 * @param {object} prototype of the class
 * @param {object} base prototype of its constructor: a stream, or net.Socket
 */
function inheritFromNode(prototype, base) {
  Object.setPrototypeOf(prototype, tls.TLSSocket.prototype);
  for (let from = tls.TLSSocket.prototype; from !== base; from = Object.getPrototypeOf(from)) {
    for (const name of Reflect.ownKeys(from)) {
      const original = propertyOf(base, name);
      if (original !== undefined && !Object.hasOwn(prototype, name)) {
        Object.defineProperty(prototype, name, original);
      }
    }
  }
}

function propertyOf(object, name) {
  // The root of the chain is another realm's `Object.prototype` where a test runner loads this file
  // in a separate context, as Jest does.
  for (let from = object, next; ; from = next) {
    next = Object.getPrototypeOf(from);
    if (next === null) return undefined;
    const property = Object.getOwnPropertyDescriptor(from, name);
    if (property !== undefined) return property;
  }
}

module.exports = { inheritFromNode };
