'use strict';

// Listens and closes: FIRST times, then counts, then MORE times, then counts again.

const { once } = require('node:events');
const tls = require('node:tls');

const { createTLSServer } = require('../implementation');
const { own } = require('../site');
const { held } = require('./child');

/** One in this many cycles has a connection. */
const CONNECTION_EACH = 10;

main();

async function main() {
  const [first, more] = process.argv.slice(2).map(Number);
  await cycles(first);
  const before = await held();
  await cycles(more);
  process.send([before, await held()], () => process.disconnect());
}

async function cycles(count) {
  for (let i = 0; i < count; i += 1) {
    const server = createTLSServer(own, (socket) => socket.end('x'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    if (i % CONNECTION_EACH === 0) {
      const { port } = server.address();
      const client = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
      await once(client.resume(), 'close');
    }
    server.close();
    await once(server, 'close');
  }
}
