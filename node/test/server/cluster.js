'use strict';

// The primary of listening.test.js: two workers on one port; asks them for more and more, with one
// session, and reports. It does not load the package.

const cluster = require('node:cluster');
const tls = require('node:tls');

/** Enough that both workers get some. */
const CLIENTS = 24;

if (cluster.isPrimary) {
  primary();
} else {
  worker();
}

function worker() {
  // The same on every machine.
  require('node:os').availableParallelism = () => 8;
  const sealane = require('sealane');
  const { SEALANE_TEST_PORT: port, CERT: cert, KEY: key } = process.env;
  const server = sealane.createTLSServer({ cert, key }, (socket) => {
    const resumed = socket.isSessionReused();
    const { lanes } = server.stats();
    socket.end(JSON.stringify({ lanes: lanes.length, pid: process.pid, resumed }));
  });
  server.listen(Number(port), '127.0.0.1');
}

// The first worker takes any free port and keeps it, and the second is given its number.
function primary() {
  const { authority, leaf } = require('../certificates');
  const { cert, key } = leaf(authority('authority'), 'localhost');
  const environment = { CERT: cert, KEY: key };
  let [listening, shared] = [0, 0];
  cluster.on('listening', (_worker, { port }) => {
    listening += 1;
    if (listening === 1) {
      shared = port;
      cluster.fork({ ...environment, SEALANE_TEST_PORT: port });
      return;
    }
    if (port !== shared) {
      throw new Error(`one worker listens on ${shared}, the other on ${port}`);
    }
    finish(listening, port);
  });
  cluster.fork({ ...environment, SEALANE_TEST_PORT: 0 });
}

async function finish(listening, port) {
  let session;
  const seen = [];
  for (let i = 0; i < CLIENTS; i += 1) {
    seen.push(await visit(port, session));
    session = seen.at(-1).session;
  }
  const count = (has) => seen.filter(has).length;
  const report = {
    lanesOfEach: seen.map(({ lanes }) => lanes).every((lanes) => lanes === 1),
    listening,
    resumed: [count(({ resumed }) => resumed), count(({ clientResumed }) => clientResumed)],
    visits: CLIENTS,
    workers: new Set(seen.map(({ pid }) => pid)).size,
  };
  process.send(report, () => cluster.disconnect(() => process.disconnect()));
}

/** A worker's answer, and the client's state: the session to resume and whether it did. */
async function visit(port, session) {
  const client = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false, session });
  let next;
  client.on('session', (fresh) => {
    next = fresh;
  });
  let clientResumed = false;
  client.once('secureConnect', () => {
    clientResumed = client.isSessionReused();
  });
  let text = '';
  for await (const chunk of client) text += chunk;
  return { ...JSON.parse(text), clientResumed, session: next };
}
