'use strict';

// The program that each test runner runs: a server of the package, one request and a close.

const assert = require('node:assert');
const https = require('node:https');
const sealane = require('sealane');
const { authority, leaf } = require('../certificates');

/** Serves HTTPS to node's own client. */
async function servesOneRequest() {
  const issuer = authority('authority');
  const { cert, key } = leaf(issuer, 'localhost');
  const server = sealane.createServer({ cert, key, lanes: 1 }, (request, answer) => {
    assert.ok(request.socket.encrypted);
    answer.end('served');
  });
  const { signal } = new AbortController();
  const where = { host: '127.0.0.1', port: 0, signal };
  await new Promise((resolve) => server.listen(where, resolve));
  const { port } = server.address();
  const options = { agent: false, ca: issuer.cert, host: '127.0.0.1', servername: 'localhost' };
  const text = await new Promise((resolve, reject) => {
    const request = https.get({ ...options, port }, (answer) => {
      let body = '';
      answer.on('data', (chunk) => {
        body += chunk;
      });
      answer.on('end', () => resolve(body));
    });
    request.on('error', reject);
  });
  await new Promise((resolve) => server.close(resolve));
  assert.strictEqual(text, 'served');
}

module.exports = { servesOneRequest };
