'use strict';

// For guarded.test.js: listeners that throw or reject, one after the other, in a process that notes
// uncaught errors. After each the server must serve the next client.

const { createServer } = require('../implementation');
const { ca, own } = require('../site');
const tls = require('node:tls');

const NAMES = ['connection', 'secureConnection', 'keylog', 'tlsClientError', 'request'];
const WAYS = {
  throws() {
    throw new Error('on purpose');
  },
  async rejects() {
    throw new Error('on purpose');
  },
};

let seen = () => {};
process.on('uncaughtException', () => seen('uncaught'));
process.on('unhandledRejection', () => seen('rejected'));

const server = createServer(own, (_request, answer) => answer.end('x'));
server.on('keylog', () => {});
server.listen(0, '127.0.0.1', async () => {
  for (const name of NAMES) {
    for (const [way, listener] of Object.entries(WAYS)) {
      const outcome = new Promise((resolve) => {
        seen = resolve;
      });
      server.prependOnceListener(name, listener);
      const client = visit(name === 'tlsClientError' ? { maxVersion: 'TLSv1.1' } : {});
      const what = await outcome;
      client.destroy();
      await served();
      process.send(`${name} ${way}: ${what}, served`);
    }
  }
  process.exit();
});

/** A client that asks for something as soon as it can. */
function visit(options) {
  const where = { host: '127.0.0.1', port: server.address().port };
  const client = tls.connect({ ...where, ca: ca.cert, servername: 'localhost', ...options });
  client.on('error', () => {});
  client.write('GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
  return client;
}

function served() {
  return new Promise((resolve) => {
    visit({}).once('data', resolve);
  });
}
