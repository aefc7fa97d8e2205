'use strict';

// For contexts.test.js: one connection's listener throws, the other's must be served all the same.

const tls = require('node:tls');
const sealane = require('sealane');
const { authority, leaf } = require('../certificates');

const issuer = authority('authority');
const { cert, key } = leaf(issuer, 'localhost');
const server = sealane.createTLSServer({ cert, key, lanes: 1 }, (socket) => {
  socket.once('data', (chunk) => {
    if (String(chunk) === 'bad') {
      throw new Error('the listener is broken');
    }
    socket.end(chunk);
  });
});

const seen = [];

function see(what) {
  seen.push(what);
  if (seen.length === 2) {
    process.stdout.write(`${seen.sort().join('\n')}\n`);
    process.exit();
  }
}

process.on('uncaughtException', ({ message }) => see(`caught: ${message}`));

server.listen(0, '127.0.0.1', async () => {
  const { port } = server.address();
  const options = { ca: issuer.cert, servername: 'localhost' };
  const clients = ['bad', 'good'].map((text) => {
    const client = tls.connect(port, '127.0.0.1', options, () => client.write(text));
    return client;
  });
  clients[1].on('data', (chunk) => see(`answered: ${chunk}`));
});
