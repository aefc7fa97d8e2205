'use strict';

/** Processes of a test's own, ended with it, that talk over IPC. */

const { fork } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');

const { pause, within } = require('../within');

/**
 * Starts a program of this folder.
 * @param {import('node:test').TestContext} t
 * @param {string} program
 * @param {string[]} [given]
 */
function start(t, program, given = []) {
  const child = fork(path.join(__dirname, program), given, {
    execArgv: ['--expose-gc'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  t.after(() => child.kill('SIGKILL'));
  return child;
}

/** The next message of a child, which may have work to do first. */
async function message(child) {
  const [said] = await within(once(child, 'message'), 'a message', MESSAGE_LIMIT_MS);
  return said;
}

const MESSAGE_LIMIT_MS = 150_000;

/** Sends a word, and gives the answer. */
function ask(child, word) {
  const answer = message(child);
  child.send(word);
  return answer;
}

/**
 * Counts of this process: open descriptors, and bytes of memory after collections. Memory of the
 * addon's objects goes in a turn after the one that collects them.
 */
async function held() {
  const rss = [];
  for (let i = 0; i < COLLECTIONS + SAMPLES; i += 1) {
    globalThis.gc?.();
    await pause(10);
    if (i >= COLLECTIONS) rss.push(process.memoryUsage.rss());
  }
  return { fds: fs.readdirSync('/proc/self/fd').length, rss: median(rss) };
}

/**
 * The middle one: memory that the kernel lends for a moment, or has not taken back, is not counted.
 */
function median(numbers) {
  return numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)];
}

const COLLECTIONS = 5;
const SAMPLES = 5;

module.exports = { ask, held, median, message, start };
