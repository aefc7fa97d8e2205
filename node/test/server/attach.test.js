'use strict';

// Servers of node's own that get lanes: none of their earlier settings is lost in silence.

const assert = require('node:assert/strict');
const http = require('node:http');
const https = require('node:https');
const net = require('node:net');
const { test } = require('node:test');
const tls = require('node:tls');
const sealane = require('sealane');
const { authority } = require('../certificates');
const { connected, own, pair, start } = require('../site');
const { event, until } = require('../within');

test('what a server was told of TLS must be told to attach too', () => {
  const { cert: ca } = authority('Authority of clients');
  const asks = { ...own, ca, requestCert: true };
  const named = https.createServer(own);
  named.addContext('a.example', own);
  for (const [server, options, lost] of [
    [https.createServer(asks), own, /ca, requestCert before/],
    [https.createServer(own), undefined, /cert, key before/],
    [https.createServer({ minVersion: 'TLSv1.3' }), own, /minVersion before/],
    [tls.createServer({ SNICallback() {} }), own, /SNICallback before/],
    [named, own, /addContext before/],
  ]) {
    assert.throws(() => sealane.attach(server, options), { message: lost });
  }
  sealane.attach(https.createServer(asks), asks);
  sealane.attach(https.createServer(own), own);
  const listens = tls.createServer().on('resumeSession', () => {});
  assert.throws(() => sealane.attach(listens, own), /'resumeSession' is not offered/);
});

test('what a server was told of its sockets holds', async (t) => {
  const given = { allowHalfOpen: true, pauseOnConnect: true };
  const blockList = new net.BlockList();
  const server = sealane.attach(net.createServer({ ...given, blockList }), own);
  await start(t, server);
  const { socket } = await pair(t, server);
  assert.equal(socket.isPaused(), true);
  assert.equal(socket.allowHalfOpen, true);
  // Releases of node that have no such option do not keep it.
  if (server.blockList === undefined) return;
  blockList.addAddress('127.0.0.1');
  const client = await connected(t, server);
  client.resume();
  await event(client, 'close');
});

test('who speaks no TLS itself gets no connection whose handshake failed', async (t) => {
  for (const plain of [http.createServer(), net.createServer()]) {
    const server = await start(t, sealane.attach(plain, own));
    let connections = 0;
    server.prependListener('connection', () => (connections += 1));
    const failed = event(server, 'tlsClientError');
    net
      .connect(server.address().port, '127.0.0.1')
      .on('error', () => {})
      .end('junk junk junk');
    await failed;
    assert.equal(connections, 0);
    await connected(t, server);
    await until(() => connections === 1, 'one that speaks TLS');
  }
});

test('who listened for key logs before gets them', async (t) => {
  const lines = [];
  const server = tls.createServer().on('keylog', (line) => lines.push(line));
  await start(t, sealane.attach(server, own));
  await pair(t, server);
  await until(() => lines.length > 0, 'a line');
});
