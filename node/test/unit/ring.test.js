'use strict';

const assert = require('node:assert');
const path = require('node:path');
const test = require('node:test');
const { Worker } = require('node:worker_threads');
const { HEADER_BYTES, PAYLOAD_BYTES_MAX } = require('../../lib/message.js');
const ring = require('../../lib/ring.js');
const { region } = require('./lane-end.js');

const { BROKEN, CommandRing, EventRing, MESSAGE, NOTHING, PAGE_BYTES, wholeBytes } = ring;

/** Both ends of a ring with its stream at `position`. */
function ends(position = 0) {
  const memory = region();
  const words = new Int32Array(memory.buffer);
  words[0] = position;
  words[32] = position;
  return { words, producer: new CommandRing(memory), consumer: new EventRing(memory) };
}

function write(producer, payload, kind = 7) {
  assert.ok(producer.fits(payload.length));
  producer.put(payload, 0, payload.length, 0);
  producer.commit(kind, 3, 4, payload.length);
}

function read(consumer) {
  assert.equal(consumer.next(), MESSAGE);
  const text = consumer.text();
  const copy = consumer.copy(true);
  assert.equal(copy.toString('latin1'), text);
  assert.deepEqual([consumer.kind, consumer.slot, consumer.generation], [7, 3, 4]);
  consumer.advance();
  consumer.publish();
  return copy;
}

test('every length arrives whole at every place, also round the ends of page and positions', () => {
  const places = [0, PAGE_BYTES, 2 ** 31, 2 ** 32];
  const payload = Buffer.from(Array.from({ length: 200 }, (_, index) => index));
  for (const place of places) {
    for (let before = 0; before <= 256; before += 16) {
      const { producer, consumer } = ends((place - before) | 0);
      for (let length = 0; length <= payload.length; length += 7) {
        write(producer, payload.subarray(0, length));
        assert.equal(consumer.next(), NOTHING);
        producer.publish();
        assert.deepEqual(read(consumer), payload.subarray(0, length));
        assert.equal(consumer.next(), NOTHING);
      }
    }
  }
});

test('long payloads arrive whole at every place, round the end of the page and not', () => {
  const payload = Buffer.from(Array.from({ length: 2000 }, (_, index) => (index * 7) % 251));
  for (let before = 0; before <= 2048; before += 16) {
    const { producer, consumer } = ends((PAGE_BYTES - before) | 0);
    for (const from of [0, 3]) {
      write(producer, payload.subarray(from));
      producer.publish();
      assert.deepEqual(read(consumer), payload.subarray(from));
    }
  }
});

test('what is written in place is what is read', () => {
  const { producer, consumer } = ends();
  const length = producer.bytes.utf8Write('Zoë €', producer.payloadAt(), 15);
  producer.commit(7, 3, 4, length);
  producer.publish();
  assert.equal(read(consumer).toString(), 'Zoë €');
});

test('two words come behind a header at the end of the page', () => {
  const { producer, consumer } = ends(PAGE_BYTES - HEADER_BYTES);
  producer.control(7, 3, 4, 8, 11, -1);
  producer.publish();
  assert.equal(consumer.next(), MESSAGE);
  assert.deepEqual([consumer.word(0), consumer.word(4)], [11, -1]);
});

test('a full ring takes nothing, and takes again what was read', () => {
  const { producer, consumer } = ends(48);
  const payload = Buffer.alloc(4096 - HEADER_BYTES, 1);
  let written = 0;
  while (producer.fits(payload.length)) {
    write(producer, payload);
    written += 1;
  }
  assert.equal(written, PAGE_BYTES / 4096);
  assert.equal(producer.fits(0), false);
  producer.publish();
  read(consumer);
  assert.ok(producer.fits(payload.length));
  assert.equal(producer.fits(payload.length + 1), false);
});

test('flags come onto a message that is not published', () => {
  const { producer, consumer } = ends();
  const at = producer.control(1, 3, 4, 0, 0, 0);
  producer.control(2, 3, 4, 0, 0, 0);
  producer.flag(at, 3);
  producer.publish();
  assert.equal(consumer.next(), MESSAGE);
  assert.equal(consumer.words[1025] >>> 8, 3);
});

test('a message that is published in pieces is read when all of it is there', () => {
  const { words, producer, consumer } = ends();
  write(producer, Buffer.alloc(100));
  for (const bytes of [1, HEADER_BYTES, 100]) {
    Atomics.store(words, 0, bytes);
    assert.equal(consumer.next(), NOTHING);
    assert.equal(consumer.maySleep(), true);
  }
  producer.publish();
  assert.equal(consumer.maySleep(), false);
  assert.equal(consumer.next(), MESSAGE);
});

test('what cannot be is an end with a reason, and no message', () => {
  for (const length of [PAYLOAD_BYTES_MAX + 1, -1, 2 ** 31 - 1]) {
    const { producer, consumer } = ends();
    producer.commit(7, 3, 4, length);
    producer.position = 4096;
    producer.publish();
    assert.equal(consumer.next(), BROKEN);
    assert.match(consumer.fault, /broken: a message of/);
  }
  for (const written of [-16, PAGE_BYTES + 16, -(2 ** 31)]) {
    const { words, consumer } = ends();
    words[0] = written;
    assert.equal(consumer.next(), BROKEN);
    assert.match(consumer.fault, /said to be unread/);
  }
  const { words, producer } = ends();
  words[32] = 16;
  assert.equal(producer.room(), 0);
  assert.match(producer.fault, /said to be unread/);
});

test('who sleeps is woken once', () => {
  const { producer, consumer } = ends();
  assert.equal(producer.wakes(), false);
  assert.equal(consumer.maySleep(), true);
  write(producer, Buffer.alloc(1));
  producer.publish();
  assert.equal(producer.wakes(), true);
  assert.equal(producer.wakes(), false);
  assert.equal(consumer.maySleep(), false);
  assert.equal(producer.wakes(), false);
  read(consumer);
  assert.equal(consumer.maySleep(), true);
  consumer.awoke();
  assert.equal(producer.wakes(), false);
});

test('who waits for room is woken once', () => {
  const { producer, consumer } = ends();
  while (producer.fits(1000)) write(producer, Buffer.alloc(1000));
  producer.publish();
  assert.equal(consumer.wakes(), false);
  assert.equal(producer.mayWait(1016), true);
  read(consumer);
  assert.equal(consumer.wakes(), true);
  assert.equal(consumer.wakes(), false);
  assert.equal(producer.mayWait(1016), false);
  assert.equal(consumer.wakes(), false);
});

/** Both sides sleep whenever they may; a wake-up that is lost stops them for good. */
test('a million messages between two threads that sleep at every chance', async () => {
  const messages = 1_000_000;
  const memory = region();
  const bell = new Int32Array(new SharedArrayBuffer(8));
  const worker = new Worker(path.join(__dirname, 'ring-producer.js'), {
    workerData: { memory, bell, messages },
  });
  const stopped = new Promise((resolve, reject) => {
    worker.once('error', reject);
    worker.once('exit', resolve);
  });
  const consumer = new EventRing(memory);
  let seen = 0;
  while (seen < messages) {
    const found = consumer.next();
    assert.notEqual(found, BROKEN);
    if (found === MESSAGE) {
      assert.equal(consumer.word(0), seen);
      consumer.advance();
      seen += 1;
      if (seen % 64 !== 0) continue;
    }
    consumer.publish();
    if (consumer.wakes()) rouse(bell, 1);
    if (found === NOTHING && consumer.maySleep()) {
      const woken = await sleep(bell, 0);
      assert.notEqual(woken, 'timed-out', `${seen} of ${messages}`);
    }
  }
  consumer.publish();
  if (consumer.wakes()) rouse(bell, 1);
  assert.equal(await stopped, 0);
});

/** Counts up, so that a ring before the sleep is not lost: as an eventfd does. */
function rouse(bell, which) {
  Atomics.add(bell, which, 1);
  Atomics.notify(bell, which);
}

async function sleep(bell, which) {
  const waiting = Atomics.waitAsync(bell, which, 0, 60_000);
  const woken = await waiting.value;
  Atomics.store(bell, which, 0);
  return woken;
}

test('whole messages', () => {
  assert.deepEqual([0, 1, 16, 17].map(wholeBytes), [16, 32, 32, 48]);
});
