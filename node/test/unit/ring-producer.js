'use strict';

// The producing thread of ring.test.js.

const { workerData } = require('node:worker_threads');
const { CommandRing } = require('../../lib/ring.js');

const { memory, bell, messages } = workerData;
const producer = new CommandRing(memory);
let sent = 0;
let batch = 1;
while (sent < messages) {
  for (let i = 0; i < batch && sent < messages && producer.fits(1000); i++) {
    producer.words[1024 + ((((producer.position + 16) | 0) & ((1 << 20) - 1)) >> 2)] = sent;
    producer.commit(1, 0, 0, 4 + ((sent % 1000) & ~3));
    sent += 1;
  }
  batch = (batch % 97) + 1;
  producer.publish();
  if (producer.wakes()) {
    Atomics.add(bell, 0, 1);
    Atomics.notify(bell, 0);
  }
  if (!producer.fits(1000) && producer.mayWait(1016)) {
    if (Atomics.wait(bell, 1, 0, 60_000) === 'timed-out') process.exit(1);
    Atomics.store(bell, 1, 0);
  }
}
