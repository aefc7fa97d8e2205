'use strict';

// A server with a listener that throws: node's exit code for an uncaught exception's handler is
// ours.

const { createTLSServer } = require('../implementation');
const { own, ca } = require('../site');

process.on('uncaughtException', (error) => {
  process.exitCode = error.message === 'on purpose' ? 7 : 1;
  process.exit();
});
const server = createTLSServer(own, (socket) => {
  socket.on('data', () => {
    throw new Error('on purpose');
  });
});
server.listen(0, '127.0.0.1', () => {
  process.send({ port: server.address().port, ca: ca.cert });
});
