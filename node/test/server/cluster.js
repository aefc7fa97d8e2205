'use strict';

// The primary of listening.test.js: two workers on one port; reports, and disconnects them.

const cluster = require('node:cluster');
const net = require('node:net');
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

function primary() {
  // A port that is free now; whoever takes it meanwhile fails this test with EADDRINUSE.
  const probe = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = probe.address();
    probe.close(() => run(port));
  });
}

function run(port) {
  let listening = 0;
  cluster.on('listening', (worker, address) => {
    if (address.port !== port) {
      throw new Error(`a worker listens on ${address.port}`);
    }
    listening += 1;
    if (listening === 2) {
      worker.send('ask');
      worker.on('message', ({ text }) => finish(listening, text));
    }
  });
  for (let i = 0; i < 2; i++) {
    cluster.fork({ SEALANE_TEST_PORT: port });
  }
}

function finish(listening, text) {
  process.send({ listening, answered: text === 'x' }, () => {
    cluster.disconnect(() => process.disconnect());
  });
}
