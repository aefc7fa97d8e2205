'use strict';

/**
 * The soak: connections by the million, destroyed at random by either end. Descriptors and memory
 * are watched, and every byte identifies its connection.
 *
 *   node --expose-gc test/soak.js [--connections N] [--at-once N] [--seed N]
 *
 * Clients are separate processes, so that only the server is watched. Ends with code 0 if nothing
 * leaked and no connection got another's bytes.
 */

const { fork } = require('node:child_process');
const path = require('node:path');

const { createTLSServer, isSealane, name } = require('./implementation');
const { held } = require('./life/child');
const { own } = require('./site');

const CLIENTS = 2;
const REPORT_MS = 5_000;
/** The part of the connections after which the first count is taken: pools are filled by then. */
const WARM_UP = 0.1;
const FDS_MORE_MAX = 8;
/** Little compared with a leak of a few bytes in each of millions. */
const BYTES_MORE_MAX = 64 * 1024 * 1024;
/** No connection in so long: something hangs. */
const STALL_MS = 60_000;

const random = (seed) => {
  // xorshift32: repeatable, and the same in every process for one seed.
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
};

/**
 * @param {{ connections: number, atOnce: number, seed: number,
 *   report?: (line: string) => void }} of
 * @returns {Promise<{ done: number, faults: string[], before: object, after: object }>}
 */
async function soak({ connections, atOnce, seed, report = () => {} }) {
  const chance = random(seed);
  const faults = [];
  let done = 0;
  let last = Date.now();
  const live = new Set();
  const server = createTLSServer(own, (socket) => {
    live.add(socket);
    serve(socket, chance, faults);
    socket.once('close', () => {
      live.delete(socket);
      done += 1;
      last = Date.now();
    });
  });
  server.on('tlsClientError', () => {});
  server.on('error', (error) => faults.push(`the server: ${error.message}`));
  await new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const started = Date.now();
  const clients = [];
  const run = async (count) => {
    const target = Math.ceil(count / CLIENTS);
    await Promise.all(
      Array.from(
        { length: CLIENTS },
        (_, i) =>
          new Promise((resolve, reject) => {
            const child = fork(
              path.join(__dirname, 'soak-client.js'),
              [server.address().port, target, Math.ceil(atOnce / CLIENTS), seed + i + done].map(
                String,
              ),
              { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] },
            );
            clients.push(child);
            child.on('message', (fault) => faults.push(fault));
            child.on('exit', (code) =>
              code === 0 ? resolve() : reject(new Error(`client: ${code}`)),
            );
          }),
      ),
    );
  };
  const timer = setInterval(() => {
    report(progress(done, connections, started, faults.length));
    if (Date.now() - last > STALL_MS) {
      faults.push(`no connection ended in ${STALL_MS} ms`);
      for (const child of clients) child.kill('SIGKILL');
    }
  }, REPORT_MS);
  try {
    await run(connections * WARM_UP);
    const before = await quiet(live);
    await run(connections * (1 - WARM_UP));
    const after = await quiet(live);
    if (live.size > 0) faults.push(`${live.size} connections never ended`);
    if (after.fds - before.fds > FDS_MORE_MAX) faults.push('descriptors leak');
    if (after.rss - before.rss > BYTES_MORE_MAX) faults.push('memory leaks');
    return { done, faults, before, after };
  } finally {
    clearInterval(timer);
    await new Promise((resolve) => {
      server.close(resolve);
    });
  }
}

/** Echoes with the connection's own number before each chunk, and sometimes has enough. */
function serve(socket, chance, faults) {
  let mine;
  socket.on('error', () => {});
  socket.on('data', (chunk) => {
    // The client repeats its number in every eight bytes.
    for (let at = 0; at + 8 <= chunk.length && chunk.length % 8 === 0; at += 8) {
      const number = chunk.readDoubleLE(at);
      mine ??= number;
      if (number !== mine) {
        faults.push(`connection ${mine} got bytes of ${number}`);
        socket.destroy();
        return;
      }
    }
    const lot = chance();
    if (lot < 0.15) socket.destroy();
    else if (lot < 0.25) socket.end(chunk);
    // node cannot reset the connection below its TLS.
    else if (lot < 0.28 && isSealane) socket.resetAndDestroy();
    else socket.write(chunk);
  });
}

/** The memory and descriptors when every connection is gone, or after a while. */
async function quiet(live) {
  for (let i = 0; i < 200 && live.size > 0; i += 1) {
    await new Promise((resolve) => {
      setTimeout(resolve, 25);
    });
  }
  return held();
}

function progress(done, connections, started, faults) {
  const passed = (Date.now() - started) / 1000;
  const left = done > 0 ? Math.ceil(((connections - done) * passed) / done) : '?';
  const rss = Math.round(process.memoryUsage.rss() / 2 ** 20);
  return (
    `${name}: ${done} of ${connections} connections, ${Math.round(done / passed)}/s, ` +
    `${rss} MiB, ${faults} faults, ${left} s left`
  );
}

function option(given, word, otherwise) {
  const at = given.indexOf(`--${word}`);
  if (at < 0) return otherwise;
  const value = Number(given[at + 1]);
  if (!Number.isSafeInteger(value) || value < 1) {
    process.stderr.write(`soak: --${word} needs a number from 1, not ${given[at + 1]}\n`);
    process.exit(2);
  }
  return value;
}

async function main(given) {
  const of = {
    connections: option(given, 'connections', 10_000_000),
    atOnce: option(given, 'at-once', 64),
    seed: option(given, 'seed', 1),
    report: (line) => process.stdout.write(`${line}\n`),
  };
  const { done, faults, before, after } = await soak(of);
  const mib = (bytes) => `${Math.round(bytes / 2 ** 20)} MiB`;
  process.stdout.write(
    `soak: ${done} connections; ${before.fds} then ${after.fds} descriptors; ` +
      `${mib(before.rss)} then ${mib(after.rss)}\n`,
  );
  for (const fault of new Set(faults)) process.stdout.write(`FAULT ${fault}\n`);
  process.exitCode = faults.length === 0 ? 0 : 1;
}

if (require.main === module) main(process.argv.slice(2));

module.exports = { random, soak };
