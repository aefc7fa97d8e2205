'use strict';

// For contexts.test.js: one connection's listener throws, the other's must be served all the same.

const tls = require('node:tls');
const sealane = require('sealane');
const { ca, leaf } = { ca: null, leaf: null, ...certificates() };

function certificates() {
  const { authority, leaf: make } = require('../certificates');
  const issuer = authority('authority');
  return { ca: issuer.cert, leaf: make(issuer, 'localhost') };
}

process.on('uncaughtException', ({ message }) => process.stdout.write(`caught: ${message}\n`));

const { cert, key } = leaf;
const server = sealane.createTLSServer({ cert, key, lanes: 1 }, (socket) => {
  socket.once('data', (chunk) => {
    if (String(chunk) === 'bad') {
      throw new Error('the listener is broken');
    }
    socket.end(chunk);
  });
});

server.listen(0, '127.0.0.1', () => {
  const connect = (text, ready) => {
    const client = tls.connect(server.address().port, '127.0.0.1', { ca, servername: 'localhost' });
    client.on('secureConnect', () => ready(client));
    return client;
  };
  const bad = connect('bad', () => {
    const good = connect('good', () => {
      bad.write('bad');
      good.write('good');
    });
    good.on('data', (chunk) => process.stdout.write(`answered: ${chunk}\n`));
    good.on('close', () => process.exit());
  });
});
