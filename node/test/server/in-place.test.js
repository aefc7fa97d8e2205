'use strict';

// A program that puts Sealane's servers in the place of node's, for all its packages at once.

const assert = require('node:assert');
const net = require('node:net');
const { test } = require('node:test');
const tls = require('node:tls');

const { package: sealane, onlySealane } = require('../implementation');
const { ca, own } = require('../site');
const { event } = require('../within');

test('a socket that is handed over is served though tls.createServer is ours', {
  skip: onlySealane,
}, async (t) => {
  const { createServer } = tls;
  tls.createServer = sealane.createTLSServer;
  t.after(() => {
    tls.createServer = createServer;
  });
  const server = tls.createServer(own, (socket) => socket.end('served'));
  const outer = net.createServer((socket) => server.emit('connection', socket));
  outer.listen(0, '127.0.0.1');
  await event(outer, 'listening');
  t.after(() => outer.close());

  const { port } = outer.address();
  const client = tls.connect({ ca: ca.cert, host: '127.0.0.1', port, servername: 'localhost' });
  t.after(() => client.destroy());
  const [text] = await event(client, 'data');
  assert.strictEqual(String(text), 'served');
});
