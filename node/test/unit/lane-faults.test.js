'use strict';

// Listeners and callbacks that throw, where the program has chosen to live on, affect no other
// connection.

const assert = require('node:assert');
const { AsyncLocalStorage } = require('node:async_hooks');
const test = require('node:test');
const { DescriptorChannel } = require('../../lib/descriptor.js');
const { Command, Event, WINDOW_OUT } = require('../../lib/message.js');
const { PAGE_BYTES } = require('../../lib/ring.js');
const { openPayload, pair, turn } = require('./lane-end.js');

const ids = Array.from({ length: 6 }, (_, slot) => ({ slot, generation: 1 }));

/** A lane with this number of connections. It knows that their OPENs are taken. */
async function opened(count) {
  const all = pair();
  for (const id of ids.slice(0, count)) all.end.open(id);
  all.lane.drain();
  await turn();
  all.end.all();
  return { ...all, sockets: all.told.sockets };
}

/** Exceptions that reached no handler while `run` ran, and some turns behind it. */
async function thrownBy(run) {
  const thrown = [];
  const before = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', (error) => thrown.push(error.message));
  setImmediate(run);
  for (let i = 0; i < 8; i++) await turn();
  process.removeAllListeners('uncaughtException');
  for (const listener of before) process.on('uncaughtException', listener);
  return thrown;
}

test("a 'close' listener that throws leaves the lane awake or asleep, not between", async () => {
  const { end, lane, sockets } = await opened(2);
  sockets[0].on('data', () => sockets[0].destroy());
  sockets[0].on('close', () => {
    throw new Error('of close');
  });
  const thrown = await thrownBy(() => {
    end.send(Event.DATA, ids[0], Buffer.from('x'));
    assert.ok(end.events.wakes());
    lane.drain();
  });
  assert.deepEqual(thrown, ['of close']);
  assert.ok(end.events.wakes(), 'the next event would wake nobody');
});

test('what a listener threw at is read all the same', async () => {
  const { end, lane, sockets } = await opened(1);
  sockets[0].on('data', () => {
    throw new Error('of data');
  });
  const thrown = await thrownBy(() => {
    end.send(Event.DATA, ids[0], Buffer.alloc(100_000));
    lane.drain();
  });
  assert.deepEqual(thrown, ['of data']);
  assert.equal(end.events.room(), PAGE_BYTES);
});

test("a write's callback that throws does not lose what waits behind it", async () => {
  const { end, lane, sockets } = await opened(6);
  // Four fill the ring.
  for (const socket of sockets.slice(0, 5)) socket.write(Buffer.alloc(WINDOW_OUT));
  const last = sockets[5].resume();
  last.write('behind', () => {
    throw new Error('of a callback');
  });
  end.send(Event.DATA, ids[5], Buffer.alloc(100_000));
  lane.drain();
  await turn();
  assert.ok(lane.stalledCount > 0);
  const got = [];
  const thrown = await thrownBy(() => {
    got.push(...end.all());
    if (end.commands.wakes()) lane.drain();
  });
  got.push(...end.all());
  assert.deepEqual(thrown, ['of a callback']);
  assert.equal(lane.stalledCount, 0);
  const credits = got.filter(({ kind, slot }) => kind === Command.CREDIT && slot === 5);
  assert.deepEqual(
    credits.map(({ payload }) => payload.readUInt32LE()),
    [100_000],
  );
});

test("a write's callback has the context of the write, whether it waits or not", async () => {
  const { end, lane, sockets } = await opened(1);
  const storage = new AsyncLocalStorage();
  const seen = [];
  for (const bytes of [10, WINDOW_OUT + 10]) {
    storage.run(bytes, () => {
      sockets[0].write(Buffer.alloc(bytes), () => seen.push(storage.getStore()));
    });
  }
  await turn();
  end.sendWord(Event.CREDIT, ids[0], WINDOW_OUT);
  lane.drain();
  await turn();
  assert.deepEqual(seen, [10, WINDOW_OUT + 10]);
});

test('who has left says nothing to the next user of the memory', () => {
  const { lane } = pair();
  const channel = new DescriptorChannel(lane, 0, 1, openPayload().toString('latin1'));
  channel.left();
  channel.setNoDelay(true);
  assert.equal(lane.commands.unpublished(), 0);
});
