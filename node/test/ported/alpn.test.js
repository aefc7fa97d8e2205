'use strict';

// Protocols by ALPN. After test-tls-alpn-server-client, test-tls-basic-validations.

const assert = require('node:assert');
const { test } = require('node:test');

const { createTLSServer, differs, isSealane } = require('../implementation');
const { connected, httpsSite, own, pair, refused, tlsSite } = require('../site');
const { event } = require('../within');

async function agreed(t, server, ALPNProtocols) {
  const { client, socket } = await pair(t, server, { ALPNProtocols });
  assert.strictEqual(client.alpnProtocol, socket.alpnProtocol);
  return socket.alpnProtocol;
}

test("the server's order of preference decides", async (t) => {
  const server = await tlsSite(t, { ALPNProtocols: ['a', 'b', 'c'] });
  assert.strictEqual(await agreed(t, server, ['a', 'b', 'c']), 'a');
  assert.strictEqual(await agreed(t, server, ['c', 'b', 'e']), 'b');
  assert.strictEqual(await agreed(t, server, ['x', 'y', 'c']), 'c');
});

test('false when either side offers nothing', async (t) => {
  const silent = await tlsSite(t);
  assert.strictEqual(await agreed(t, silent, ['a', 'b']), false);
  assert.strictEqual(await agreed(t, silent, undefined), false);
  const server = await tlsSite(t, { ALPNProtocols: ['a'] });
  assert.strictEqual(await agreed(t, server, undefined), false);
});

test('no protocol in common: a fatal alert, and no secureConnection', async (t) => {
  const server = await tlsSite(t, { ALPNProtocols: ['foo'] });
  server.on('secureConnection', () => assert.fail('there is no protocol in common'));
  const failed = event(server, 'tlsClientError');
  const error = await refused(t, server, { ALPNProtocols: ['bar'] });
  assert.ok(
    ['ECONNRESET', 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL'].includes(error.code),
    error.code,
  );
  await failed;
});

test('protocols as the bytes of the wire', async (t) => {
  const server = await tlsSite(t, { ALPNProtocols: Buffer.from('\x01b\x02a1') });
  assert.strictEqual(await agreed(t, server, ['a1', 'b']), 'b');
  assert.strictEqual(await agreed(t, server, ['a1']), 'a1');
});

test('a protocol of more than 255 bytes is refused', () => {
  assert.throws(() => createTLSServer({ ...own, ALPNProtocols: ['a'.repeat(500)] }), {
    code: 'ERR_OUT_OF_RANGE',
  });
});

test('https speaks http/1.1 unless told otherwise', async (t) => {
  const server = await httpsSite(t);
  const client = await connected(t, server, { ALPNProtocols: ['h2', 'http/1.1'] });
  assert.strictEqual(client.alpnProtocol, 'http/1.1');
});

test('ALPNCallback', async (t) => {
  const seen = [];
  const ALPNCallback = ({ servername, protocols }) => {
    seen.push([servername, protocols]);
    return protocols[1];
  };
  if (isSealane) {
    // The lane, which knows nothing of JavaScript, chooses the protocol.
    assert.throws(() => createTLSServer({ ...own, ALPNCallback }), /ALPNProtocols/);
    return;
  }
  const server = await tlsSite(t, { ALPNCallback });
  assert.strictEqual(await agreed(t, server, ['a', 'b', 'c']), 'b');
  assert.deepStrictEqual(seen, [['localhost', ['a', 'b', 'c']]]);
});

test('NPN, which is no more', async () => {
  // node ignores the option. A program that still has it should get a warning.
  const make = () => createTLSServer({ ...own, NPNProtocols: ['http/1.1'] });
  differs({
    node: () => assert.ok(make()),
    sealane: () => assert.throws(make, /ALPNProtocols/),
  })();
});
