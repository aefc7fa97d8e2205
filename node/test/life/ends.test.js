'use strict';

// How a server's process, thread or lane ends: without hang, leak or abort.

const assert = require('node:assert');
const fs = require('node:fs');
const { test } = require('node:test');
const tls = require('node:tls');
const { Worker } = require('node:worker_threads');

const { isSealane } = require('../implementation');
const { connected, pair, tlsSite } = require('../site');
const { collect, ended, event, until, within } = require('../within');
const { message, start } = require('./child');

const noLanes = { skip: isSealane ? false : 'node has no lanes' };
const WORKERS = 10;
const CYCLE_FDS_MAX = 4;
/** Over 800 cycles: 20 KB for each would be a leak. Allocators keep less. */
const CYCLE_BYTES_MAX = 16 * 1024 * 1024;

async function connectTo(t, { port, ca }) {
  const client = tls.connect({ port, host: '127.0.0.1', ca, servername: 'localhost' });
  client.on('error', () => {});
  t.after(() => client.destroy());
  await event(client, 'secureConnect');
  return client;
}

test('process.exit with live connections', async (t) => {
  const child = start(t, 'serve.js');
  const where = await message(child);
  const clients = [];
  for (let i = 0; i < 5; i += 1) {
    const client = await connectTo(t, where);
    client.write('x');
    await event(client, 'data');
    clients.push(client);
  }
  const clientsEnded = clients.map((client) => ended(client));
  const exited = event(child, 'exit');
  child.send('exit with connections');
  assert.deepStrictEqual(await exited, [45, null]);
  await Promise.all(clientsEnded);
});

test('process.exit while bytes flow', async (t) => {
  const child = start(t, 'serve.js');
  const where = await message(child);
  const client = await connectTo(t, where);
  client.on('data', () => {});
  const chunk = Buffer.alloc(1 << 20);
  const write = () => {
    while (!client.destroyed && client.write(chunk));
  };
  client.on('drain', write);
  write();
  await event(client, 'data');
  const exited = event(child, 'exit');
  child.send('exit');
  assert.deepStrictEqual(await exited, [0, null]);
});

test('an uncaught exception ends the process as always', async (t) => {
  const child = start(t, 'throw.js');
  const where = await message(child);
  const client = await connectTo(t, where);
  const exited = event(child, 'exit');
  client.write('x');
  assert.deepStrictEqual(await exited, [7, null]);
});

test('workers that are terminated with live connections', async (t) => {
  for (let i = 0; i < WORKERS; i += 1) {
    const worker = new Worker(require.resolve('./worker.js'));
    const [where] = await event(worker, 'message');
    const client = await connectTo(t, where);
    client.write('hello');
    assert.strictEqual(String((await event(client, 'data'))[0]), 'hello');
    const closed = ended(client);
    await within(worker.terminate(), 'terminate');
    await closed;
  }
});

test('workers that are terminated keep no connection that they never took', noLanes, async (t) => {
  const descriptors = () => fs.readdirSync('/proc/self/fd').length;
  const untaken = async () => {
    const worker = new Worker(require.resolve('./blocked.js'));
    const [where] = await event(worker, 'message');
    const clients = [];
    for (let i = 0; i < 2 * CYCLE_FDS_MAX; i += 1) clients.push(await connectTo(t, where));
    await within(worker.terminate(), 'terminate');
    for (const client of clients) client.destroy();
  };
  await untaken();
  const before = descriptors();
  for (let i = 0; i < 2; i += 1) await untaken();
  await until(() => descriptors() - before <= CYCLE_FDS_MAX, 'the end of all descriptors');
});

test('servers in several workers at once, and here', async (t) => {
  const workers = [1, 2, 3].map(() => new Worker(require.resolve('./worker.js')));
  t.after(() => Promise.all(workers.map((worker) => worker.terminate())));
  const places = await Promise.all(workers.map(async (w) => (await event(w, 'message'))[0]));
  const here = await tlsSite(t, {}, (socket) => socket.pipe(socket));
  const mine = await connected(t, here);
  for (const client of [mine, ...(await Promise.all(places.map((p) => connectTo(t, p))))]) {
    client.write('hello');
    assert.strictEqual(String((await event(client, 'data'))[0]), 'hello');
  }
});

test('close with many live connections, then their ends', async (t) => {
  const server = await tlsSite(t);
  const ends = await Promise.all(Array.from({ length: 50 }, () => pair(t, server)));
  let closed = false;
  server.close(() => {
    closed = true;
  });
  for (const { client, socket } of ends) {
    assert.strictEqual(closed, false);
    const said = collect(client);
    socket.end('bye');
    assert.strictEqual(String(await said), 'bye');
  }
  await until(() => closed, 'close');
});

test('400 cycles of listen and close: descriptors and memory flat', async (t) => {
  const child = start(t, 'cycles.js', ['100', '300']);
  const [before, after] = await message(child);
  assert.ok(after.fds - before.fds <= CYCLE_FDS_MAX, `${before.fds} then ${after.fds} fds`);
  const grown = after.rss - before.rss;
  assert.ok(grown < CYCLE_BYTES_MAX, `${Math.round(grown / 1024)} KiB more`);
  assert.deepStrictEqual(await event(child, 'exit'), [0, null]);
});

test('a server that is unreferenced does not keep the process', async (t) => {
  const child = start(t, 'unreferenced.js');
  assert.deepStrictEqual(await event(child, 'exit'), [0, null]);
});

test('a panic in a lane', noLanes, async (t) => {
  const server = await tlsSite(t, { lanes: 1 });
  const { socket, client } = await pair(t, server);
  const { kChannel } = require('../../lib/identity');
  const channel = socket[kChannel];
  if (!channel?.lane) {
    t.skip('this connection is a descriptor');
    return;
  }
  const { lane, slot, generation } = channel;
  const PANIC = 255;
  const IN_CONNECTION = 0;
  const OUTSIDE = 1;
  const panic = (where) => {
    lane.commands.control(PANIC, slot, generation, 4, where, 0);
    lane.commanded();
  };
  const failed = new Promise((resolve) => {
    server.once('error', resolve);
  });
  const closed = new Promise((resolve) => {
    socket.once('close', resolve);
  });
  socket.on('error', () => {});
  const other = await pair(t, server);
  other.socket.on('error', () => {});
  panic(IN_CONNECTION);
  await within(closed, 'the end of the connection that panicked');
  const without = await Promise.race([failed, Promise.resolve(undefined)]);
  if (without !== undefined) {
    assert.match(without.message, /written over/);
    t.skip('the addon is built without its feature "faults": node/build --features faults');
    return;
  }
  await ended(client);
  other.socket.write('still alive');
  assert.strictEqual(String((await event(other.client, 'data'))[0]), 'still alive');
  const gone = new Promise((resolve) => {
    other.socket.once('close', resolve);
  });
  panic(OUTSIDE);
  const error = await within(failed, "the server's error");
  assert.ok(error instanceof Error);
  await within(gone, 'the end of the others');
});
