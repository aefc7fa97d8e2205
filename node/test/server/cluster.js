'use strict';

// The primary of listening.test.js: two workers on one port; reports, and disconnects them.

const cluster = require('node:cluster');
const sealane = require('sealane');

if (cluster.isPrimary) {
  primary();
} else {
  const { own, request } = require('../site');
  const server = sealane.createServer(own, (_request, response) => response.end('x'));
  server.listen(Number(process.env.SEALANE_TEST_PORT), '127.0.0.1');
  process.on('message', async () => {
    const { text } = await request(server, { rejectUnauthorized: false });
    process.send({ text });
  });
}

// The first worker takes any free port and keeps it, and the second is told which.
function primary() {
  let [listening, shared] = [0, 0];
  cluster.on('listening', (worker, { port }) => {
    listening += 1;
    if (listening === 1) {
      shared = port;
      cluster.fork({ SEALANE_TEST_PORT: port });
      return;
    }
    if (port !== shared) {
      throw new Error(`one worker listens on ${shared}, the other on ${port}`);
    }
    worker.send('ask');
    worker.on('message', ({ text }) => finish(listening, text));
  });
  cluster.fork({ SEALANE_TEST_PORT: 0 });
}

function finish(listening, text) {
  process.send({ listening, answered: text === 'x' }, () => {
    cluster.disconnect(() => process.disconnect());
  });
}
