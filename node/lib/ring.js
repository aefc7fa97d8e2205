'use strict';

// The two ends of JavaScript's rings: EventRing reads a lane's events, CommandRing writes commands
// for the lane. Layout and sleep protocol are those of the crate bytering, with one page. The other
// end is a thread: positions and flags are read and written with Atomics, which are sequentially
// consistent. The positions order the page's bytes.
//
// Positions are kept as signed words, so that they stay small integers. They wrap at 2^32 all the
// same, and differences are right.

const { HEADER_BYTES, PAYLOAD_BYTES_MAX } = require('./message.js');

/** Bytes of the one page: a byte's place in it is its position modulo this. */
const PAGE_BYTES = 1 << 20;

/** The page begins behind the header. */
const PAGE_AT = 4096;

/** Bytes of the region that a ring needs. */
const REGION_BYTES = PAGE_AT + PAGE_BYTES;

// Places of the header's words, counted in words.
const WRITTEN = 0;
const WRITTEN_GONE = 1;
const READ = 32;
const READ_GONE = 33;
const CONSUMER_SLEEPS = 256;
const PRODUCER_WAITS = 288;

const PAGE_MASK = PAGE_BYTES - 1;
const PAGE_WORD = PAGE_AT >> 2;

/** From here on `fill` is faster than `set`. */
const FILLED_BYTES_MIN = 512;

/** The results of `EventRing.next`. */
const NOTHING = 0;
const MESSAGE = 1;
const BROKEN = 2;

/**
 * The bytes of a message with this payload in the ring.
 * @param {number} payload
 * @returns {number}
 */
function wholeBytes(payload) {
  return HEADER_BYTES + ((payload + 15) & ~15);
}

/**
 * Copies a chunk. To and from shared memory, `set` and `copy` go word by word, and byte by byte
 * where the two are not aligned alike: 30 us for 100,000 bytes. `fill` with a chunk is one memcpy,
 * 1 us.
 * @param {Buffer} target
 * @param {number} at
 * @param {Uint8Array} chunk
 */
function copyBytes(target, at, chunk) {
  if (chunk.length < FILLED_BYTES_MIN) target.set(chunk, at);
  else target.fill(chunk, at, at + chunk.length);
}

/** The consumer of a lane's events. After `next` found a message, its fields describe it. */
class EventRing {
  /** @param {Uint8Array} region aligned, `REGION_BYTES` long, on shared memory */
  constructor(region) {
    this.words = new Int32Array(region.buffer, region.byteOffset, REGION_BYTES >> 2);
    this.bytes = Buffer.from(region.buffer, region.byteOffset + PAGE_AT, PAGE_BYTES);
    /** The start of the current or next message. */
    this.position = Atomics.load(this.words, READ);
    /** The lane may overwrite bytes before this position. */
    this.published = this.position;
    /** The lane's position at the last look. */
    this.until = this.position;
    this.kind = 0;
    this.slot = 0;
    this.generation = 0;
    this.length = 0;
    /** The reason why the ring cannot be read any more. */
    this.fault = '';
  }

  /**
   * Looks at the next message.
   * @returns {number} NOTHING, MESSAGE or BROKEN
   */
  next() {
    let ahead = (this.until - this.position) | 0;
    if (ahead < HEADER_BYTES) {
      ahead = this.#look();
      if (ahead < HEADER_BYTES) return ahead < 0 ? BROKEN : NOTHING;
    }
    const words = this.words;
    const word = PAGE_WORD + ((this.position & PAGE_MASK) >> 2);
    const length = words[word];
    if (length < 0 || length > PAYLOAD_BYTES_MAX) {
      return this.#broken(`a message of ${length >>> 0} bytes, at most ${PAYLOAD_BYTES_MAX}`);
    }
    if (ahead < wholeBytes(length)) {
      // The lane may publish a message in pieces.
      ahead = this.#look();
      if (ahead < wholeBytes(length)) return ahead < 0 ? BROKEN : NOTHING;
    }
    this.length = length;
    this.kind = words[word + 1] & 0xff;
    this.slot = words[word + 2];
    this.generation = words[word + 3];
    return MESSAGE;
  }

  /**
   * A word of the current message's payload.
   * @param {number} at its offset in bytes, a multiple of 4
   * @returns {number}
   */
  word(at) {
    const place = (this.position + HEADER_BYTES + at) & PAGE_MASK;
    return this.words[PAGE_WORD + (place >> 2)];
  }

  /**
   * A copy of the payload.
   * @param {boolean} pooled whether it may share memory with other short-lived buffers
   * @returns {Buffer}
   */
  copy(pooled) {
    const length = this.length;
    const taken = pooled ? Buffer.allocUnsafe(length) : Buffer.allocUnsafeSlow(length);
    this.copyInto(taken, 0);
    return taken;
  }

  /**
   * Copies the payload into a buffer that has room for it.
   * @param {Buffer} target
   * @param {number} at
   */
  copyInto(target, at) {
    const start = (this.position + HEADER_BYTES) & PAGE_MASK;
    const end = start + this.length;
    if (this.length < FILLED_BYTES_MIN && end <= PAGE_BYTES) {
      this.bytes.copy(target, at, start, end);
    } else if (end <= PAGE_BYTES) {
      copyBytes(target, at, this.bytes.subarray(start, end));
    } else {
      copyBytes(target, at, this.bytes.subarray(start));
      copyBytes(target, at + PAGE_BYTES - start, this.bytes.subarray(0, end - PAGE_BYTES));
    }
  }

  /**
   * The payload, a character per byte: cheaper than a buffer for values that are kept but rarely
   * read.
   * @param {number} [from]
   * @returns {string}
   */
  text(from = 0) {
    const start = (this.position + HEADER_BYTES + from) & PAGE_MASK;
    const end = start + Math.max(0, this.length - from);
    if (end <= PAGE_BYTES) return this.bytes.latin1Slice(start, end);
    return this.bytes.latin1Slice(start, PAGE_BYTES) + this.bytes.latin1Slice(0, end - PAGE_BYTES);
  }

  /** Goes behind the current message; its payload stays until `publish`. */
  advance() {
    this.position = (this.position + wholeBytes(this.length)) | 0;
  }

  /**
   * Bytes that were read, and that the lane may not overwrite yet.
   * @returns {number}
   */
  unpublished() {
    return (this.position - this.published) | 0;
  }

  /** Lets the lane overwrite everything before `position`. */
  publish() {
    this.published = this.position;
    Atomics.store(this.words, READ, this.position);
  }

  /**
   * After `publish`: whether the lane waits for room and has to be woken.
   * @returns {boolean}
   */
  wakes() {
    return (
      Atomics.load(this.words, PRODUCER_WAITS) !== 0 &&
      Atomics.exchange(this.words, PRODUCER_WAITS, 0) !== 0
    );
  }

  /**
   * Raises the flag of a sleeping reader, and looks once more.
   * @returns {boolean} false: the lane wrote in the meantime, and does not wake for that
   */
  maySleep() {
    Atomics.store(this.words, CONSUMER_SLEEPS, 1);
    if (Atomics.load(this.words, WRITTEN) === this.until) return true;
    Atomics.store(this.words, CONSUMER_SLEEPS, 0);
    return false;
  }

  /** Somebody looks again, so that the lane need not wake anybody. */
  awoke() {
    Atomics.store(this.words, CONSUMER_SLEEPS, 0);
  }

  /**
   * Bytes that wait to be read, for statistics.
   * @returns {number}
   */
  depth() {
    return (Atomics.load(this.words, WRITTEN) - this.position) | 0;
  }

  /** Nothing more will be read. */
  leave() {
    Atomics.store(this.words, READ_GONE, 1);
  }

  #look() {
    this.until = Atomics.load(this.words, WRITTEN);
    const ahead = (this.until - this.position) | 0;
    if (ahead >= 0 && ahead <= PAGE_BYTES) return ahead;
    this.#broken(`${ahead} bytes are said to be unread, of a page of ${PAGE_BYTES}`);
    return -1;
  }

  #broken(what) {
    this.fault = `the lane's ring is broken: ${what}`;
    return BROKEN;
  }
}

/** The producer of commands for a lane. Messages become visible to the lane by `publish`. */
class CommandRing {
  /** @param {Uint8Array} region aligned, `REGION_BYTES` long, on shared memory */
  constructor(region) {
    this.words = new Int32Array(region.buffer, region.byteOffset, REGION_BYTES >> 2);
    this.bytes = Buffer.from(region.buffer, region.byteOffset + PAGE_AT, PAGE_BYTES);
    /** The start of the next message. */
    this.position = Atomics.load(this.words, WRITTEN);
    /** The lane may see bytes before this position. */
    this.published = this.position;
    /** The lane's read position at the last look. */
    this.oldest = Atomics.load(this.words, READ);
    /** The reason why the ring cannot be written any more. */
    this.fault = '';
  }

  /**
   * Whether a message with so much payload fits now.
   * @param {number} payload
   * @returns {boolean}
   */
  fits(payload) {
    const whole = wholeBytes(payload);
    return this.#free() >= whole || this.room() >= whole;
  }

  /**
   * Bytes that are free now, after a look at the lane's position.
   * @returns {number}
   */
  room() {
    const oldest = Atomics.load(this.words, READ);
    const unread = (this.position - oldest) | 0;
    if (unread < 0 || unread > PAGE_BYTES) {
      this.fault =
        `the lane's ring is broken: ${unread} bytes are said to be unread, ` +
        `of a page of ${PAGE_BYTES}`;
      return 0;
    }
    this.oldest = oldest;
    return PAGE_BYTES - unread;
  }

  /**
   * Bytes of the next message's payload that can be written without a gap.
   * @returns {number}
   */
  contiguous() {
    return PAGE_BYTES - (this.position & PAGE_MASK) - HEADER_BYTES;
  }

  /**
   * The place in `bytes` of the next message's payload.
   * @returns {number}
   */
  payloadAt() {
    return (this.position & PAGE_MASK) + HEADER_BYTES;
  }

  /**
   * Finishes the message with its payload at `payloadAt`.
   * @param {number} kind
   * @param {number} slot
   * @param {number} generation
   * @param {number} length
   * @returns {number} the message's position
   */
  commit(kind, slot, generation, length) {
    const at = this.position;
    const words = this.words;
    const word = PAGE_WORD + ((at & PAGE_MASK) >> 2);
    words[word] = length;
    words[word + 1] = kind;
    words[word + 2] = slot;
    words[word + 3] = generation;
    this.position = (at + wholeBytes(length)) | 0;
    return at;
  }

  /**
   * Writes a message of up to two words of payload, for which there is room.
   * @param {number} kind with its flags
   * @param {number} slot
   * @param {number} generation
   * @param {number} length 0, 4 or 8
   * @param {number} first
   * @param {number} second
   * @returns {number} the message's position
   */
  control(kind, slot, generation, length, first, second) {
    if (length > 0) {
      // A payload begins at a multiple of 16, so two words never wrap.
      const word = PAGE_WORD + (((this.position + HEADER_BYTES) & PAGE_MASK) >> 2);
      this.words[word] = first;
      this.words[word + 1] = second;
    }
    return this.commit(kind, slot, generation, length);
  }

  /**
   * Copies a part of `chunk` to offset `at` of the next message's payload, round the page's end.
   * @param {Uint8Array} chunk
   * @param {number} from
   * @param {number} length
   * @param {number} at
   */
  put(chunk, from, length, at) {
    const part = length === chunk.length ? chunk : chunk.subarray(from, from + length);
    const start = (this.position + HEADER_BYTES + at) & PAGE_MASK;
    const first = PAGE_BYTES - start;
    if (length <= first) {
      copyBytes(this.bytes, start, part);
    } else {
      copyBytes(this.bytes, start, part.subarray(0, first));
      copyBytes(this.bytes, 0, part.subarray(first));
    }
  }

  /**
   * Adds flags to a message that was not published yet.
   * @param {number} at the message's position
   * @param {number} flags
   */
  flag(at, flags) {
    this.words[PAGE_WORD + ((at & PAGE_MASK) >> 2) + 1] |= flags << 8;
  }

  /**
   * Bytes that the lane cannot see yet.
   * @returns {number}
   */
  unpublished() {
    return (this.position - this.published) | 0;
  }

  /** Shows the lane the written messages. */
  publish() {
    this.published = this.position;
    Atomics.store(this.words, WRITTEN, this.position);
  }

  /**
   * After `publish`: whether the lane sleeps and has to be woken.
   * @returns {boolean}
   */
  wakes() {
    return (
      Atomics.load(this.words, CONSUMER_SLEEPS) !== 0 &&
      Atomics.exchange(this.words, CONSUMER_SLEEPS, 0) !== 0
    );
  }

  /**
   * Raises the flag of a writer that waits for room, and looks once more.
   * @param {number} needed bytes
   * @returns {boolean} false: there is room, and the lane need not wake for it
   */
  mayWait(needed) {
    Atomics.store(this.words, PRODUCER_WAITS, 1);
    if (this.room() < needed) return true;
    Atomics.store(this.words, PRODUCER_WAITS, 0);
    return false;
  }

  /**
   * Bytes that the lane has not read, for statistics.
   * @returns {number}
   */
  depth() {
    return PAGE_BYTES - this.room();
  }

  /** Nothing more will be written. */
  leave() {
    Atomics.store(this.words, WRITTEN_GONE, 1);
  }

  #free() {
    return PAGE_BYTES - ((this.position - this.oldest) | 0);
  }
}

module.exports = {
  BROKEN,
  CommandRing,
  EventRing,
  MESSAGE,
  NOTHING,
  PAGE_BYTES,
  REGION_BYTES,
  copyBytes,
  wholeBytes,
};
