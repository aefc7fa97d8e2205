'use strict';

// A server in a separate process: echoes, and reports its memory when asked.

const { createTLSServer } = require('../implementation');
const { own, ca } = require('../site');
const { held } = require('./child');

const server = createTLSServer(own, (socket) => {
  socket.on('error', () => {});
  socket.pipe(socket);
});
server.listen(0, '127.0.0.1', () => {
  process.send({ port: server.address().port, ca: ca.cert });
});
process.on('message', (word) => {
  if (word === 'held') held().then((all) => process.send(all));
  if (word === 'exit') process.exit(0);
  if (word === 'exit with connections') {
    server.getConnections((error, count) => process.exit(error ? 1 : 40 + count));
  }
  if (word === 'throw')
    setImmediate(() => {
      throw new Error('on purpose');
    });
});
