'use strict';

// One connection on a lane, in JavaScript: how far each side may send, waiting data, and its end. A
// channel has one shape and outlives no connection. A message of its lane after the socket is
// destroyed finds no channel, because the id's generation is another.

const { AsyncResource } = require('node:async_hooks');
const { bytesMax, put } = require('./chunk.js');
const {
  CREDIT_BYTES_MIN,
  Command,
  Flag,
  OUT_BYTES_MAX,
  Option,
  PAYLOAD_BYTES_MAX,
  WINDOW_IN,
  WINDOW_OUT,
  WINDOW_OUT_SCARCE,
} = require('./message.js');
const { systemError } = require('./closing.js');
const { arm } = require('./timeout.js');

/** Less than this of a larger write is not worth a message: the rest of the window comes soon. */
const PART_BYTES_MIN = 16384;

const HELD_BYTES_MIN = 16384;

// Commands that wait for room in the lane's ring.
const DUE_END = 1;
const DUE_DESTROY = 2;
const DUE_RESET = 4;
const DUE_CREDIT = 8;
const DUE_NO_DELAY = 16;
const DUE_KEEP_ALIVE = 32;

/** The state of one connection with its bytes in the rings. */
class Channel {
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
    /** The values in `opened`, read at their first use. */
    this.identity = null;
    this.socket = null;
    /** The scope of its listeners, so that no context leaks from one connection into another. */
    this.scope = new AsyncResource('SEALANESOCKET');
    /** The lane's pass in which its last event came. */
    this.pass = 0;
    /** The lane has no such connection any more. */
    this.gone = false;
    this.destroyed = false;
    this.resetting = false;

    // Towards the client.
    this.window = WINDOW_OUT;
    /** The last message that may take flags, and the flush that it belongs to. */
    this.lastAt = 0;
    this.lastFlush = -1;
    this.pending = null;
    this.pendingIndex = 0;
    this.pendingFrom = 0;
    this.pendingBytes = 0;
    this.done = null;
    /** The scope for `done`: that of the write that waited. */
    this.doneScope = null;
    this.ending = false;
    this.due = 0;
    this.stalled = false;
    this.noDelay = 0;
    this.keepAlive = 0;
    this.bytesOut = 0;

    // From the client.
    this.wanted = true;
    this.owed = 0;
    this.held = null;
    this.heldBytes = 0;
    this.ended = false;
    this.bytesIn = 0;

    // Its idle timer, see timeout.js.
    this.idleAfter = 0;
    this.activeAt = 0;
    this.timer = null;
    this.timerAt = 0;
    this.expired = false;
  }

  /**
   * Hands one chunk to the lane.
   * @param {string | Uint8Array} chunk
   * @param {string} encoding
   * @param {(error?: Error | null) => void} done called when all of it is handed over
   */
  write(chunk, encoding, done) {
    if (this.gone) {
      done(systemError('write', 'EPIPE'));
      return;
    }
    this.#touch();
    const bytes = bytesMax(chunk, encoding);
    if (!this.#direct(bytes)) {
      this.#queue([{ chunk, encoding }], done);
      return;
    }
    const ring = this.lane.commands;
    const written = put(ring.bytes, ring.payloadAt(), chunk, encoding);
    if (written > 0) this.#sent(written);
    done();
  }

  /**
   * Hands several chunks to the lane, as one message if they fit.
   * @param {{ chunk: string | Uint8Array, encoding: string }[]} chunks
   * @param {(error?: Error | null) => void} done called when all of it is handed over
   */
  writev(chunks, done) {
    if (this.gone) {
      done(systemError('write', 'EPIPE'));
      return;
    }
    this.#touch();
    let bytes = 0;
    for (let i = 0; i < chunks.length; i++) bytes += bytesMax(chunks[i].chunk, chunks[i].encoding);
    if (!this.#direct(bytes)) {
      this.#queue(chunks, done);
      return;
    }
    const ring = this.lane.commands;
    const start = ring.payloadAt();
    let at = start;
    for (let i = 0; i < chunks.length; i++) {
      at += put(ring.bytes, at, chunks[i].chunk, chunks[i].encoding);
    }
    if (at > start) this.#sent(at - start);
    done();
  }

  /** The clean end of sent data, behind all that was written. */
  end() {
    this.ending = true;
    if (!this.gone) this.#say(DUE_END);
  }

  /** The socket is destroyed: no event reaches it any more. */
  destroy() {
    this.destroyed = true;
    this.#giveWindowBack(WINDOW_OUT);
    this.held = null;
    this.heldBytes = 0;
    this.lane.forget(this);
    const done = this.done;
    this.done = null;
    this.pending = null;
    this.pendingBytes = 0;
    if (done !== null) process.nextTick(done, systemError('write', 'ECANCELED'));
    if (!this.gone) this.#say(this.resetting ? DUE_RESET : DUE_DESTROY);
  }

  /** Emits 'close' of a socket that was destroyed. */
  tellClosed() {
    this.socket.emit('close', this.socket._hadError);
  }

  /** @param {boolean} on whether small writes leave at once */
  setNoDelay(on) {
    this.noDelay = on ? 1 : 0;
    if (!this.gone && !this.destroyed) this.#say(DUE_NO_DELAY);
  }

  /** @param {number} after 0: off; otherwise seconds without a byte before a probe, plus one */
  setKeepAlive(after) {
    this.keepAlive = after;
    if (!this.gone && !this.destroyed) this.#say(DUE_KEEP_ALIVE);
  }

  /** The Readable wants more. */
  read() {
    this.wanted = true;
    if (this.heldBytes > 0) this.#release();
    if (this.ended && this.heldBytes === 0) this.socket.push(null);
    this.#grant();
  }

  /** DATA: the ring's current message is the client's plaintext. */
  data(ring) {
    const length = ring.length;
    this.bytesIn += length;
    this.owed += length;
    this.#touch();
    if (!this.wanted) {
      this.#hold(ring);
      return;
    }
    const socket = this.socket;
    // A chunk that is not consumed at once must not keep others' bytes in memory with it.
    const chunk = ring.copy(socket.readableFlowing === true);
    ring.advance();
    // A listener that reads makes it true, for any result of push, and is not asked again.
    this.wanted = false;
    try {
      if (socket.push(chunk)) this.wanted = true;
    } finally {
      // Also if a listener threw.
      if (socket.readableLength === 0) this.wanted = true;
      this.#grant();
    }
  }

  /** END: the client has ended cleanly. */
  clientEnded() {
    this.#touch();
    this.#finishReading();
  }

  /** CREDIT: this many bytes have left the lane. */
  credited(bytes) {
    this.#giveWindowBack(bytes);
    this.#touch();
    if (this.pending !== null) this.#pump();
  }

  /**
   * CLOSE: the lane has released the connection.
   * @param {Error | null} error for the destruction of the socket
   */
  closed(error) {
    this.gone = true;
    this.due = 0;
    this.#giveWindowBack(WINDOW_OUT);
    this.lane.forget(this);
    const socket = this.socket;
    if (error !== null) {
      socket.destroy(error);
      return;
    }
    // Bytes that have come are still read, and then the socket ends by itself.
    if (socket.readableEnded) {
      socket.end();
    } else {
      socket.once('end', socket.end);
      this.#finishReading();
    }
    if (this.done !== null) this.#complete(systemError('write', 'EPIPE'));
  }

  /**
   * Goes on with data and commands that waited for room.
   * @returns {boolean} false: there is still not enough
   */
  resume() {
    if (this.pending !== null && !this.#pump()) return false;
    const ring = this.lane.commands;
    while (this.due !== 0) {
      if (!ring.fits(8)) {
        this.lane.stall(this);
        return false;
      }
      this.#emit(this.due & -this.due);
    }
    return true;
  }

  #touch() {
    if (this.idleAfter === 0) return;
    this.activeAt = this.lane.clock();
    if (this.expired) arm(this);
  }

  /** Whether so much can go into the ring in one piece, now. */
  #direct(bytes) {
    const ring = this.lane.commands;
    return (
      bytes <= this.#allowed() &&
      bytes <= PAYLOAD_BYTES_MAX &&
      this.lane.stalledCount === 0 &&
      bytes <= ring.contiguous() &&
      ring.fits(bytes)
    );
  }

  /** Bytes that may go now: fewer where many clients do not read, so that they cost a lane less. */
  #allowed() {
    if (this.lane.outBytes <= OUT_BYTES_MAX) return this.window;
    return this.window - (WINDOW_OUT - WINDOW_OUT_SCARCE);
  }

  #giveWindowBack(bytes) {
    const before = this.window;
    this.window = Math.min(before + bytes, WINDOW_OUT);
    this.lane.outBytes -= this.window - before;
  }

  #sent(bytes) {
    const lane = this.lane;
    const again = this.bytesOut > 0;
    this.window -= bytes;
    lane.outBytes += bytes;
    this.bytesOut += bytes;
    this.lastAt = lane.commands.commit(Command.WRITE, this.slot, this.generation, bytes);
    this.lastFlush = lane.flushes;
    lane.wrote(again);
  }

  /**
   * Keeps chunks that cannot go at once as bytes. The stream writes no more before the callback,
   * which limits how much that can be.
   */
  #queue(chunks, done) {
    const pending = [];
    let bytes = 0;
    for (let i = 0; i < chunks.length; i++) {
      const { chunk, encoding } = chunks[i];
      const part = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk;
      if (part.length > 0) pending.push(part);
      bytes += part.length;
    }
    this.pending = pending;
    this.pendingIndex = 0;
    this.pendingFrom = 0;
    this.pendingBytes = bytes;
    // As in node, it is called in the context of the writer. AsyncResource.bind does the same, and
    // takes 4 to 18 us for it.
    this.done = done;
    this.doneScope = new AsyncResource('SEALANEWRITE');
    // In the order of their coming.
    if (this.lane.stalledCount > 0) this.lane.stall(this);
    else this.#pump();
  }

  /**
   * Hands over as much of the pending bytes as the window and the ring take.
   * @returns {boolean} false: it waits for room in the ring
   */
  #pump() {
    while (this.pendingBytes > 0) {
      const wanted = Math.min(this.pendingBytes, PAYLOAD_BYTES_MAX);
      const allowed = this.#allowed();
      if (allowed < Math.min(wanted, PART_BYTES_MIN)) return true;
      if (this.#waitsForRoom()) {
        this.lane.stall(this);
        return false;
      }
      const room = this.lane.commands.room() - 2 * 16;
      this.#sendPart(Math.min(wanted, allowed, room));
    }
    this.#complete(null);
    return true;
  }

  /** Whether the ring has too little room for a part of the pending bytes. */
  #waitsForRoom() {
    return !this.lane.commands.fits(Math.min(this.pendingBytes, PART_BYTES_MIN) + 16);
  }

  #sendPart(bytes) {
    const ring = this.lane.commands;
    let at = 0;
    while (at < bytes) {
      const chunk = this.pending[this.pendingIndex];
      const length = Math.min(chunk.length - this.pendingFrom, bytes - at);
      ring.put(chunk, this.pendingFrom, length, at);
      at += length;
      this.pendingFrom += length;
      if (this.pendingFrom === chunk.length) {
        this.pendingIndex += 1;
        this.pendingFrom = 0;
      }
    }
    this.pendingBytes -= bytes;
    this.#sent(bytes);
  }

  #complete(error) {
    const done = this.done;
    this.done = null;
    this.pending = null;
    this.pendingBytes = 0;
    this.doneScope.runInAsyncScope(done, undefined, error);
  }

  #say(what) {
    this.due |= what;
    const lane = this.lane;
    const flags = this.lastFlush === lane.flushes ? FLAGS_OF[what] : 0;
    // A flag on a message that the lane has not seen needs no room. DESTROY is one of END only.
    if (flags !== 0 && (what === DUE_END ? this.pending === null : this.#ended())) {
      lane.commands.flag(this.lastAt, flags);
      this.due &= ~what;
    } else if (lane.stalledCount === 0 && lane.commands.fits(8)) {
      this.#emit(what);
    } else {
      lane.stall(this);
    }
  }

  /** Whether the end was sent, and all that was written before it. */
  #ended() {
    return this.ending && (this.due & DUE_END) === 0;
  }

  #emit(what) {
    const lane = this.lane;
    const ring = lane.commands;
    const { slot, generation } = this;
    this.due &= ~what;
    switch (what) {
      case DUE_END:
        this.#emitEnd(0);
        break;
      case DUE_DESTROY:
        // After the end, all that was sent must still arrive. Without one, a client must not take a
        // part for all.
        if (this.ending) this.#emitEnd(Flag.DESTROY);
        else ring.control(Command.DESTROY, slot, generation, 0, 0, 0);
        break;
      case DUE_RESET:
        this.due = 0;
        ring.control(Command.RESET, slot, generation, 0, 0, 0);
        break;
      case DUE_CREDIT:
        // Bytes that have come since, while this waited for room, may be held and not consumed.
        ring.control(Command.CREDIT, slot, generation, 4, this.owed - this.heldBytes, 0);
        this.owed = this.heldBytes;
        break;
      case DUE_NO_DELAY:
        ring.control(Command.OPTION, slot, generation, 8, Option.NO_DELAY, this.noDelay);
        break;
      default:
        ring.control(Command.OPTION, slot, generation, 8, Option.KEEP_ALIVE, this.keepAlive);
    }
    lane.commanded();
  }

  #emitEnd(flags) {
    const lane = this.lane;
    this.due &= ~DUE_END;
    const kind = Command.END | (flags << 8);
    this.lastAt = lane.commands.control(kind, this.slot, this.generation, 0, 0, 0);
    this.lastFlush = lane.flushes;
  }

  /** Lets the client send more, in lumps. */
  #grant() {
    if (this.owed < CREDIT_BYTES_MIN || !this.wanted || this.gone || this.destroyed) return;
    if ((this.due & DUE_CREDIT) === 0) this.#say(DUE_CREDIT);
  }

  /** Keeps the current message's payload until the Readable asks: many small ones take no more. */
  #hold(ring) {
    const needed = this.heldBytes + ring.length;
    if (this.held === null || this.held.length < needed) {
      const room = Math.max(needed, HELD_BYTES_MIN, Math.min(2 * this.heldBytes, WINDOW_IN));
      const held = Buffer.allocUnsafeSlow(room);
      if (this.heldBytes > 0) this.held.copy(held, 0, 0, this.heldBytes);
      this.held = held;
    }
    ring.copyInto(this.held, this.heldBytes);
    this.heldBytes = needed;
    ring.advance();
    if (needed > WINDOW_IN) {
      this.socket.destroy(
        new Error(`the lane sent ${needed} bytes, with a window of ${WINDOW_IN}`),
      );
    }
  }

  #release() {
    const chunk = this.held.subarray(0, this.heldBytes);
    this.held = null;
    this.heldBytes = 0;
    this.wanted = this.socket.push(chunk);
  }

  #finishReading() {
    if (this.ended) return;
    this.ended = true;
    if (this.heldBytes > 0) return;
    this.socket.push(null);
    // A stream that was never read from, and is empty, ends all the same.
    this.socket.read(0);
  }
}

/** The flags with the same meaning, on a message before it. */
const FLAGS_OF = new Uint8Array(64);
FLAGS_OF[DUE_END] = Flag.END;
FLAGS_OF[DUE_DESTROY] = Flag.DESTROY;

module.exports = { Channel };
