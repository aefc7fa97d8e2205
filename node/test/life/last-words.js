'use strict';

// A server with a process that ends as soon as it has answered, in the way of the first argument.

const { createServer, createTLSServer } = require('../implementation');
const { own } = require('../site');

const WORDS = 'last words';
const ways = {
  'raw end': () =>
    createTLSServer(own, (socket) => {
      socket.end(WORDS);
      process.exit();
    }),
  'raw write': () =>
    createTLSServer(own, (socket) => {
      socket.write(WORDS);
      process.exit();
    }),
  'http callback': () =>
    createServer(own, (_request, response) => {
      response.end(WORDS, () => process.exit());
    }),
};

const server = ways[process.argv[2]]();
server.listen(0, '127.0.0.1', () => process.send(server.address().port));
