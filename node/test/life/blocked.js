'use strict';

// A server in a worker thread. Its clients come by descriptors when it does nothing any more.

const { parentPort } = require('node:worker_threads');

const { authority, leaf } = require('../certificates');
const { createTLSServer } = require('../implementation');

const ca = authority('Authority of a worker');
const { cert, key } = leaf(ca, 'localhost');
const server = createTLSServer({ cert, key, lanes: 1, handover: 'socket' }, () => {});
server.listen(0, '127.0.0.1', () => {
  parentPort.postMessage({ port: server.address().port, ca: ca.cert });
  setImmediate(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0));
});
