'use strict';

/** Processes of a test's own, ended with it, that talk over IPC. */

const { fork } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');

const { within } = require('../within');

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
 * What this process holds: open descriptors, and bytes of memory after collections. What objects of
 * the addon hold goes in a turn after the one that collects them.
 */
async function held() {
  for (let i = 0; i < COLLECTIONS; i += 1) {
    globalThis.gc?.();
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
  }
  return { fds: fs.readdirSync('/proc/self/fd').length, rss: process.memoryUsage.rss() };
}

const COLLECTIONS = 5;

module.exports = { ask, held, message, start };
