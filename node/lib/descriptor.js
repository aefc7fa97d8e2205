'use strict';

// A connection with its plaintext in a socketpair: for HTTP/2, which node drives best on a
// descriptor. The socket is node's own. Only the peer's identity is added here.

const { AsyncResource } = require('node:async_hooks');
const net = require('node:net');
const { Command, Option } = require('./message.js');
const { defineIdentity, kChannel } = require('./identity.js');
const { inheritFromNode } = require('./inherited.js');
const { Opened } = require('./open.js');

/** The state of a connection on a descriptor. A command without room in the ring is dropped. */
class DescriptorChannel {
  /**
   * @param {import('./lane.js').Lane} lane
   * @param {number} slot low half of the connection's id
   * @param {number} generation high half
   * @param {string} opened payload of OPEN, a character per byte
   */
  constructor(lane, slot, generation, opened) {
    this.lane = lane;
    this.slot = slot;
    this.generation = generation;
    this.opened = opened;
    this.identity = new Opened(opened);
    this.socket = null;
    this.scope = new AsyncResource('SEALANESOCKET');
    this.pass = 0;
    this.gone = false;
    this.pending = null;
  }

  /** DATA comes by the descriptor. */
  data(ring) {
    ring.advance();
  }

  /** END comes by the descriptor. */
  clientEnded() {}

  /** The kernel counts for itself. */
  credited() {}

  /**
   * CLOSE: the descriptor shows an end, but not whether it was a reset.
   * @param {Error | null} error
   */
  closed(error) {
    this.gone = true;
    this.lane.forget(this);
    if (error !== null) this.socket.destroy(error);
  }

  /**
   * The socket is closed: nothing more is sent, because the lane's memory may be another's next.
   */
  left() {
    this.gone = true;
    this.lane.forget(this);
  }

  reset() {
    this.#say(Command.RESET, 0, 0, 0);
  }

  setNoDelay(on) {
    this.#say(Command.OPTION, 8, Option.NO_DELAY, on ? 1 : 0);
  }

  setKeepAlive(after) {
    this.#say(Command.OPTION, 8, Option.KEEP_ALIVE, after);
  }

  #say(kind, length, first, second) {
    const { commands } = this.lane;
    if (this.gone || !commands.fits(length)) return;
    commands.control(kind, this.slot, this.generation, length, first, second);
    this.lane.commanded();
  }
}

/** Node's socket on a descriptor that a lane reads and writes. */
class DescriptorSocket extends net.Socket {
  constructor(channel, descriptor) {
    const { allowHalfOpen, highWaterMark, pauseOnConnect, server } = channel.lane.options;
    // Reads from the start as a socket that node has accepted: http2 counts on it.
    const manualStart = pauseOnConnect === true;
    super({ fd: descriptor, allowHalfOpen, highWaterMark, manualStart });
    this[kChannel] = channel;
    this.encrypted = true;
    this.server = server;
  }

  resetAndDestroy() {
    this[kChannel].reset();
    return this.destroy();
  }

  setNoDelay(enable = true) {
    this[kChannel].setNoDelay(Boolean(enable));
    return this;
  }

  setKeepAlive(enable = false, initialDelay = 0) {
    const seconds = Math.min(Math.max(Math.floor(initialDelay / 1000) || 0, 0), 0x7fff);
    this[kChannel].setKeepAlive(enable ? seconds + 1 : 0);
    return this;
  }

  _destroy(error, done) {
    this[kChannel]?.left();
    super._destroy(error, done);
  }
}

defineIdentity(DescriptorSocket.prototype);
inheritFromNode(DescriptorSocket.prototype, net.Socket.prototype);

/**
 * Node's socket for a connection that came with a descriptor in its OPEN.
 * @param {DescriptorChannel} channel
 * @param {number} descriptor
 */
function fromDescriptor(channel, descriptor) {
  const socket = new DescriptorSocket(channel, descriptor);
  channel.socket = socket;
  return socket;
}

module.exports = { DescriptorChannel, fromDescriptor };
