'use strict';

// A worker of a cluster for resumption.test.js: serves TLS on a separate port, and reports it.

const { createTLSServer } = require('../implementation');

const { CERT: cert, KEY: key, TICKET_KEYS: keys } = process.env;
const server = createTLSServer({ cert, key, ticketKeys: Buffer.from(keys, 'hex') }, (socket) =>
  socket.end('x'),
);
// A separate port although a cluster shares ports: exclusive.
server.listen({ port: 0, host: '127.0.0.1', exclusive: true }, () => {
  process.send({ port: server.address().port });
});
process.once('disconnect', () => server.close());
