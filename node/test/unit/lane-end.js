'use strict';

// The other side of a lane for tests: a ring's two ends are the same code in both directions, so
// the lane's ends are the classes under test, exchanged.

const { Lane } = require('../../lib/lane.js');
const { Event, HEADER_BYTES } = require('../../lib/message.js');
const { CommandRing, EventRing, MESSAGE, REGION_BYTES } = require('../../lib/ring.js');

/** Labels by number, as the addon returns them. */
const CAUSES = [
  'clean',
  'client_reset',
  'client_truncated',
  'internal',
  'protocol_error',
  'not_tls',
];

/** A replacement for the addon. */
const addon = {
  regionBytes: REGION_BYTES,
  region: () => 0,
  causes: () => CAUSES,
};

/** A region as the addon would have made it. */
function region() {
  return new Uint8Array(new SharedArrayBuffer(REGION_BYTES));
}

/** Plays the lane thread, on this thread or another one. */
class LaneEnd {
  /** @param {{ events: Uint8Array, commands: Uint8Array }} rings */
  constructor({ events, commands }) {
    this.events = new CommandRing(events);
    this.commands = new EventRing(commands);
  }

  /** Writes one event; false: there is no room. */
  send(kind, id, payload = Buffer.alloc(0)) {
    if (!this.events.fits(payload.length)) return false;
    this.events.put(payload, 0, payload.length, 0);
    this.events.commit(kind, id.slot, id.generation, payload.length);
    this.events.publish();
    return true;
  }

  sendWord(kind, id, word) {
    const payload = Buffer.alloc(4);
    payload.writeUInt32LE(word);
    return this.send(kind, id, payload);
  }

  open(id, fields) {
    return this.send(Event.OPEN, id, openPayload(fields));
  }

  /** The next command, or null. */
  next() {
    const found = this.commands.next();
    if (found !== MESSAGE) return null;
    const { kind, slot, generation } = this.commands;
    const at = (this.commands.position & ((1 << 20) - 1)) + 4096 + 4;
    const flags = Buffer.from(this.commands.words.buffer).readUInt32LE(at) >>> 8;
    const payload = this.commands.copy(false);
    this.commands.advance();
    this.commands.publish();
    return { kind, flags, slot, generation, payload };
  }

  all() {
    const commands = [];
    for (let command = this.next(); command !== null; command = this.next()) commands.push(command);
    return commands;
  }
}

/** A payload of OPEN. */
function openPayload(fields = {}) {
  const { flags = 0, alpn = '', name = '', error = '', chain = [], family = 4 } = fields;
  const head = Buffer.alloc(56);
  head.writeUInt16LE(fields.version ?? 0x0304, 0);
  head.writeUInt16LE(fields.suite ?? 0x1301, 2);
  head.writeUInt16LE(0x1d, 4);
  head[6] = flags;
  head[7] = alpn.length;
  head.writeUInt16LE(fields.remotePort ?? 50000, 8);
  head.writeUInt16LE(fields.localPort ?? 443, 10);
  head[12] = family;
  head[13] = family;
  head[14] = name.length;
  head[15] = error.length;
  head.writeInt32LE(fields.descriptor ?? -1, 16);
  head.writeUInt32LE(fields.context ?? 1, 20);
  Buffer.from(fields.remote ?? [192, 0, 2, 7]).copy(head, 24);
  Buffer.from(fields.local ?? [127, 0, 0, 1]).copy(head, 40);
  const certificates = chain.flatMap((der) => {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(der.length);
    return [length, der];
  });
  return Buffer.concat([head, Buffer.from(alpn + name + error, 'latin1'), ...certificates]);
}

/** A lane on this thread, its other end, and the calls of its sink. */
function pair(options = {}, sink = {}) {
  const told = { sockets: [], failed: [], hellos: [], down: [], keylog: [], rung: 0 };
  const lane = new Lane(
    0,
    options,
    {
      open: (_lane, socket) => told.sockets.push(socket),
      failed: (_lane, _id, failed) => told.failed.push(failed),
      hello: (_lane, id, name, answer) => told.hellos.push({ id, name, answer }),
      down: (_lane, text) => told.down.push(text),
      keylog: (socket, lines) => told.keylog.push({ socket, lines }),
      ...sink,
    },
    addon,
  );
  const end = new LaneEnd(lane.rings());
  lane.attach({ ring: () => (told.rung += 1) });
  return { lane, end, told };
}

/** Resolves after a whole turn of the event loop. */
function turn() {
  return new Promise((resolve) => {
    setImmediate(() => setImmediate(resolve));
  });
}

module.exports = { CAUSES, HEADER_BYTES, LaneEnd, addon, openPayload, pair, region, turn };
