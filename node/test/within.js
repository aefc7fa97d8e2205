'use strict';

/** Waits that end: each names the awaited event, and fails when that does not come. */

const { once } = require('node:events');

/** No test depends on it: it only ends a wait that would last for ever. */
const LIMIT_MS = 20_000;

/**
 * @template T
 * @param {Promise<T>} promise
 * @param {string} what
 * @param {number} [limitMs]
 * @returns {Promise<T>}
 */
function within(promise, what, limitMs = LIMIT_MS) {
  let timer;
  const late = new Promise((_, reject) => {
    const error = new Error(`${what}: not within ${limitMs} ms`);
    timer = setTimeout(() => reject(error), limitMs);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/**
 * The arguments of an emitter's next event; an 'error' before it rejects.
 * @param {import('node:events').EventEmitter} emitter
 * @param {string} name
 * @returns {Promise<any[]>}
 */
function event(emitter, name) {
  return within(once(emitter, name), `event '${name}'`);
}

/**
 * Resolves when `condition()` holds. It is asked again after each few milliseconds.
 * @param {() => boolean} condition
 * @param {string} what
 */
async function until(condition, what, limitMs = LIMIT_MS) {
  const end = Date.now() + limitMs;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`${what}: not within ${limitMs} ms`);
    await pause(2);
  }
}

/**
 * The end of a socket, good or bad, which may have come before anybody asks.
 * @param {import('node:net').Socket} socket
 */
function ended(socket) {
  socket.on('error', () => {}).resume();
  const end = new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.once('close', resolve);
  });
  return within(end, "a socket's end");
}

/** Lets a few milliseconds pass. No outcome may depend on their number. */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * All bytes of a readable up to its end.
 * @param {import('node:stream').Readable} readable
 * @returns {Promise<Buffer>}
 */
function collect(readable, what = 'the end of a stream') {
  return within(
    (async () => {
      const chunks = [];
      for await (const chunk of readable) chunks.push(Buffer.from(chunk));
      return Buffer.concat(chunks);
    })(),
    what,
  );
}

/**
 * The next bytes of a socket until there are `length` of them.
 * @param {import('node:stream').Readable} socket
 */
function take(socket, length) {
  return within(
    new Promise((resolve, reject) => {
      let got = Buffer.alloc(0);
      const onData = (chunk) => {
        got = Buffer.concat([got, chunk]);
        if (got.length < length) return;
        socket.off('data', onData).off('error', reject);
        resolve(got);
      };
      socket.on('data', onData).on('error', reject);
    }),
    `${length} bytes`,
  );
}

module.exports = { LIMIT_MS, collect, ended, event, pause, take, until, within };
