'use strict';

// Frameworks as they are, over each way of handing plaintext over.

const assert = require('node:assert');
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const http2 = require('node:http2');
const https = require('node:https');
const path = require('node:path');
const { test } = require('node:test');

const express = require('express');
const fastify = require('fastify');
const Koa = require('koa');
const WebSocket = require('ws');

const { attach, createServer, isSealane } = require('../implementation');
const { folder } = require('../clients/programs');
const { ca, endsOf, own, request, start } = require('../site');
const { collect, event, within } = require('../within');

const HANDOVERS = isSealane ? ['ring', 'socket'] : ['none'];
const FILE_BYTES = 1_200_000;
const PIPE_BYTES = 20 * 1024 * 1024;

/** A server of HTTP/1 with this listener, and this way of handing over. */
function site(t, handover, onRequest) {
  return start(t, createServer({ ...own, ...(isSealane && { handover }) }, onRequest));
}

const json = { 'content-type': 'application/json' };
const document = { list: Array.from({ length: 9_000 }, (_, i) => `entry ${i % 10}`) };

for (const handover of HANDOVERS) {
  test(`${handover}: express`, async (t) => {
    const file = path.join(folder(t), 'file.bin');
    const content = crypto.randomBytes(FILE_BYTES);
    fs.writeFileSync(file, content);
    const app = express();
    app.use(express.json({ limit: '1mb' }));
    app.get('/hello/:name', (incoming, answer) => {
      answer.json({
        name: incoming.params.name,
        secure: incoming.secure,
        ip: incoming.ip,
        protocol: incoming.protocol,
      });
    });
    app.post('/json', (incoming, answer) => answer.json(incoming.body));
    app.get('/file', (_incoming, answer) => answer.sendFile(file));
    app.get('/fails', () => {
      throw new Error('on purpose');
    });
    app.use((error, _incoming, answer, next) => answer.status(500).send(error.message) && next);
    const server = await site(t, handover, app);
    const hello = JSON.parse((await request(server, { path: '/hello/you' })).text);
    assert.deepStrictEqual(hello, {
      name: 'you',
      secure: true,
      ip: '127.0.0.1',
      protocol: 'https',
    });
    const text = JSON.stringify(document);
    assert.ok(text.length > 90_000);
    const echoed = await request(server, { path: '/json', method: 'POST', headers: json }, text);
    assert.deepStrictEqual(JSON.parse(echoed.text), document);
    assert.ok((await request(server, { path: '/file' })).body.equals(content));
    const part = await request(server, { path: '/file', headers: { range: 'bytes=5-9' } });
    assert.strictEqual(part.status, 206);
    assert.ok(part.body.equals(content.subarray(5, 10)));
    assert.strictEqual((await request(server, { path: '/nowhere' })).status, 404);
    assert.strictEqual((await request(server, { path: '/fails' })).text, 'on purpose');
  });

  test(`${handover}: fastify by serverFactory`, async (t) => {
    const app = fastify({
      ...(isSealane
        ? { serverFactory: (handler) => attach(http.createServer(handler), { ...own, handover }) }
        : { https: own }),
    });
    app.get('/hello', async (incoming) => ({ hello: 'world', ip: incoming.ip }));
    app.post('/json', async (incoming) => incoming.body);
    await within(app.listen({ port: 0, host: '127.0.0.1' }), 'listen');
    t.after(() => within(app.close(), "fastify's close"));
    const { server } = app;
    const hello = await request(server, { path: '/hello' });
    assert.deepStrictEqual(JSON.parse(hello.text), { hello: 'world', ip: '127.0.0.1' });
    const echoed = await request(
      server,
      { path: '/json', method: 'POST', headers: json },
      JSON.stringify(document),
    );
    assert.deepStrictEqual(JSON.parse(echoed.text), document);
  });

  test(`${handover}: koa`, async (t) => {
    const app = new Koa();
    app.use(async (context) => {
      if (context.method === 'POST') {
        context.body = context.req;
      } else {
        context.body = { secure: context.secure, ip: context.ip, url: context.url };
      }
    });
    const server = await site(t, handover, app.callback());
    const hello = JSON.parse((await request(server, { path: '/a' })).text);
    assert.deepStrictEqual(hello, { secure: true, ip: '127.0.0.1', url: '/a' });
    const sent = crypto.randomBytes(1_000_000);
    assert.ok((await request(server, { method: 'POST' }, sent)).body.equals(sent));
  });

  test(`${handover}: ws`, async (t) => {
    const server = await site(t, handover, (_incoming, answer) => answer.end());
    const sockets = new WebSocket.Server({ server });
    sockets.on('connection', (socket) => {
      socket.on('message', (data, binary) => socket.send(data, { binary }));
    });
    const client = new WebSocket(`wss://127.0.0.1:${server.address().port}/`, {
      ca: ca.cert,
      servername: 'localhost',
    });
    t.after(() => client.terminate());
    await event(client, 'open');
    for (const size of [1, 125, 126, 65_535, 65_536, 300_000]) {
      const sent = crypto.randomBytes(size);
      client.send(sent);
      const [echoed] = await event(client, 'message');
      assert.ok(echoed.equals(sent), `${size} bytes`);
    }
    client.send('text');
    const [text, binary] = await event(client, 'message');
    assert.deepStrictEqual([String(text), binary], ['text', false]);
    const pong = event(client, 'pong');
    client.ping();
    await pong;
    const closed = event(client, 'close');
    client.close(1000, 'enough');
    assert.strictEqual((await closed)[0], 1000);
  });

  test(`${handover}: 20 MB through a pipe and back`, async (t) => {
    const server = await site(t, handover, (incoming, answer) => {
      incoming.pipe(answer);
    });
    const sent = crypto.randomBytes(PIPE_BYTES);
    const answer = await request(server, { method: 'POST' }, sent);
    assert.ok(answer.body.equals(sent));
  });

  test(`${handover}: http2, with HTTP/1 beside it`, async (t) => {
    const onRequest = (incoming, answer) => {
      if (incoming.method === 'POST') incoming.pipe(answer);
      else answer.end(`${incoming.httpVersion} ${incoming.socket.remoteAddress}`);
    };
    const server = isSealane
      ? attach(http2.createSecureServer({ allowHTTP1: true }, onRequest), { ...own, handover })
      : http2.createSecureServer({ ...own, allowHTTP1: true }, onRequest);
    await start(t, server);
    await checkHttp2(t, server, handover);
    assert.strictEqual((await request(server)).text, '1.1 127.0.0.1');
  });

  test(`${handover}: http2 alone, by createServer`, { skip: !isSealane }, async (t) => {
    const server = attach(
      http2.createServer((incoming, answer) => {
        if (incoming.method === 'POST') incoming.pipe(answer);
        else answer.end(`${incoming.httpVersion} ${incoming.socket.remoteAddress}`);
      }),
      { ...own, handover },
    );
    await start(t, server);
    await checkHttp2(t, server, handover);
  });
}

test('https.createServer and http.createServer, attached', { skip: !isSealane }, async (t) => {
  for (const module of [http, https]) {
    const server = attach(
      module.createServer((_incoming, answer) => answer.end('attached')),
      own,
    );
    await start(t, server);
    assert.strictEqual((await request(server)).text, 'attached');
    assert.ok(endsOf.has(server));
  }
});

async function checkHttp2(t, server, handover) {
  const session = http2.connect(`https://127.0.0.1:${server.address().port}`, {
    ca: ca.cert,
    servername: 'localhost',
  });
  t.after(() => session.destroy());
  const ask = (body) => {
    const stream = session.request({ ':method': body ? 'POST' : 'GET' });
    stream.end(body);
    return collect(stream);
  };
  // node's http2 has no addresses of a stream over a socket that is not node's.
  const page = handover === 'ring' ? '2.0 undefined' : '2.0 127.0.0.1';
  assert.strictEqual(String(await ask()), page);
  const sent = crypto.randomBytes(2_000_000);
  assert.ok((await ask(sent)).equals(sent));
  const pages = await Promise.all(Array.from({ length: 100 }, () => ask()));
  assert.ok(pages.every((one) => String(one) === page));
}
