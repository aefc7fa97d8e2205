'use strict';

// Data that was written before process.exit arrives, also where node's own TLS would lose it.

const assert = require('node:assert');
const { fork } = require('node:child_process');
const path = require('node:path');
const { test } = require('node:test');
const tls = require('node:tls');

const { isSealane } = require('../implementation');
const { event, within } = require('../within');

for (const [way, request] of [
  ['raw end', ''],
  ['raw write', ''],
  ['http callback', 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'],
]) {
  const skip = isSealane || request !== '' ? false : 'node encrypts it too late';
  test(`process.exit behind ${way}`, { skip }, async (t) => {
    const child = fork(path.join(__dirname, 'last-words.js'), [way]);
    t.after(() => child.kill());
    const [port] = await event(child, 'message');
    const client = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
    client.on('error', () => {});
    client.write(request);
    let said = '';
    client.setEncoding('latin1').on('data', (text) => {
      said += text;
    });
    await within(new Promise((resolve) => client.once('close', resolve)), "the client's end");
    assert.match(said, /last words$/);
  });
}
