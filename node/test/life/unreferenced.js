'use strict';

// Ends by itself, although its server listens and has had a connection.

const tls = require('node:tls');

const { createTLSServer } = require('../implementation');
const { own } = require('../site');

const server = createTLSServer(own, (socket) => socket.end('x'));
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  const client = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
  client.resume().on('close', () => {
    server.unref();
    process.disconnect();
  });
});
