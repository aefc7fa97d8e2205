'use strict';

// Slow readers cost little memory, and busy connections leave time for everything else.

const assert = require('node:assert');
const crypto = require('node:crypto');
const { test } = require('node:test');
const tls = require('node:tls');

const { pair, tlsSite } = require('../site');
const { event, pause, until, within } = require('../within');
const { ask, median, message, start } = require('./child');

const CONNECTIONS = 8;
const ECHO_BYTES = 80 * 1024 * 1024;
const CHUNK_BYTES = 256 * 1024;
/**
 * The memory of a connection beyond that of an idle one: half of its bytes. With a busy machine its
 * buffers in the lane, which the allocator keeps, reach 3 MiB for a moment.
 */
const EXTRA_BYTES_MAX = ECHO_BYTES / CONNECTIONS / 2;
/** Samples of memory while nothing is read. */
const SAMPLES = 7;
const FLOOD_BYTES = 64 * 1024 * 1024;

test('80 MB echoed to clients that stop reading: bounded memory, every byte', async (t) => {
  const child = start(t, 'serve.js');
  const { port, ca } = await message(child);
  const clients = await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      const client = tls.connect({ port, host: '127.0.0.1', ca, servername: 'localhost' });
      t.after(() => client.destroy());
      await event(client, 'secureConnect');
      return client;
    }),
  );
  // Memory that serves any amount is allocated once, before the count.
  await Promise.all(clients.map((client) => echo(client, 2 * 1024 * 1024, false)));
  const before = await ask(child, 'held');
  const during = [];
  const watching = (async () => {
    for (let i = 0; i < SAMPLES; i += 1) {
      await pause(300);
      during.push((await ask(child, 'held')).rss);
    }
  })();
  await Promise.all(clients.map((client) => echo(client, ECHO_BYTES / CONNECTIONS, watching)));
  const extra = (median(during) - before.rss) / CONNECTIONS;
  assert.ok(extra < EXTRA_BYTES_MAX, `${Math.round(extra / 1024)} KiB a connection`);
});

/** Writes and compares the echo. Reads nothing before `watching` is over. */
async function echo(client, bytes, watching) {
  const [sent, got] = [crypto.createHash('sha1'), crypto.createHash('sha1')];
  let left = bytes;
  let wanted = bytes;
  const pattern = crypto.randomBytes(CHUNK_BYTES);
  const write = () => {
    while (left > 0) {
      left -= CHUNK_BYTES;
      sent.update(pattern);
      if (!client.write(pattern)) {
        client.once('drain', write);
        return;
      }
    }
  };
  client.pause();
  const whole = new Promise((resolve) => {
    const onData = (chunk) => {
      got.update(chunk);
      wanted -= chunk.length;
      if (wanted > 0) return;
      client.off('data', onData);
      resolve();
    };
    client.on('data', onData);
    client.pause();
  });
  write();
  if (watching) await watching;
  client.resume();
  await within(whole, 'the echo', 60_000);
  assert.strictEqual(got.digest('hex'), sent.digest('hex'));
}

test('timers, immediates and other connections live while some flood', async (t) => {
  const server = await tlsSite(t);
  let got = 0;
  const sending = [];
  for (let i = 0; i < 4; i += 1) {
    const child = start(t, 'flood.js', [String(server.address().port), String(FLOOD_BYTES / 4)]);
    server.on('secureConnection', (socket) => {
      socket.on('error', () => {});
      socket.on('data', (chunk) => {
        got += chunk.length;
      });
    });
    sending.push(child);
  }
  await until(() => got > 0, 'the flood');
  const lived = { immediates: 0, timers: 0 };
  const timer = setInterval(() => {
    lived.timers += 1;
  }, 5);
  t.after(() => clearInterval(timer));
  let immediate = setImmediate(function again() {
    lived.immediates += 1;
    immediate = setImmediate(again);
  });
  t.after(() => clearImmediate(immediate));
  const { client, socket } = await pair(t, server);
  let echoed = 0;
  socket.on('data', (chunk) => socket.write(chunk));
  client.on('data', () => {
    echoed += 1;
    client.write('x');
  });
  client.write('x');
  await within(Promise.all(sending.map((child) => event(child, 'exit'))), 'the flood', 60_000);
  clearInterval(timer);
  assert.ok(lived.timers >= 5, `${lived.timers} timers`);
  assert.ok(lived.immediates >= 5, `${lived.immediates} immediates`);
  assert.ok(echoed >= 3, `${echoed} echoes`);
});
