'use strict';

// A connection with its plaintext in the rings, with the interface of node's tls.TLSSocket.

const { Duplex } = require('node:stream');
const { invalidType, outOfRange } = require('./errors.js');
const { systemError } = require('./closing.js');
const { defineIdentity, kChannel } = require('./identity.js');
const { inheritFromNode } = require('./inherited.js');
const { arm, disarm } = require('./timeout.js');

/** The key for making sockets: only this package has it. */
const INTERNAL = Symbol('internal');

/** The longest time of node's timers. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

/**
 * The options of the sockets of one server.
 * @param {{ allowHalfOpen?: boolean, highWaterMark?: number }} options
 */
function streamOptions({ allowHalfOpen = false, highWaterMark, server }) {
  return {
    allowHalfOpen,
    highWaterMark,
    server,
    // Strings are encoded in place in the ring.
    decodeStrings: false,
    // 'close' has whether there was an error, as that of net.Socket does.
    emitClose: false,
  };
}

/** One client of a lane. Servers make them. */
class TLSSocket extends Duplex {
  /**
   * @param {symbol} key
   * @param {import('./channel.js').Channel} channel
   */
  constructor(key, channel) {
    if (key !== INTERNAL) {
      const text = 'a TLSSocket has no constructor: servers make them; use tls.connect for clients';
      throw Object.assign(new TypeError(text), { code: 'ERR_ILLEGAL_CONSTRUCTOR' });
    }
    const options = channel.lane.options;
    super(options);
    this[kChannel] = channel;
    this.encrypted = true;
    this.connecting = false;
    this.server = options.server;
    this.timeout = undefined;
    this._hadError = false;
    this._parent = null;
    this._unreferenced = false;
    // Else each chunk costs a tick that asks for more, which a lane sends without being asked.
    this._readableState.readingMore = true;
  }

  _read() {
    this[kChannel].read();
  }

  _write(chunk, encoding, done) {
    this[kChannel].write(chunk, encoding, done);
  }

  _writev(chunks, done) {
    this[kChannel].writev(chunks, done);
  }

  _final(done) {
    this[kChannel].end();
    done();
  }

  _destroy(error, done) {
    const channel = this[kChannel];
    disarm(channel);
    channel.destroy();
    this._hadError = error !== null;
    done(error);
    channel.lane.closes(channel);
  }

  write(chunk, encoding, done) {
    if (this.writableEnded && this[kChannel].ended && !this.allowHalfOpen) {
      return writeAfterEnd(this, encoding, done);
    }
    return super.write(chunk, encoding, done);
  }

  /** Code that puts TLS over a socket without a handle, as node does, waits for it to connect. */
  once(event, listener) {
    if (event !== 'connect') return super.once(event, listener);
    process.nextTick(() => this.destroyed || listener.call(this));
    return this;
  }

  /** Ends, and closes when all that was written is on its way. */
  destroySoon() {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', this.destroy);
  }

  /** Closes with a reset. */
  resetAndDestroy() {
    this[kChannel].resetting = true;
    return this.destroy();
  }

  /**
   * Emits 'timeout' after this many milliseconds without a byte.
   * @param {number} msecs 0: never
   * @param {() => void} [callback] a listener for one 'timeout'
   */
  setTimeout(msecs, callback) {
    if (this.destroyed) return this;
    const after = timeoutOf(msecs);
    if (callback !== undefined && typeof callback !== 'function') {
      throw invalidType('callback', 'of type function', callback);
    }
    this.timeout = msecs;
    const channel = this[kChannel];
    channel.idleAfter = after;
    if (after === 0) {
      if (callback !== undefined) this.removeListener('timeout', callback);
      return this;
    }
    channel.activeAt = channel.lane.clock();
    arm(channel);
    if (callback !== undefined) this.once('timeout', callback);
    return this;
  }

  _onTimeout() {
    this.emit('timeout');
  }

  /** @param {boolean} [enable] whether small writes leave at once */
  setNoDelay(enable = true) {
    this[kChannel].setNoDelay(Boolean(enable));
    return this;
  }

  /**
   * @param {boolean} [enable]
   * @param {number} [initialDelay] milliseconds without a byte before the first probe
   */
  setKeepAlive(enable = false, initialDelay = 0) {
    const seconds = Math.min(Math.max(Math.floor(initialDelay / 1000) || 0, 0), 0x7fff);
    this[kChannel].setKeepAlive(enable ? seconds + 1 : 0);
    return this;
  }

  /** While it lives, it keeps the process alive; so it is from the start. */
  ref() {
    return this.#reference(true);
  }

  /** It does not keep the process alive. */
  unref() {
    return this.#reference(false);
  }

  #reference(keeps) {
    if (this._unreferenced === keeps && !this.destroyed) {
      this._unreferenced = !keeps;
      this[kChannel].lane.keepAlive(this, keeps);
    }
    return this;
  }

  get pending() {
    return this.destroyed;
  }

  get readyState() {
    if (this.readable) return this.writable ? 'open' : 'readOnly';
    return this.writable ? 'writeOnly' : 'closed';
  }

  get bufferSize() {
    return this.writableLength;
  }

  get bytesRead() {
    return this[kChannel].bytesIn;
  }

  /** Includes bytes that wait to be handed over. */
  get bytesWritten() {
    const channel = this[kChannel];
    let bytes = channel.bytesOut + channel.pendingBytes;
    for (const { chunk, encoding } of this._writableState.getBuffer()) {
      bytes += typeof chunk === 'string' ? Buffer.byteLength(chunk, encoding) : chunk.length;
    }
    return bytes;
  }

  get _connecting() {
    return this.connecting;
  }
}

defineIdentity(TLSSocket.prototype);
inheritFromNode(TLSSocket.prototype, Duplex.prototype);
// Node's http would read by itself from one that has a handle.
Object.defineProperty(TLSSocket.prototype, '_handle', {
  configurable: true,
  value: null,
  writable: true,
});

/**
 * The error of a write after the end. The usual text would blame the program for the client's
 * close.
 */
function writeAfterEnd(socket, encoding, done) {
  const callback = typeof encoding === 'function' ? encoding : done;
  const error = systemError('write', 'EPIPE');
  error.message = 'This socket has been ended by the other party';
  if (typeof callback === 'function') process.nextTick(callback, error);
  socket.destroy(error);
  return false;
}

function timeoutOf(msecs) {
  if (typeof msecs !== 'number') throw invalidType('msecs', 'of type number', msecs);
  if (!(msecs >= 0 && Number.isFinite(msecs))) {
    throw outOfRange('msecs', 'a non-negative finite number', msecs);
  }
  if (msecs > TIMEOUT_MS_MAX) {
    const text =
      `${msecs} does not fit into a 32-bit signed integer.\n` +
      `Timer duration was truncated to ${TIMEOUT_MS_MAX}.`;
    process.emitWarning(text, 'TimeoutOverflowWarning');
    return TIMEOUT_MS_MAX;
  }
  return msecs === 0 ? 0 : Math.max(1, msecs);
}

module.exports = { INTERNAL, TLSSocket, streamOptions };
