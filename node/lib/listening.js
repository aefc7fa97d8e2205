'use strict';

// The lanes of a server from one `listen` to their last connection: the addon's server, its rings,
// and the object that net.Server takes for its handle.

const { AsyncResource } = require('node:async_hooks');
const fs = require('node:fs');
const { coded, handshakeError, listenError } = require('./errors.js');
const { FailedSocket } = require('./failed.js');
const { Lane } = require('./lane.js');
const { native } = require('./native.js');

/** One life of a server's lanes. */
class Listening {
  #core;
  #native;
  #lanes;
  #resource = new AsyncResource('SEALANESERVER');
  /** Lanes that have not ended. */
  #up;
  /** Connections that keep the process alive. */
  #keeping = new Set();
  #open = true;
  #unref = false;
  #path;
  #ended;
  /**
   * By lane, clients that wait for SNICallback or failed by the error that it gave: name and error.
   */
  #asked;
  /** Contexts that lanes hold to answer hellos with: the addon's by number, oldest use first. */
  #provided = new Map();

  /**
   * Binds, which fails here and now if it fails.
   *
   * @param {import('./core').LaneServer} core
   * @param {object} where the options of the addon's `bind`
   * @param {() => void} ended called once, when no lane and no thread is left
   */
  constructor(core, where, ended) {
    const { lanes, sockets, ...own } = core.settings();
    this.#core = core;
    this.#ended = ended;
    this.#up = lanes;
    this.#asked = Array.from({ length: lanes }, () => new Map());
    const sink = this.#sink();
    this.#lanes = Array.from({ length: lanes }, (_, number) => new Lane(number, sockets, sink));
    const rings = this.#lanes.map((lane) => lane.rings());
    this.#native = new (native().Server)({ ...own, lanes, rings }, (lane) =>
      this.#lanes[lane].drain(),
    );
    for (const lane of this.#lanes) {
      lane.attach(this.#native);
    }
    endWithProcess(this);
    this.#bind(where);
  }

  /** net.Server's `_handle`. */
  handle;

  #bind(where) {
    let bound;
    try {
      bound = this.#native.bind(where);
    } catch (error) {
      this.#native.unref();
      this.#stop();
      const unspecified = where.port === undefined ? undefined : '::';
      throw listenError(error, where.host ?? where.path ?? unspecified, where.port);
    }
    this.#path = where.path;
    this.handle = {
      close: (done) => this.#close(done),
      getAsyncId: () => this.#resource.asyncId(),
      hasRef: () => !this.#unref,
      ref: () => this.#setUnref(false),
      unref: () => this.#setUnref(true),
      // A socket with a path has none: net.Server then returns the path that it was given.
      ...(bound !== null &&
        typeof bound === 'object' && { getsockname: (out) => Object.assign(out, bound) && 0 }),
    };
  }

  /** Resolves when the lanes accept connections. */
  async start() {
    this.publish(this.#core.published());
    await this.#native.start();
  }

  get accepting() {
    return this.#open;
  }

  publish({ context, named, blocked }) {
    this.#native.publish(context, named, blocked);
  }

  setTicketKeys(keys) {
    this.#native.setTicketKeys(keys);
  }

  stats() {
    const { lanes } = this.#native.stats();
    return { lanes: lanes.map((counts, i) => ({ ...counts, ...this.#lanes[i].depths() })) };
  }

  /** Sends all written data before the process, or the worker, is gone. */
  endNow() {
    for (const lane of this.#lanes) {
      lane.finish();
    }
    this.#native.stopNow();
  }

  /** Takes down the remains of a failed start. */
  abort() {
    this.#shut();
    this.#finish();
  }

  #close(done) {
    if (this.#open) {
      this.#shut();
      this.#native.drain();
    }
    done?.();
  }

  #shut() {
    if (this.#open && this.#path !== undefined && this.#path[0] !== '\0') {
      unlink(this.#path);
    }
    this.#open = false;
  }

  #setUnref(unref) {
    this.#unref = unref;
    this.#keepAlive();
  }

  /** As with node's own, a server keeps the process alive, and so does each of its connections. */
  #keepAlive() {
    if (this.#up > 0 && (!this.#unref || this.#keeping.size > 0)) {
      this.#native.ref();
    } else {
      this.#native.unref();
    }
  }

  /** Receives the messages of lanes, each in the scope of its connection. */
  #sink() {
    return {
      certificate: (id) => this.#core.certificate(id),
      down: (lane, text) => this.#down(lane, text),
      failed: (lane, id, failed) => this.#failed(lane, id, failed),
      hello: (lane, id, name, answer) => this.#hello(lane, id, name, answer),
      keepAlive: (socket, keeps) => this.#keepSocket(socket, keeps),
      keylog: (socket, lines) => this.#core.keylog(socket, lines),
      open: (_lane, socket) => this.#opened(socket),
    };
  }

  #opened(socket) {
    if (!this.#core.admits(socket)) {
      return;
    }
    this.#keepSocket(socket, true);
    socket.once('close', () => {
      this.#keepSocket(socket, false);
      this.#core.closed();
    });
    this.#core.connection(socket);
  }

  /** Whether this connection keeps the process alive: until it ends, or is unref'd. */
  #keepSocket(socket, keeps) {
    const before = this.#keeping.size;
    if (keeps && !socket.destroyed) {
      this.#keeping.add(socket);
    } else {
      this.#keeping.delete(socket);
    }
    if ((before === 0) !== (this.#keeping.size === 0)) {
      this.#keepAlive();
    }
  }

  #failed(lane, id, failed) {
    const asked = this.#asked[lane.number];
    const { error, name } = asked.get(id) ?? {};
    asked.delete(id);
    const socket = new FailedSocket({ ...failed, servername: name });
    this.#core.failedConnection(socket);
    this.#core.handshakeFailed(error ?? handshakeError(failed), socket);
  }

  #hello(lane, id, name, answer) {
    if (name === '') {
      answer(null);
      return;
    }
    const asked = this.#asked[lane.number];
    asked.set(id, { error: null, name });
    if (asked.size > ASKED_MAX) {
      // A lane without room does not report each handshake that failed.
      asked.delete(asked.keys().next().value);
    }
    let answered = false;
    const chosen = (error, context) => {
      if (answered) {
        return;
      }
      answered = true;
      if (!error) {
        asked.delete(id);
        answer(context === null ? null : this.#provide(lane, context));
        return;
      }
      // Emitted when the lane reports the end of the handshake, unless it has done so already.
      if (asked.has(id)) {
        asked.set(id, { error, name });
      }
      answer(REFUSE);
    };
    this.#core.choose(name, chosen);
  }

  /** The number of a context that the lane has been given. */
  #provide(lane, context) {
    const id = context.id;
    const lanes = this.#provided.get(id) ?? new Set();
    this.#provided.delete(id);
    this.#provided.set(id, lanes);
    const number = lane.number;
    if (!lanes.has(number)) {
      lanes.add(number);
      this.#native.provide(number, context);
    }
    if (this.#provided.size > PROVIDED_MAX) {
      const [oldest] = this.#provided.keys();
      this.#provided.delete(oldest);
      this.#native.withdraw(oldest);
    }
    return id;
  }

  #down(lane, text) {
    this.#up -= 1;
    if (text) {
      const number = lane.number;
      const message =
        `lane ${number} has ended by a fault of sealane: ${text}. Its connections are gone, and ` +
        'what it served is left to the other lanes; restart the process when you can';
      this.#core.failed(coded('ERR_SEALANE_LANE_DOWN', message, { lane: number }));
    }
    if (this.#up === 0) {
      this.#finish();
    }
  }

  async #finish() {
    this.#up = 0;
    this.#open = false;
    await this.#stop();
    this.#native.unref();
    this.#ended();
  }

  async #stop() {
    try {
      await this.#native.stop();
      living.delete(this);
      if (living.size === 0) {
        process.off('exit', endAll);
      }
      for (const lane of this.#lanes) {
        lane.release();
      }
    } catch (error) {
      this.#core.failed(error);
    }
  }
}

/** Those with running lanes. */
const living = new Set();

function endWithProcess(listening) {
  if (living.size === 0) {
    process.on('exit', endAll);
  }
  living.add(listening);
}

function endAll() {
  for (const listening of living) {
    listening.endNow();
  }
}

function unlink(path) {
  try {
    fs.unlinkSync(path);
  } catch {
    // Another process has removed it before us.
  }
}

/** Handshakes of a lane that are known to have asked: twice as many as it has at once. */
const ASKED_MAX = 8192;
/** The answer to a hello that ends it. */
const REFUSE = -1;
/** Contexts that SNICallback chose and lanes keep ready; the one unused for longest goes first. */
const PROVIDED_MAX = 4096;

module.exports = { Listening };
