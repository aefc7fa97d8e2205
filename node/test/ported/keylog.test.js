'use strict';

// Key logs, and contexts of async calls.
// After test-tls-keylog-tlsv13, test-https-agent-keylog, test-tls-enable-keylog-cli,
// test-async-wrap-tlssocket-asyncreset, test-tls-connect-memleak.

const assert = require('node:assert');
const { AsyncLocalStorage, executionAsyncId } = require('node:async_hooks');
const { test } = require('node:test');

const { isSealane } = require('../implementation');
const { connect, connected, httpsSite, pair, request, ticket, tlsSite } = require('../site');
const { event, take, until } = require('../within');

test('keylog gives the lines of each session, and whose they are', async (t) => {
  for (const [version, labels] of [
    ['TLSv1.2', ['CLIENT_RANDOM']],
    [
      'TLSv1.3',
      [
        'CLIENT_HANDSHAKE_TRAFFIC_SECRET',
        'CLIENT_TRAFFIC_SECRET_0',
        'EXPORTER_SECRET',
        'SERVER_HANDSHAKE_TRAFFIC_SECRET',
        'SERVER_TRAFFIC_SECRET_0',
      ],
    ],
  ]) {
    const server = await tlsSite(t, { minVersion: version, maxVersion: version });
    const lines = [];
    const sockets = new Set();
    server.on('keylog', (line, socket) => {
      assert.ok(Buffer.isBuffer(line));
      lines.push(String(line));
      sockets.add(socket);
    });
    const clientLines = [];
    const client = connect(t, server);
    client.on('keylog', (line) => clientLines.push(String(line)));
    const [socket] = await event(server, 'secureConnection');
    await until(() => lines.length >= labels.length, 'the lines');
    const all = lines.join('');
    const found = [
      ...new Set(
        all
          .trim()
          .split('\n')
          .map((line) => line.split(' ')[0]),
      ),
    ].sort();
    assert.deepStrictEqual(found, labels);
    await until(() => clientLines.length >= labels.length, "the client's lines");
    for (const line of clientLines) assert.ok(all.includes(line.trim()), line);
    assert.deepStrictEqual([...sockets].length, 1);
    if (isSealane) assert.ok(sockets.has(socket));
  }
});

test('keylog gives the lines of a connection that is destroyed at once', async (t) => {
  const server = await tlsSite(t, { minVersion: 'TLSv1.3' }, (socket) => socket.destroy());
  const lines = [];
  server.on('keylog', (line) => lines.push(String(line).split(' ')[0]));
  connect(t, server);
  await until(() => new Set(lines).size >= 5, 'the lines');
});

test('keylog gives as many lines for a session that resumes', async (t) => {
  const server = await tlsSite(t, { minVersion: 'TLSv1.3' });
  const session = await ticket(t, server);
  const labels = [];
  server.on('keylog', (line) => labels.push(String(line).split(' ')[0]));
  const { client, socket } = await pair(t, server, { session });
  assert.ok(client.isSessionReused());
  // The last of them comes with the client's first bytes.
  client.write('read');
  await take(socket, 4);
  assert.strictEqual(labels.length, 5, labels.join());
});

test("requests do not see each other's AsyncLocalStorage", async (t) => {
  const storage = new AsyncLocalStorage();
  let next = 0;
  const server = await httpsSite(t, {}, (incoming, answer) => {
    assert.strictEqual(storage.getStore(), undefined, 'a context leaked from another request');
    const mine = next++;
    storage.run(mine, async () => {
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
      let size = 0;
      for await (const chunk of incoming) size += chunk.length;
      assert.strictEqual(storage.getStore(), mine);
      setTimeout(() => answer.end(`${storage.getStore() === mine} ${size}`), 1);
    });
  });
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, i) =>
      request(server, { method: 'POST' }, Buffer.alloc(i * 1000)),
    ),
  );
  answers.forEach(({ text }, i) => {
    assert.strictEqual(text, `true ${i * 1000}`);
  });
});

test('raw sockets: no event sees the context of another connection', async (t) => {
  const storage = new AsyncLocalStorage();
  const seen = new Set();
  let count = 0;
  const server = await tlsSite(t, {}, (socket) => {
    seen.add(storage.getStore());
    const mine = count++;
    storage.enterWith(mine);
    socket.on('data', (chunk) => {
      if (storage.getStore() !== mine) seen.add(storage.getStore());
      storage.run(`${chunk}`, () =>
        setImmediate(() => {
          socket.write(storage.getStore(), () => {
            socket.write(storage.getStore() === `${chunk}` ? '!' : '?');
          });
        }),
      );
    });
  });
  const ends = [];
  for (let i = 0; i < 10; i += 1) ends.push(await connected(t, server));
  for (let round = 0; round < 3; round += 1) {
    await Promise.all(
      ends.map(async (client, i) => {
        client.write(`${round}.${i}`);
        assert.strictEqual(String(await take(client, 4)), `${round}.${i}!`);
      }),
    );
  }
  assert.deepStrictEqual([...seen], [undefined]);
});

test('each connection has an async id of its own', async (t) => {
  const ids = new Set();
  const server = await tlsSite(t, {}, () => ids.add(executionAsyncId()));
  for (let i = 0; i < 5; i += 1) await pair(t, server);
  assert.strictEqual(ids.size, 5);
});

test("a server made inside a context does not give it to its connections' data", async (t) => {
  const storage = new AsyncLocalStorage();
  const seen = [];
  await storage.run("the server's", async () => {
    const server = await tlsSite(t, {}, (socket) => {
      storage.run("the connection's", () => socket.on('data', () => {}));
      socket.once('end', () => seen.push('end'));
    });
    const { client } = await pair(t, server);
    client.end('x');
    await until(() => seen.length === 1, 'the end');
  });
  assert.deepStrictEqual(seen, ['end']);
});
