'use strict';

// A server in a worker thread.

const { parentPort } = require('node:worker_threads');

const { authority, leaf } = require('../certificates');
const { createTLSServer } = require('../implementation');

const ca = authority('Authority of a worker');
const { cert, key } = leaf(ca, 'localhost');
const server = createTLSServer({ cert, key }, (socket) => {
  socket.on('error', () => {});
  socket.pipe(socket);
});
server.listen(0, '127.0.0.1', () => {
  parentPort.postMessage({ port: server.address().port, ca: ca.cert });
});
