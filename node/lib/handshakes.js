'use strict';

// Connections of a lane before they are any: clients that ask for a name and wait for the context
// that is chosen for them, and handshakes that have failed.

const { AsyncResource } = require('node:async_hooks');
const { Command } = require('./message.js');
const { failedOf } = require('./open.js');

/** A lane's messages about its handshakes. */
class Handshakes {
  #lane;
  #sink;
  #causes;
  /** Answers to hellos that wait for room: no more than there are handshakes. */
  #answers = [];
  #left = false;

  /**
   * @param {import('./lane.js').Lane} lane
   * @param {object} sink takes hello and failed
   * @param {string[]} causes labels by number
   */
  constructor(lane, sink, causes) {
    this.#lane = lane;
    this.#sink = sink;
    this.#causes = causes;
  }

  /** Whether an answer has found no room. */
  get waits() {
    return this.#answers.length > 0;
  }

  /**
   * HELLO: a client waits for its context.
   * @param {import('./ring.js').EventRing} ring
   */
  hello(ring) {
    const { slot, generation } = ring;
    const name = ring.text();
    ring.advance();
    const id = idOf(slot, generation);
    // Null: the listener's context. A negative number refuses.
    const answer = (context) => this.#answer(slot, generation, context ?? 0);
    const scope = new AsyncResource('SEALANEHANDSHAKE');
    scope.runInAsyncScope(this.#sink.hello, this.#sink, this.#lane, id, name, answer);
  }

  /**
   * FAILED: a handshake has ended, and why.
   * @param {import('./ring.js').EventRing} ring
   */
  failed(ring) {
    const id = idOf(ring.slot, ring.generation);
    const failed = failedOf(ring.copy(false));
    ring.advance();
    failed.label = this.#causes[failed.cause] ?? 'unknown';
    const scope = new AsyncResource('SEALANEHANDSHAKE');
    scope.runInAsyncScope(this.#sink.failed, this.#sink, this.#lane, id, failed);
  }

  /** Hands the lane the answers that there is room for. */
  write() {
    const ring = this.#lane.commands;
    let written = 0;
    while (written < this.#answers.length && ring.fits(8)) {
      const { slot, generation, low, high } = this.#answers[written++];
      ring.control(Command.CHOOSE, slot, generation, 8, low, high);
    }
    if (written > 0) this.#answers.splice(0, written);
  }

  /** The lane has ended, so no answers are awaited any more. */
  leave() {
    this.#left = true;
    this.#answers = [];
  }

  #answer(slot, generation, context) {
    if (this.#left) return;
    const low = context < 0 ? -1 : context | 0;
    const high = context < 0 ? -1 : Math.floor(context / 0x1_0000_0000);
    this.#answers.push({ slot, generation, low, high });
    this.write();
    this.#lane.commanded();
  }
}

/** A name of one connection of a lane, for comparisons only. */
function idOf(slot, generation) {
  return (BigInt(generation >>> 0) << 32n) | BigInt(slot >>> 0);
}

module.exports = { Handshakes };
