'use strict';

/** Runs one file of others' tests in a separate process, and returns its outcome. */

const { spawn } = require('node:child_process');
const { randomInt } = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const { join } = require('node:path');

/**
 * Of a file that runs together with others, and of one that has the machine to itself: some
 * compute.
 */
const LIMIT_MS = 45_000;
const LIMIT_ALONE_MS = 150_000;
/** Of a test's output. More is cut off at its start. */
const OUTPUT_CHARACTERS_MAX = 100_000;
const SHIM = join(__dirname, 'shim.js');
const HEADER_BYTES = 4096;

/**
 * @param {{
 *   node: string, file: string, args?: string[], cwd: string, env?: Record<string, string>,
 *   alone?: boolean, preload?: boolean, slot: number, scratch: string, withSealane: boolean,
 * }} how `slot` is no other's at that time; with `preload: false` the program looks for the
 *   servers itself
 * @returns {Promise<{ outcome: 'fail' | 'pass' | 'skip', servers: number, output: string }>}
 */
async function runOne(how) {
  const { node, file, args = [], cwd, preload = true, slot, scratch, withSealane } = how;
  const limitMs = how.alone ? LIMIT_ALONE_MS : LIMIT_MS;
  const folder = fs.mkdtempSync(join(scratch, 't'));
  const seen = join(folder, 'servers');
  fs.writeFileSync(seen, '');
  const env = {
    ...process.env,
    ...how.env,
    IMPLEMENTATION: withSealane ? 'sealane' : 'node',
    NODE_COMMON_PORT: String(await freePort()),
    NODE_OPTIONS: withSealane && preload ? `--require ${JSON.stringify(SHIM)}` : '',
    NODE_TEST_DIR: folder,
    // A later node has globals that these tests do not know.
    NODE_TEST_KNOWN_GLOBALS: '0',
    SERVERS_SEEN: seen,
    TEST_THREAD_ID: String(slot),
  };
  delete env.NODE_EXTRA_CA_CERTS;
  // Otherwise its own tests report to the runner of this process.
  delete env.NODE_TEST_CONTEXT;
  const child = spawn(node, [...flagsOf(file), ...args, file], {
    cwd,
    // Its own processes end with it.
    detached: true,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const { code, signal, output, late } = await ended(child, limitMs);
  const servers = fs.statSync(seen).size;
  fs.rmSync(folder, { force: true, recursive: true });
  const passed = code === 0;
  const outcome = passed ? (SKIPPED.test(output) ? 'skip' : 'pass') : 'fail';
  const end = late ? `not done after ${limitMs / 1000} s` : `exit ${signal ?? code}`;
  return { outcome, output: passed ? output : `${output}\n${end}\n`, servers };
}

/** As node's own runner: the line `// Flags:` of a test is for its command line. */
function flagsOf(file) {
  const bytes = Buffer.alloc(HEADER_BYTES);
  const descriptor = fs.openSync(file, 'r');
  const length = fs.readSync(descriptor, bytes);
  fs.closeSync(descriptor);
  const lines = bytes.toString('utf8', 0, length).matchAll(/^\/\/ Flags:(.*)$/gm);
  return [...lines].flatMap(([, flags]) => flags.trim().split(/\s+/));
}

function ended(child, limitMs) {
  return new Promise((resolve) => {
    let output = '';
    let late = false;
    const limit = setTimeout(() => {
      late = true;
      endGroup(child);
    }, limitMs);
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        output = (output + text).slice(-OUTPUT_CHARACTERS_MAX);
      });
    }
    child.once('exit', () => endGroup(child));
    child.once('close', (code, signal) => {
      clearTimeout(limit);
      resolve({ code, late, output, signal });
    });
  });
}

/** An unused one, below those that the system gives out by itself. */
async function freePort() {
  for (;;) {
    const port = randomInt(PORT_MIN, PORT_MAX + 1);
    const server = net.createServer().listen(port);
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (isFree) {
      server.close();
      await once(server, 'close');
      return port;
    }
  }
}

/** Ends the processes that a test has started and left. */
function endGroup(child) {
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // No process is left.
  }
}

/** The forms of node's tests, and of their TAP. */
const SKIPPED = /^1\.\.0 # [Ss]kip/m;
const PORT_MIN = 12_346;
const PORT_MAX = 32_000;

module.exports = { runOne };
