'use strict';

// The common part of every kind of server: its contexts, names and ticket keys, and the lanes that
// serve them while it listens.

const { hkdfSync, randomBytes } = require('node:crypto');
const tls = require('node:tls');
const { clusterTicketKeys } = require('./cluster-keys.js');
const {
  SecureContext,
  asSecureContext,
  asServerName,
  contextKeys,
  secureContextOf,
} = require('./context.js');
const { coded, invalidType, invalidValue, unauthorizedError } = require('./errors.js');
const { askGuarded, errorOf } = require('./guarded.js');
const { Listening } = require('./listening.js');
const { CALLS, defaultLanes, readOptions, ticketKeys } = require('./options.js');
const { warnOnce } = require('./warnings.js');

/** The lanes of one server, and the contexts that they serve. */
class LaneServer {
  #server;
  #read;
  #context;
  /** Contexts by server name. */
  #named = new Map();
  #ticketKeys;
  /** By the program: they are not replaced by a cluster's. */
  #hasGivenKeys = false;
  #sessionIdContext;
  #keyLog = false;
  /** One that accepts at most, and those that end their last connections. */
  #listening = new Set();
  /** The addon's contexts by number, of connections that may ask for their certificate. */
  #served = new Map();
  /** Counts changes that matter for sockets that node's own TLS serves. */
  #revision = 0;
  #publishing = false;
  /** The count of rules of the block list that the lanes have. */
  #rules = 0;
  #reloading = Promise.resolve();

  /**
   * @param {import('node:net').Server} server that emits the events
   * @param {Record<string, Record<string, any>>} read its options, from `readOptions`
   * @param {string[]} alpn the protocols of a server that names none
   */
  constructor(server, read, alpn) {
    this.#server = server;
    for (const event of server.eventNames()) {
      refuseEvent(event);
    }
    this.#keyLog = server.listenerCount('keylog') > 0;
    this.#read = { ...read, server: { ALPNProtocols: alpn, ...read.server } };
    this.#setTickets(read.tickets);
    this.#ticketKeys ??= [randomBytes(48)];
    this.#context = secureContextOf(read.context);
    this.#made(this.#context);
    server.on('newListener', (event) => this.#newListener(event));
  }

  get running() {
    return this.#listening.size > 0;
  }

  /**
   * Binds and begins to start lanes. net.Server's `_handle` is set at once.
   *
   * @param {object} where the options of `listen`
   * @param {boolean} sharesTickets whether the workers of a cluster serve this together
   * @param {() => void} listening called when connections are accepted
   */
  bind(where, sharesTickets, listening) {
    const life = new Listening(this, where, () => {
      this.#listening.delete(life);
      this.#server._emitCloseIfDrained();
    });
    this.#listening.add(life);
    const server = this.#server;
    server._handle = life.handle;
    if (server._unref) {
      life.handle.unref();
    }
    const starting = sharesTickets ? this.#shareTickets().then(() => life.start()) : life.start();
    starting.then(
      () => life.accepting && listening(),
      (error) => {
        if (server._handle === life.handle) {
          server._handle = null;
        }
        life.abort();
        server.emit('error', error);
      },
    );
  }

  /** The settings for the addon's server and the sockets. */
  settings() {
    const { lanes, net, server, tickets } = this.#read;
    return {
      choose: server.SNICallback !== undefined,
      context: this.generation().context,
      handover: lanes.handover ?? 'auto',
      handshakeTimeout: server.handshakeTimeout ?? HANDSHAKE_TIMEOUT_MS,
      keepAlive: net.keepAlive ? Math.floor((net.keepAliveInitialDelay ?? 0) / 1000) : undefined,
      lanes: lanes.lanes ?? defaultLanes(),
      maxPending: lanes.maxPending ?? PENDING_MAX,
      noDelay: net.noDelay ?? false,
      pin: lanes.pinLanes ?? false,
      sessionTimeout: tickets.sessionTimeout ?? SESSION_TIMEOUT_S,
      shutdownTimeout: server.shutdownTimeout ?? SHUTDOWN_TIMEOUT_MS,
      sockets: {
        allowHalfOpen: net.allowHalfOpen ?? false,
        highWaterMark: net.highWaterMark,
        pauseOnConnect: net.pauseOnConnect ?? false,
        server: this.#server,
      },
      ticketKeys: this.#sealedKeys(),
    };
  }

  /** The contexts that lanes serve now, and the rules by which they reject clients. */
  generation() {
    return {
      blocked: this.#read.net.blockList?.rules ?? [],
      context: this.#made(this.#context),
      named: [...this.#named].map(([name, context]) => [name, this.#made(context)]),
    };
  }

  /** The same, for lanes that get it at once. */
  published() {
    const generation = this.generation();
    this.#rules = generation.blocked.length;
    return generation;
  }

  /** @param {object} options those of createSecureContext, ticketKeys, ...; or a context */
  setSecureContext(options) {
    if (options instanceof SecureContext) {
      this.#made(options);
      this.#context = options;
    } else {
      if (options === null || typeof options !== 'object') {
        throw invalidType('options', 'of type object', options);
      }
      const read = readOptions(options, CALLS.setSecureContext);
      this.#refuseNewTimeout(read.tickets);
      const context = secureContextOf(read.context);
      this.#made(context);
      this.#context = context;
      this.#setTickets(read.tickets);
      this.#publishTickets();
    }
    this.#publish();
  }

  /** @param {string} servername @param {object} context */
  addContext(servername, context) {
    if (!servername) {
      throw coded('ERR_TLS_REQUIRED_SERVER_NAME', 'addContext needs a server name');
    }
    const name = asServerName(servername);
    const secure = asSecureContext(context, 'context');
    this.#made(secure);
    this.#named.set(name, secure);
    this.#publish();
  }

  /** @param {string} servername @returns {boolean} whether there was one */
  removeContext(servername) {
    const had = this.#named.delete(asServerName(servername));
    if (had) {
      this.#publish();
    }
    return had;
  }

  /** Reads certificate files again, off the thread. On an error all stays as it was. */
  reload() {
    const run = () => this.#reload();
    const reloading = this.#reloading.then(run, run);
    this.#reloading = reloading.catch(() => {});
    return reloading;
  }

  async #reload() {
    const settings = this.#forContexts();
    const before = [this.#context, ...this.#named.values()];
    const withFiles = before.filter((context) => context[contextKeys.hasFiles]);
    if (withFiles.length === 0) {
      throw coded(
        'ERR_SEALANE_NO_FILES',
        'no certificate of this server is read from files: give their paths as ' +
          'options.certificates, or call setSecureContext with new ones',
      );
    }
    const fresh = new Map();
    for (const context of new Set(withFiles)) {
      const again = context[contextKeys.again]();
      await again[contextKeys.reread](settings);
      fresh.set(context, again);
    }
    // A context that was set or added in the meantime is newer than these.
    this.#context = fresh.get(this.#context) ?? this.#context;
    for (const [name, context] of this.#named) {
      this.#named.set(name, fresh.get(context) ?? context);
    }
    this.#publish();
  }

  /** The key that seals tickets now. */
  getTicketKeys() {
    return Buffer.from(this.#ticketKeys[0]);
  }

  /** @param {Buffer | Buffer[]} keys the first seals, all of them open */
  setTicketKeys(keys) {
    if (keys == null) {
      throw invalidType('keys', 'an instance of Buffer, or an array of these', keys);
    }
    this.#setTickets({ ticketKeys: ticketKeys(keys, 'keys') });
    this.#publishTickets();
  }

  /** Clients resume at every worker, unless the program has given keys. */
  async #shareTickets() {
    if (this.#hasGivenKeys) return;
    const keys = await clusterTicketKeys();
    if (keys !== null && !this.#hasGivenKeys) {
      this.#ticketKeys = keys;
      this.#publishTickets();
    }
  }

  stats() {
    return { lanes: [...this.#listening].flatMap((life) => life.stats().lanes) };
  }

  /**
   * Counts a connection after its handshake, unless it is one too many.
   *
   * @returns {boolean} whether it may stay
   */
  admits(socket) {
    if (this.#isUnauthorized(socket)) {
      socket.destroy();
      this.handshakeFailed(unauthorizedError(socket), socket);
      return false;
    }
    if (this.#refuses(socket)) {
      socket.destroy();
      return false;
    }
    this.#server._connections += 1;
    return true;
  }

  /** A connection that was admitted is closed. */
  closed() {
    this.#server._connections -= 1;
    this.#server._emitCloseIfDrained();
  }

  /** Emits the events of a connection that was admitted. */
  connection(socket) {
    const server = this.#server;
    if (this.#read.net.pauseOnConnect) {
      socket.pause();
    }
    // As in node: without a listener for errors, a client's reset does not end the process.
    socket.on('error', ignored);
    server.emit('connection', socket);
    if (!socket.destroyed) {
      server.emit('secureConnection', socket);
    }
  }

  /**
   * Emits 'connection' for a failed handshake, as node does for each socket that it accepts. A
   * server without its own TLS would take the socket for an admitted client.
   */
  failedConnection(socket) {
    if (this.#server instanceof tls.Server) {
      this.#server.emit('connection', socket);
    }
  }

  /** A session that resumes was verified when it began: its certificate may have expired since. */
  #isUnauthorized(socket) {
    const { rejectUnauthorized, requestCert } = this.#read.server;
    return requestCert === true && rejectUnauthorized !== false && !socket.authorized;
  }

  #refuses(socket) {
    const server = this.#server;
    if (server.maxConnections != null && server._connections >= server.maxConnections) {
      const { localAddress, localPort, localFamily } = socket;
      const { remoteAddress, remotePort, remoteFamily } = socket;
      const local = { localAddress, localPort, localFamily };
      server.emit('drop', { ...local, remoteAddress, remotePort, remoteFamily });
      return true;
    }
    const { blockList } = this.#read.net;
    const { remoteAddress, remoteFamily } = socket;
    // Lanes reject by the rules that they have. A rule that is newer is noticed here, once.
    if (!remoteFamily || !blockList?.check(remoteAddress, remoteFamily.toLowerCase())) {
      return false;
    }
    if (blockList.rules.length !== this.#rules) {
      this.#publish();
    }
    return true;
  }

  /** @param {(error: Error | null, context: object | null) => void} chosen gets the addon's */
  choose(name, chosen) {
    this.#ask(name, (context) => context && this.#made(context), chosen);
  }

  /** Asks SNICallback, and passes its answer, as `convert` returns it, to `done`. */
  #ask(name, convert, done) {
    const { SNICallback } = this.#read.server;
    askGuarded(SNICallback, this.#server, name, (error, context) => {
      let converted = null;
      let failure = error;
      if (!failure) {
        try {
          if (isEmpty(context)) throw coded('ERR_INVALID_ARG_VALUE', 'Invalid SNI context');
          const secure = context ? asSecureContext(context, 'the context of SNICallback') : null;
          converted = convert(secure);
        } catch (wrong) {
          failure = errorOf(wrong, 'the context of SNICallback threw');
          // Without a listener for 'tlsClientError' clients would fail for no visible reason.
          const text = `SNICallback gave no context that can be served: ${failure.message}`;
          warnOnce(text, 'SNICallback');
        }
      }
      done(failure || null, failure ? null : converted);
    });
  }

  /** Changes whenever a result of `forNode` changes. */
  get revision() {
    return this.#revision;
  }

  /** The options by which node's own TLS serves the same as the lanes. */
  forNode() {
    const { net, server, tickets } = this.#read;
    const chosen = (name) => this.#contextFor(name);
    return {
      ask:
        server.SNICallback &&
        ((name, done) => this.#ask(name, (context) => context ?? chosen(name), done)),
      context: chosen,
      contexts: [['', this.#context], ...[...this.#named].sort(byName)],
      handshakeTimeout: server.handshakeTimeout ?? HANDSHAKE_TIMEOUT_MS,
      pauseOnConnect: net.pauseOnConnect ?? false,
      sessionIdContext: this.#sessionIdContext,
      sessionTimeout: tickets.sessionTimeout ?? SESSION_TIMEOUT_S,
      settings: this.#forContexts(),
      ticketKey: this.#sealedKeys()[0],
    };
  }

  /** As lanes look names up: as it is, as a wildcard, else the server's own. */
  #contextFor(name) {
    const asked = name.toLowerCase();
    const wildcard = asked.replace(/^[^.]*/, '*');
    return this.#named.get(asked) ?? this.#named.get(wildcard) ?? this.#context;
  }

  /** The certificate, as DER, of a context that lanes serve or served not long ago. */
  certificate(id) {
    if (!this.#served.has(id)) {
      // Newer ones have pushed it out, though it may still be served: those are remembered again.
      this.generation();
    }
    return this.#served.get(id)?.certificates()[0]?.[0];
  }

  handshakeFailed(error, socket) {
    this.#server.emit('tlsClientError', error, socket);
  }

  keylog(socket, lines) {
    for (const line of lines.toString('latin1').split('\n')) {
      if (line !== '') {
        this.#server.emit('keylog', Buffer.from(`${line}\n`, 'latin1'), socket);
      }
    }
  }

  failed(error) {
    this.#server.emit('error', error);
  }

  /** The addon's context, with the server's settings. */
  #made(secure) {
    const made = secure[contextKeys.forServer](this.#forContexts());
    // Messages of lanes have the lower half of it.
    const id = made.id % 2 ** 32;
    if (!this.#served.has(id)) {
      this.#served.set(id, made);
      if (this.#served.size > SERVED_MAX + this.#named.size) {
        this.#served.delete(this.#served.keys().next().value);
      }
    }
    return made;
  }

  /** The settings that the server adds to each of its contexts. */
  #forContexts() {
    const { ALPNProtocols, rejectUnauthorized, requestCert } = this.#read.server;
    return {
      alpn: ALPNProtocols,
      keyLog: this.#keyLog,
      rejectUnauthorized: rejectUnauthorized ?? true,
      requestCert: requestCert ?? false,
    };
  }

  #setTickets(tickets) {
    this.#hasGivenKeys ||= tickets.ticketKeys !== undefined;
    this.#ticketKeys = tickets.ticketKeys ?? this.#ticketKeys;
    this.#sessionIdContext = tickets.sessionIdContext ?? this.#sessionIdContext;
  }

  #refuseNewTimeout({ sessionTimeout }) {
    const now = this.#read.tickets.sessionTimeout ?? SESSION_TIMEOUT_S;
    if (sessionTimeout !== undefined && sessionTimeout !== now) {
      const reason = `cannot change while the server lives (it is ${now})`;
      const instead = 'give it to createServer';
      throw invalidValue('options.sessionTimeout', sessionTimeout, reason, instead);
    }
  }

  /** Keys as tickets are sealed with: sessions of one context id do not resume under another. */
  #sealedKeys() {
    const id = this.#sessionIdContext;
    if (id === undefined) {
      return this.#ticketKeys;
    }
    const info = `sealane session id context ${id}`;
    return this.#ticketKeys.map((key) => Buffer.from(hkdfSync('sha256', key, '', info, 48)));
  }

  #publishTickets() {
    this.#revision += 1;
    const keys = this.#sealedKeys();
    for (const life of this.#listening) {
      life.setTicketKeys(keys);
    }
  }

  /** Once per tick, however many names change in it. */
  #publish() {
    this.#revision += 1;
    if (this.#publishing || !this.running) {
      return;
    }
    this.#publishing = true;
    process.nextTick(() => {
      this.#publishing = false;
      const generation = this.published();
      for (const life of this.#listening) {
        life.publish(generation);
      }
    });
  }

  #newListener(event) {
    refuseEvent(event);
    if (event === 'keylog' && !this.#keyLog) {
      this.#keyLog = true;
      try {
        // A file that cannot be read again is an 'error' event, and no exception in the event loop.
        this.generation();
      } catch (error) {
        this.#keyLog = false;
        throw error;
      }
      this.#publish();
    }
  }
}

function refuseEvent(event) {
  if (Object.hasOwn(REFUSED_EVENTS, event)) {
    throw invalidValue(`event '${event}'`, undefined, 'is not offered', REFUSED_EVENTS[event]);
  }
}

function ignored() {}

/** Whether options set nothing: such a context can serve no client. */
function isEmpty(context) {
  return context?.constructor === Object && Object.keys(context).length === 0;
}

function byName([one], [other]) {
  return one < other ? -1 : 1;
}

const TICKETS_INSTEAD =
  "sessions live in the client's ticket: give every process the same ticketKeys";

/** Events of node's tls.Server that would never come. */
const REFUSED_EVENTS = Object.freeze({
  __proto__: null,
  OCSPRequest: 'answers of OCSP are not stapled',
  newSession: TICKETS_INSTEAD,
  resumeSession: TICKETS_INSTEAD,
});

/**
 * The count of contexts, in addition to those in use, that are remembered for connections which
 * began under them.
 */
const SERVED_MAX = 1024;
const HANDSHAKE_TIMEOUT_MS = 120_000;
const PENDING_MAX = 1024;
const SESSION_TIMEOUT_S = 300;
const SHUTDOWN_TIMEOUT_MS = 5000;

module.exports = { LaneServer };
