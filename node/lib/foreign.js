'use strict';

// Sockets that a program has opened itself, and hands to a server by `emit('connection', socket)`.
// Node's own TLS serves them, with the contexts of the server's lanes.

const { constants, createHash, hkdfSync } = require('node:crypto');
// As they are now: a program may put a server of ours in the place of node's.
const { createSecureContext, createServer } = require('node:tls');
const { contextKeys } = require('./context.js');
const { certificatePem, keyPem } = require('./credentials.js');
const { FailedSocket } = require('./failed.js');
const { kChannel } = require('./identity.js');
const { GROUPS, SCHEMES, SUITES } = require('./offers.js');

/**
 * Replaces the listener of node's tls.Server for connections: those of lanes are done with their
 * handshake, others are given one by node.
 *
 * @param {import('node:tls').Server} server
 * @param {import('./core').LaneServer} core
 */
function takeForeign(server, core) {
  // By itself, and not by its place: the program may have put another listener before it.
  const [beginHandshake] = createServer().listeners('connection');
  server.removeListener('connection', beginHandshake);
  const foreign = new Foreign(server, core);
  server.prependListener('connection', (socket) => {
    if (socket instanceof FailedSocket) {
      return;
    }
    // One of another server's lanes is a stream like any other.
    if (socket[kChannel]?.lane.options.server !== server) {
      foreign.serve(socket);
    }
  });
}

/** A server of node's that never listens, and passes all its events to ours. */
class Foreign {
  #server;
  #core;
  #inner;
  #revision;

  constructor(server, core) {
    this.#server = server;
    this.#core = core;
  }

  /** @param {import('node:stream').Duplex} socket */
  serve(socket) {
    try {
      this.#renew();
    } catch (error) {
      socket.destroy();
      this.#server.emit('tlsClientError', error, socket);
      return;
    }
    this.#inner.emit('connection', socket);
  }

  /** Makes it again once certificates, keys or listeners of the server are others. */
  #renew() {
    const { revision } = this.#core;
    if (this.#revision === revision) {
      return;
    }
    const server = this.#server;
    const inner = innerServer(this.#core.forNode());
    inner.on('secureConnection', (socket) => {
      socket.server = server;
      server.emit('secureConnection', socket);
    });
    inner.on('tlsClientError', (error, socket) => server.emit('tlsClientError', error, socket));
    if (server.listenerCount('keylog') > 0) {
      inner.on('keylog', (line, socket) => server.emit('keylog', line, socket));
    }
    this.#inner = inner;
    this.#revision = revision;
  }
}

/** A server of node's tls with the same settings as the lanes. */
function innerServer(given) {
  const { handshakeTimeout, pauseOnConnect, settings, sessionIdContext, sessionTimeout } = given;
  const { alpn, rejectUnauthorized, requestCert } = settings;
  const contexts = new WeakMap();
  const material = given.context('')[contextKeys.material](settings, '');
  // A lane judges again each client that resumes, and asks SNICallback. OpenSSL does neither.
  const tickets = material.tickets && !requestCert && given.ask === undefined;
  return withoutTraces({ ...material, tickets }, (options) =>
    createServer({
      ...options,
      ALPNProtocols: alpn.length > 0 ? wireOf(alpn) : undefined,
      SNICallback: (name, done) => choose(given, contexts, name, done),
      handshakeTimeout,
      pauseOnConnect,
      rejectUnauthorized,
      requestCert,
      sessionIdContext,
      sessionTimeout,
      ticketKeys: ticketKeysOf(given),
    }),
  );
}

/**
 * The key of tickets that node's TLS seals. They have another form than the lanes', so they do not
 * share a key. They are good where clients are treated alike and every name gets the same
 * certificates.
 */
function ticketKeysOf({ contexts, settings, ticketKey }) {
  const { alpn, rejectUnauthorized, requestCert } = settings;
  const served = createHash('sha256');
  const add = (bytes) => served.update(`${bytes.length}:`).update(bytes);
  add(JSON.stringify({ alpn, rejectUnauthorized, requestCert }));
  for (const [name, context] of contexts) {
    add(name);
    for (const [leaf] of context[contextKeys.forServer](settings).certificates()) {
      add(leaf);
    }
  }
  const info = Buffer.concat([Buffer.from(TICKETS), served.digest()]);
  return Buffer.from(hkdfSync('sha256', ticketKey, '', info, 48));
}

/** Answers a client that names a server as the lanes do. */
function choose(given, contexts, name, done) {
  const chosen = (error, secure) => {
    if (error) {
      done(error);
      return;
    }
    let context;
    try {
      context = nodeContext(contexts, secure, secure[contextKeys.material](given.settings, name));
    } catch (wrong) {
      done(wrong);
      return;
    }
    done(null, context);
  };
  if (given.ask) {
    given.ask(name, chosen);
  } else {
    chosen(null, given.context(name));
  }
}

/** Node's form of one of our contexts, for the certificates that a name gets. */
function nodeContext(contexts, secure, material) {
  const made = contexts.get(secure) ?? new Map();
  contexts.set(secure, made);
  const id = material.identities.map(({ digest }) => digest.toString('base64')).join();
  const context = withoutTraces(
    material,
    (options) => made.get(id) ?? createSecureContext(options),
  );
  made.delete(id);
  made.set(id, context);
  if (made.size > CONTEXTS_MAX) {
    made.delete(made.keys().next().value);
  }
  return context;
}

/**
 * Calls `make` and returns its result. The private keys are in JavaScript's memory no longer than
 * that.
 */
function withoutTraces(material, make) {
  const options = contextOptions(material);
  try {
    return make(options);
  } finally {
    for (const bytes of [...options.key, ...material.identities.map(({ key }) => key)]) {
      bytes.fill(0);
    }
  }
}

/** Options of tls.createSecureContext. The defaults are those of lanes, and not node's. */
function contextOptions({ identities, suites, groups, schemes, ...settings }) {
  const { ca, caNamed, crl, honorCipherOrder, maxVersion, minVersion } = settings;
  const accepted = suites ?? SUITES.map(([name]) => name);
  return {
    ca: caNamed ? ca : undefined,
    cert: identities.map(({ chain }) => chain.map(certificatePem).join('')),
    ciphers: accepted.map((name) => SUITES.find((row) => row[0] === name)[1]).join(':'),
    crl: crl.length > 0 ? crl : undefined,
    ecdhCurve: curvesOf(groups ?? GROUPS.map(([name]) => name)),
    honorCipherOrder,
    key: identities.map(({ key, type }) => keyPem(key, type)),
    maxVersion,
    minVersion,
    secureOptions: settings.tickets ? undefined : constants.SSL_OP_NO_TICKET,
    sigalgs: (schemes ?? SCHEMES.map(([name]) => name)).join(':'),
  };
}

/** Protocols as they are sent, each behind its length. */
function wireOf(protocols) {
  const parts = protocols.map((name) => Buffer.from(`\0${name}`, 'latin1'));
  for (const part of parts) {
    part[0] = part.length - 1;
  }
  return Buffer.concat(parts);
}

/**
 * Curves by OpenSSL's names, without those that the OpenSSL of this node lacks, if others remain.
 */
function curvesOf(groups) {
  const known = groups.filter((name) => name !== HYBRID || HAS_HYBRID);
  return (known.length > 0 ? known : groups)
    .map((name) => GROUPS.find((row) => row[0] === name).at(-1))
    .join(':');
}

const HYBRID = 'X25519MLKEM768';
const HAS_HYBRID = Number.parseFloat(process.versions.openssl) >= 3.5;
const TICKETS = "sealane tickets of node's own TLS";
/** Of one context of ours, for as many groups of certificates; the one unused for longest goes. */
const CONTEXTS_MAX = 256;

module.exports = { takeForeign };
