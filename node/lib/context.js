'use strict';

// Secure contexts: certificates, keys and versions, parsed and validated once, used by any number
// of servers and names.

const { isIP } = require('node:net');
const { domainToASCII } = require('node:url');
const { invalidType, invalidValue } = require('./errors.js');
const { native } = require('./native.js');
const { CALLS, OPTIONS, defaultAuthorities, meaning, readOptions } = require('./options.js');

/** Names of the methods of contexts that only servers use. */
const contextKeys = Object.freeze({
  again: Symbol('again'),
  forServer: Symbol('forServer'),
  hasFiles: Symbol('hasFiles'),
  material: Symbol('material'),
  reread: Symbol('reread'),
});
const { again, forServer, hasFiles, material, reread } = contextKeys;

/**
 * The settings that a server adds to each context that it uses, in node's terms: options of the
 * server.
 */
const PLAIN_HTTPS = Object.freeze({
  alpn: ['http/1.1'],
  keyLog: false,
  rejectUnauthorized: true,
  requestCert: false,
});

/**
 * Parses and validates at once, on this thread.
 *
 * @param {object} [options] those of tls.createSecureContext
 * @returns {SecureContext}
 */
function createSecureContext(options) {
  const context = secureContextOf(readOptions(options, CALLS.createSecureContext).context);
  context[forServer](PLAIN_HTTPS);
  return context;
}

/**
 * The same off the thread: keys and certificates are parsed elsewhere.
 *
 * @param {object} [options]
 * @returns {Promise<SecureContext>}
 */
async function createSecureContextAsync(options) {
  const context = secureContextOf(readOptions(options, CALLS.createSecureContext).context);
  await context[reread](PLAIN_HTTPS);
  return context;
}

/** @param {Record<string, any>} read the group `context` of `readOptions` */
function secureContextOf(read) {
  return new SecureContext(INTERNAL, meaning(read));
}

/** Immutable. One is made by `createSecureContext`. */
class SecureContext {
  #settings;
  /** The addon's contexts by the server's settings. */
  #made = new Map();

  constructor(key, settings) {
    if (key !== INTERNAL) {
      throw invalidValue('SecureContext', undefined, 'has no constructor', INSTEAD);
    }
    this.#settings = settings;
  }

  /** Names that the certificates are for. */
  get names() {
    return this.#any().names();
  }

  /** Certificate chains, each from the server's own certificate upwards, as DER. */
  get certificates() {
    return this.#any().certificates();
  }

  /** Oddities of the certificates, which are served all the same. */
  get warnings() {
    return this.#any().warnings();
  }

  /** Whether certificates are read from files, which `reload` reads again. */
  get [hasFiles]() {
    return this.#settings.directory.length > 0;
  }

  /**
   * The addon's context for a server with these settings.
   *
   * @param {typeof PLAIN_HTTPS} settings
   */
  [forServer](settings) {
    const key = JSON.stringify(settings);
    return this.#made.get(key) ?? this.#keep(key, native().Context.create(this.#all(settings)));
  }

  /**
   * Parses, and reads files, again and off the thread.
   *
   * @param {typeof PLAIN_HTTPS} settings
   */
  async [reread](settings) {
    const context = await native().Context.createAsync(this.#all(settings));
    return this.#keep(JSON.stringify(settings), context);
  }

  /**
   * The options by which node's own TLS serves this name, or no name, as a server with these
   * settings does.
   *
   * @param {typeof PLAIN_HTTPS} settings
   * @param {string} name
   */
  [material](settings, name) {
    return { ...this.#all(settings), identities: this[forServer](settings).identities(name) };
  }

  /** One with the same options that has parsed nothing yet. */
  [again]() {
    return new SecureContext(INTERNAL, this.#settings);
  }

  #all(settings) {
    const { ca, ...own } = this.#settings;
    const all = { ...own, ...settings };
    if (settings.requestCert) {
      all.ca = ca.length > 0 ? ca : defaultAuthorities();
      // As in node: without `ca` clients get no names of authorities, and any certificate is
      // judged.
      all.caNamed = ca.length > 0;
    }
    return all;
  }

  #any() {
    return this.#made.values().next().value ?? this[forServer](PLAIN_HTTPS);
  }

  #keep(key, made) {
    if (this.#made.size >= MADE_MAX) {
      this.#made.delete(this.#made.keys().next().value);
    }
    this.#made.set(key, made);
    return made;
  }
}

/**
 * A context as the caller gave it: one of ours, or the options of one.
 *
 * @param {unknown} value
 * @param {string} name of the argument
 */
function asSecureContext(value, name) {
  if (value instanceof SecureContext) {
    return value;
  }
  if (value === null || typeof value !== 'object') {
    throw invalidType(name, 'a SecureContext, or the options of one', value);
  }
  if (value.context !== undefined && value.constructor?.name === 'SecureContext') {
    throw invalidValue(name, undefined, "is a SecureContext of node's tls", INSTEAD);
  }
  const given = Object.keys(value);
  if (given.length > 0 && !given.some((option) => Object.hasOwn(OPTIONS, option))) {
    throw invalidValue(name, undefined, `has no option of a context, but ${given[0]}`, INSTEAD);
  }
  return createSecureContext(value);
}

/**
 * The name of `addContext` in the form in which clients send it: ASCII, lower case.
 *
 * @param {unknown} servername
 */
function asServerName(servername) {
  if (typeof servername !== 'string') {
    throw invalidType('servername', 'of type string', servername);
  }
  const wildcard = servername.startsWith('*.');
  const rest = wildcard ? servername.slice(2) : servername;
  const ascii = rest.includes('*') || isIP(rest) ? '' : domainToASCII(rest).replace(/\.$/, '');
  if (ascii === '') {
    throw invalidValue(
      'servername',
      servername,
      'is no host name',
      "give one such as 'a.example' or '*.example', or use SNICallback",
    );
  }
  return wildcard ? `*.${ascii}` : ascii;
}

const INTERNAL = Symbol('internal');
const INSTEAD = 'make one with createSecureContext of this package';
/** The count of servers with different settings that one context is kept ready for. */
const MADE_MAX = 8;

module.exports = {
  SecureContext,
  asSecureContext,
  asServerName,
  contextKeys,
  createSecureContext,
  createSecureContextAsync,
  secureContextOf,
};
