'use strict';

// JavaScript's side of one lane thread: reads its events, hands them to channels, and publishes
// their commands, once per tick.
//
//   wake ─► turn ─► passes over events ─► user code, its ticks and promises
//                     │ budget used up               │ commands
//                     ▼                              ▼
//                  setImmediate ──► flush, turn ──► sleep, when nothing was left
//
// While a tick is due, the lane need not wake JavaScript.

const { AsyncResource } = require('node:async_hooks');
const { Channel } = require('./channel.js');
const { closingError } = require('./closing.js');
const { DescriptorChannel, fromDescriptor } = require('./descriptor.js');
const { Handshakes } = require('./handshakes.js');
const { Command, Event, Opening, SLOTS_MAX } = require('./message.js');
const { giveBack, region } = require('./region.js');
const { BROKEN, CommandRing, EventRing, MESSAGE } = require('./ring.js');
const { INTERNAL, TLSSocket, streamOptions } = require('./socket.js');

/** Messages per turn, so that timers and other sockets live. */
const TURN_MESSAGES_MAX = 512;

/** And milliseconds. */
const TURN_MS_MAX = 2;

/** A look at the clock per message would cost more than it gains. */
const MESSAGES_PER_LOOK = 8;

/** Bytes read, after which the lane sees that it may overwrite them. */
const READ_BYTES_MAX = 65536;

/** Bytes written, after which the lane sees them at the latest. */
const UNPUBLISHED_BYTES_MAX = 131072;

/**
 * Writes that are worth waking the lane for in the middle of a tick: it sends them while JavaScript
 * goes on. A connection's first ones wait, for its end may join them in one message.
 */
const ANSWERS_AHEAD = 8;

/** Room that is worth going on for, when the ring was full. */
const ROOM_BYTES_MIN = 262144;

/** A lane thread's other side. */
class Lane {
  #sink;
  #server = null;
  #eventsRegion;
  #commandsRegion;
  #causes;
  #handshakes;
  /** Channels by their slot. */
  #channels = [];
  /** The last that was opened: KEYLOG follows OPEN, even if a listener has destroyed the socket. */
  #opened = null;
  /** Channels that wait for room, in the order of their coming. */
  #stalled = [];
  /** Channels with destroyed sockets that have not emitted 'close' yet. */
  #closing = [];
  /** Writes that the lane cannot see yet, of channels that had written before. */
  #written = 0;
  /** OPENs that the lane does not know to be taken yet. */
  #taken = 0;
  #scope = new AsyncResource('SEALANELANE');
  #scheduled = false;
  #running = false;
  /** The lane knows that its events are not looked at. */
  #asleep = false;
  #pass = 0;
  #messages = 0;
  #startedAt = 0;
  #now = 0;
  #down = false;

  /**
   * @param {number} number
   * @param {object} options of its sockets: allowHalfOpen, highWaterMark, pauseOnConnect, server
   * @param {object} sink takes open, failed, hello, down, keylog
   * @param {object} [addon] the binding
   */
  constructor(number, options, sink, addon = require('./native.js').native()) {
    this.number = number;
    this.options = streamOptions(options);
    this.#sink = sink;
    this.#causes = addon.causes();
    this.#handshakes = new Handshakes(this, sink, this.#causes);
    this.#eventsRegion = region(addon);
    this.#commandsRegion = region(addon);
    this.events = new EventRing(this.#eventsRegion);
    /** The ring that channels write to. */
    this.commands = new CommandRing(this.#commandsRegion);
    /** Counts publications: a message of an earlier one cannot be changed any more. */
    this.flushes = 0;
    /** Channels that wait for room in `commands`. */
    this.stalledCount = 0;
    /** Bytes that the lane was given to send and has not credited. */
    this.outBytes = 0;
  }

  /**
   * Bytes that wait in the rings, for statistics.
   * @returns {{ commandsDepth: number, eventsDepth: number }}
   */
  depths() {
    // The memory of a lane that is gone may be another's.
    if (this.#down) return { commandsDepth: 0, eventsDepth: 0 };
    return { commandsDepth: this.commands.depth(), eventsDepth: this.events.depth() };
  }

  /** Aligned views of shared memory, for the addon's server. */
  rings() {
    return { events: this.#eventsRegion, commands: this.#commandsRegion };
  }

  /** Its thread is gone: there is no other end, and another lane may have the memory. */
  release() {
    this.#down = true;
    this.#handshakes.leave();
    giveBack(this.#eventsRegion);
    giveBack(this.#commandsRegion);
  }

  /**
   * From now on the lane may wake us.
   * @param {{ claim(lane: number): number, ring(lane: number): void }} server the addon's
   */
  attach(server) {
    this.#server = server;
    this.#sleep();
  }

  /** No tick comes any more: shows the lane the commands of the last one. */
  finish() {
    if (!this.#down) this.#flush();
  }

  /** The lane has woken us. */
  drain() {
    this.#now = 0;
    this.#beginTurn();
  }

  /**
   * Milliseconds, not finer than a tick while one is due.
   * @returns {number}
   */
  clock() {
    if (this.#now !== 0) return this.#now;
    const now = performance.now();
    if (this.#scheduled || this.#running) this.#now = now;
    return now;
  }

  /** A channel has written a command. */
  commanded() {
    if (this.commands.unpublished() > UNPUBLISHED_BYTES_MAX) this.#publish();
    this.#schedule();
  }

  /**
   * A channel has written plaintext.
   * @param {boolean} again not for the first time: its end hardly follows in this tick
   */
  wrote(again) {
    if (again) this.#written += 1;
    if (this.#written >= ANSWERS_AHEAD) this.#publish();
    this.commanded();
  }

  /**
   * A channel has found no room.
   * @param {Channel} channel
   */
  stall(channel) {
    if (channel.stalled) return;
    channel.stalled = true;
    this.#stalled.push(channel);
    this.stalledCount += 1;
    // A turn ends by waiting for room, and not by another turn that finds none.
    if (!this.#running) this.#schedule();
  }

  /**
   * No event reaches this channel any more.
   * @param {Channel | DescriptorChannel} channel
   */
  forget(channel) {
    if (this.#channels[channel.slot] === channel) this.#channels[channel.slot] = null;
  }

  /**
   * A socket is destroyed: 'close' comes when the ticks and promises after 'error' are done.
   * @param {Channel} channel
   */
  closes(channel) {
    this.#closing.push(channel);
    this.#schedule();
  }

  /**
   * The certificate that a context shows.
   * @param {number} context
   * @returns {Buffer | undefined} DER
   */
  certificate(context) {
    return this.#sink.certificate?.(context);
  }

  /**
   * Whether a socket that lives keeps the process alive.
   * @param {object} socket
   * @param {boolean} keeps
   */
  keepAlive(socket, keeps) {
    this.#sink.keepAlive?.(socket, keeps);
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(tick, this);
  }

  /** The callback of setImmediate. */
  tick() {
    this.#scheduled = false;
    this.#now = 0;
    if (!this.#down) this.#flush();
    if (this.#closing.length > 0) this.#tellClosed();
    if (!this.#down) this.#beginTurn();
  }

  #tellClosed() {
    const closing = this.#closing;
    this.#closing = [];
    let told = 0;
    let thrown = true;
    try {
      while (told < closing.length) {
        const channel = closing[told++];
        channel.scope.runInAsyncScope(channel.tellClosed, channel);
      }
      thrown = false;
    } finally {
      // The rest of this tick's work, its turn above all, is for the next one.
      if (thrown) {
        this.#closing = closing.slice(told).concat(this.#closing);
        this.#schedule();
      }
    }
  }

  #beginTurn() {
    this.#messages = 0;
    this.#startedAt = this.clock();
    this.turn();
  }

  /** One more pass over the events, in a scope of the lane's own. */
  turn() {
    if (!this.#down) this.#scope.runInAsyncScope(this.#turn, this);
  }

  #turn() {
    let again = true;
    this.#running = true;
    // The flag goes down before events are read, so that the lane makes no needless wake-up.
    if (this.#asleep) {
      this.#asleep = false;
      this.events.awoke();
    }
    try {
      if (this.stalledCount > 0) this.#unstall();
      // Wraps, and stays a small integer.
      this.#pass = (this.#pass + 1) | 0;
      again = this.#handleAll();
    } finally {
      // A listener's exception goes its way, and the rest of the messages is for the next tick.
      this.#running = false;
      this.#publishRead();
      if (this.#taken > 0) this.#tellTaken();
      if (again) this.#schedule();
      else if (!this.#scheduled && !this.#down) this.#sleep();
    }
  }

  /** Whether there is, or may be, more to do. */
  #handleAll() {
    const ring = this.events;
    for (;;) {
      const found = ring.next();
      if (found !== MESSAGE) {
        if (found === BROKEN) this.#fail(ring.fault);
        return false;
      }
      if (ring.unpublished() > READ_BYTES_MAX) this.#publishRead();
      if (this.#spent()) return true;
      if (!this.#handle(ring)) return true;
      if (this.#down) return false;
    }
  }

  #spent() {
    this.#messages += 1;
    if (this.#messages > TURN_MESSAGES_MAX) return true;
    return (
      this.#messages % MESSAGES_PER_LOOK === 0 && performance.now() - this.#startedAt > TURN_MS_MAX
    );
  }

  /** False: an earlier message of its socket has to be done first. */
  #handle(ring) {
    switch (ring.kind) {
      case Event.DATA:
      case Event.END:
      case Event.CLOSE:
      case Event.CREDIT:
      case Event.KEYLOG:
        return this.#handleKnown(ring);
      case Event.OPEN:
        this.#open(ring);
        return true;
      case Event.HELLO:
        this.#handshakes.hello(ring);
        return true;
      case Event.FAILED:
        this.#handshakes.failed(ring);
        return true;
      case Event.DOWN: {
        const text = ring.copy(false).toString('utf8');
        ring.advance();
        this.#goDown(text);
        return true;
      }
      default:
        this.#fail(`the lane's ring is broken: there is no event ${ring.kind}`);
        return true;
    }
  }

  #handleKnown(ring) {
    const channel = this.#find(ring.slot, ring.generation) ?? this.#logged(ring);
    if (channel === null) {
      ring.advance();
      return true;
    }
    if (ring.kind === Event.CREDIT && channel.pending === null) {
      // It is not awaited, so it is no event of the socket.
      const bytes = ring.word(0) >>> 0;
      ring.advance();
      channel.credited(bytes);
      return true;
    }
    if (channel.pass === this.#pass) {
      // As in node, ticks and promises of one event of a socket come before its next event.
      process.nextTick(afterTicks, this);
      return false;
    }
    channel.pass = this.#pass;
    switch (ring.kind) {
      case Event.DATA:
        channel.scope.runInAsyncScope(channel.data, channel, ring);
        break;
      case Event.END:
        ring.advance();
        channel.scope.runInAsyncScope(channel.clientEnded, channel);
        break;
      case Event.CREDIT: {
        const bytes = ring.word(0) >>> 0;
        ring.advance();
        channel.scope.runInAsyncScope(channel.credited, channel, bytes);
        break;
      }
      case Event.CLOSE: {
        const label = this.#causes[ring.word(0)];
        ring.advance();
        channel.scope.runInAsyncScope(channel.closed, channel, closingError(label));
        break;
      }
      default: {
        const lines = ring.copy(false);
        ring.advance();
        const { socket } = channel;
        channel.scope.runInAsyncScope(this.#sink.keylog, this.#sink, socket, lines);
      }
    }
    return true;
  }

  #find(slot, generation) {
    if (slot < 0 || slot >= this.#channels.length) return null;
    const channel = this.#channels[slot];
    return channel !== null && channel.generation === generation ? channel : null;
  }

  /** The channel of lines for a socket that is destroyed already. */
  #logged({ kind, slot, generation }) {
    const last = this.#opened;
    const isIts = last !== null && last.slot === slot && last.generation === generation;
    return kind === Event.KEYLOG && isIts ? last : null;
  }

  #open(ring) {
    const { slot, generation } = ring;
    if (slot < 0 || slot >= SLOTS_MAX) {
      this.#fail(`the lane's ring is broken: there is no slot ${slot >>> 0}`);
      return;
    }
    const opened = ring.text();
    ring.advance();
    this.#taken += 1;
    while (this.#channels.length <= slot) this.#channels.push(null);
    const before = this.#channels[slot];
    if (before !== null) {
      this.#fail(`the lane's ring is broken: slot ${slot} is opened again`);
      return;
    }
    const made =
      (opened.charCodeAt(6) & Opening.DESCRIPTOR) === 0
        ? this.#openRing(slot, generation, opened)
        : this.#openDescriptor(slot, generation, opened);
    if (made === null) return;
    const { channel, socket } = made;
    this.#channels[slot] = channel;
    this.#opened = channel;
    channel.scope.runInAsyncScope(this.#sink.open, this.#sink, this, socket);
  }

  #openRing(slot, generation, opened) {
    const channel = new Channel(this, slot, generation, opened);
    const socket = new TLSSocket(INTERNAL, channel);
    channel.socket = socket;
    return { channel, socket };
  }

  #openDescriptor(slot, generation, opened) {
    // An unclaimed descriptor is closed with the server, also if this thread ended now.
    const descriptor = this.#server.claim(this.number);
    if (descriptor < 0) return null;
    const channel = new DescriptorChannel(this, slot, generation, opened);
    return { channel, socket: fromDescriptor(channel, descriptor) };
  }

  #tellTaken() {
    if (this.#down || !this.commands.fits(4)) return;
    this.commands.control(Command.TAKEN, 0, 0, 4, this.#taken, 0);
    this.#taken = 0;
    this.#schedule();
  }

  #publishRead() {
    if (this.events.unpublished() === 0) return;
    this.events.publish();
    if (this.events.wakes()) this.#server.ring(this.number);
  }

  /** Shows the lane the written commands, and lets waiting channels go on. */
  #flush() {
    this.#handshakes.write();
    if (this.#taken > 0) this.#tellTaken();
    if (this.commands.unpublished() > 0) this.#publish();
    if (this.commands.fault !== '') this.#fail(this.commands.fault);
  }

  #publish() {
    this.#written = 0;
    this.commands.publish();
    this.flushes = (this.flushes + 1) | 0;
    if (this.commands.wakes()) this.#server.ring(this.number);
  }

  #unstall() {
    let taken = 0;
    try {
      while (taken < this.#stalled.length) {
        const channel = this.#stalled[taken++];
        // If it finds too little room again, or writes more, it goes behind the others.
        channel.stalled = false;
        this.stalledCount -= 1;
        if (!this.#resume(channel)) break;
      }
    } finally {
      this.#stalled.splice(0, taken);
    }
  }

  #resume(channel) {
    let thrown = true;
    try {
      const resumed = channel.scope.runInAsyncScope(channel.resume, channel);
      thrown = false;
      return resumed;
    } finally {
      // By the callback of a write. The channel's commands behind it are still to be sent.
      if (thrown && channel.due !== 0) this.stall(channel);
    }
  }

  /** Nothing is left to do here: the lane wakes us for events, and for room if we need some. */
  #sleep() {
    this.#now = 0;
    const waits = this.stalledCount > 0 || this.#handshakes.waits || this.#taken > 0;
    if (waits && !this.commands.mayWait(ROOM_BYTES_MIN)) this.#schedule();
    else if (this.events.maySleep()) this.#asleep = true;
    else this.#schedule();
  }

  /** The ring holds bytes that no lane writes: nothing more is read or written. */
  #fail(fault) {
    this.events.leave();
    this.commands.leave();
    this.#server?.ring(this.number);
    this.#goDown(fault);
  }

  /** The lane has ended, and with it the rest of its connections. */
  #goDown(text) {
    if (this.#down) return;
    this.#down = true;
    const channels = this.#channels;
    this.#channels = [];
    this.#stalled = [];
    this.#handshakes.leave();
    this.stalledCount = 0;
    try {
      for (const channel of channels) {
        if (channel === null) continue;
        const error = closingError(text === '' ? 'lane_stopped' : 'internal');
        channel.scope.runInAsyncScope(channel.closed, channel, error);
      }
    } finally {
      const scope = new AsyncResource('SEALANELANE');
      scope.runInAsyncScope(this.#sink.down, this.#sink, this, text);
    }
  }
}

function tick(lane) {
  lane.tick();
}

// The rest of a pass comes when no tick and no promise is left: microtasks come after the last
// tick, and a tick that one of them asks for comes after the last microtask.

function afterTicks(lane) {
  queueMicrotask(() => process.nextTick(goOn, lane));
}

function goOn(lane) {
  lane.turn();
}

module.exports = { Lane };
