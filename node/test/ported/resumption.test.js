'use strict';

// Sessions that go on: tickets, their keys, across servers and processes.
// After test-tls-ticket*, test-tls-client-resume*, test-https-client-resume,
// test-https-agent-session-*, test-https-agent-disable-session-reuse, test-tls-session-cache,
// test-tls-secure-session, test-tls-async-cb-after-socket-end, test-tls-ticket-cluster,
// test-tls-session-timeout*.

const assert = require('node:assert');
const cluster = require('node:cluster');
const crypto = require('node:crypto');
const https = require('node:https');
const { test } = require('node:test');
const tls = require('node:tls');

const { leaf } = require('../certificates');
const { createTLSServer, differs, isSealane } = require('../implementation');
const {
  ca,
  connect,
  connected,
  httpsSite,
  own,
  pair,
  request,
  ticket,
  tlsSite,
} = require('../site');
const { event, pause } = require('../within');

const VERSIONS = ['TLSv1.2', 'TLSv1.3'];
/** Enough connections that two lanes both get some. */
const TRIES = 16;

async function resumes(t, server, session, options = {}) {
  const { client, socket } = await pair(t, server, { session, ...options });
  const reused = client.isSessionReused();
  assert.strictEqual(socket.isSessionReused(), reused);
  client.destroy();
  return reused;
}

for (const version of VERSIONS) {
  const only = { minVersion: version, maxVersion: version };

  test(`${version}: a session goes on, on whichever lane`, async (t) => {
    const server = await tlsSite(t, only);
    const session = await ticket(t, server);
    for (let i = 0; i < TRIES; i += 1) {
      assert.strictEqual(await resumes(t, server, session), true);
    }
  });

  test(`${version}: servers with equal ticketKeys take each other's sessions`, async (t) => {
    const ticketKeys = crypto.randomBytes(48);
    const [one, two] = [
      await tlsSite(t, { ...only, ticketKeys }),
      await tlsSite(t, { ...only, ticketKeys }),
    ];
    const other = await tlsSite(t, only);
    const session = await ticket(t, one);
    for (let i = 0; i < TRIES; i += 1) {
      assert.strictEqual(await resumes(t, two, session), true);
    }
    assert.strictEqual(await resumes(t, other, session), false);
  });

  test(`${version}: setTicketKeys ends the sessions of other keys`, async (t) => {
    const server = await tlsSite(t, { ...only, ticketKeys: crypto.randomBytes(48) });
    const session = await ticket(t, server);
    const keys = crypto.randomBytes(48);
    server.setTicketKeys(keys);
    for (let i = 0; i < TRIES; i += 1) {
      assert.strictEqual(await resumes(t, server, session), false);
    }
    const newer = await ticket(t, server);
    assert.strictEqual(await resumes(t, server, newer), true);
    // The keys of before are still good if they are set again.
    const again = await tlsSite(t, { ...only, ticketKeys: keys });
    assert.strictEqual(await resumes(t, again, newer), true);
  });

  test(`${version}: rotation takes old sessions and makes new ones`, {
    skip: isSealane ? false : 'node has one key at a time',
  }, async (t) => {
    const [old, fresh] = [crypto.randomBytes(48), crypto.randomBytes(48)];
    const server = await tlsSite(t, { ...only, ticketKeys: old });
    const session = await ticket(t, server);
    server.setTicketKeys([fresh, old]);
    for (let i = 0; i < TRIES; i += 1) {
      assert.strictEqual(await resumes(t, server, session), true);
    }
    const newer = await ticket(t, server);
    server.setTicketKeys(fresh);
    for (let i = 0; i < TRIES; i += 1) {
      assert.strictEqual(await resumes(t, server, newer), true);
      assert.strictEqual(await resumes(t, server, session), false);
    }
  });
}

test('getTicketKeys gives what ticketKeys set', async (t) => {
  const ticketKeys = crypto.randomBytes(48);
  const server = await tlsSite(t, { ticketKeys });
  const asked = server.getTicketKeys();
  assert.deepStrictEqual(Buffer.concat([asked].flat()), ticketKeys);
  const keys = crypto.randomBytes(48);
  server.setTicketKeys(keys);
  assert.deepStrictEqual(Buffer.concat([server.getTicketKeys()].flat()), keys);
});

test('ticket keys that are none are refused, and change nothing', async (t) => {
  const server = await tlsSite(t);
  const session = await ticket(t, server);
  for (const wrong of [null, undefined, 0, 1, 1n, Symbol('k'), {}, [], true, false, '', () => {}]) {
    assert.throws(() => server.setTicketKeys(wrong), { code: 'ERR_INVALID_ARG_TYPE' });
  }
  for (const wrong of [new Uint8Array(1), Buffer.from([1]), new DataView(new ArrayBuffer(2))]) {
    assert.throws(() => server.setTicketKeys(wrong), /48.byte/);
  }
  assert.throws(() => createTLSServer({ ...own, ticketKeys: 'abcd' }), {
    code: 'ERR_INVALID_ARG_TYPE',
  });
  assert.throws(() => createTLSServer({ ...own, ticketKeys: Buffer.alloc(0) }), {
    code: 'ERR_INVALID_ARG_VALUE',
    message: /48.byte/,
  });
  assert.strictEqual(await resumes(t, server, session), true);
});

test('sessions live in tickets alone: newSession and resumeSession', async (t) => {
  const server = await tlsSite(t);
  const listen = () => server.on('newSession', (_id, _data, done) => done());
  differs({
    node: () => assert.ok(listen()),
    sealane: () => assert.throws(listen, /ticketKeys/),
  })();
});

test('a session of one name is no good for another', async (t) => {
  const server = await tlsSite(t, { maxVersion: 'TLSv1.2' });
  server.addContext('a.example.com', leaf(ca, 'a.example.com'));
  const session = await ticket(t, server, { servername: 'a.example.com' });
  const options = { servername: 'a.example.com' };
  assert.strictEqual(await resumes(t, server, session, options), true);
  const other = await connected(t, server, { session, checkServerIdentity() {} });
  // node resumes for any name. Sealane binds a ticket to its name.
  assert.ok([true, false].includes(other.isSessionReused()));
});

test('bytes that are no ticket lead to a full handshake', async (t) => {
  const server = await tlsSite(t, { maxVersion: 'TLSv1.2' });
  const foreign = await tlsSite(t, { maxVersion: 'TLSv1.2' });
  const session = await ticket(t, foreign);
  for (let i = 0; i < TRIES; i += 1) {
    assert.strictEqual(await resumes(t, server, session), false);
  }
});

test('https.Agent resumes by itself', async (t) => {
  const server = await httpsSite(t, {}, (incoming, answer) => {
    answer.end(String(incoming.socket.isSessionReused()));
  });
  const agent = new https.Agent({ maxCachedSessions: 10 });
  t.after(() => agent.destroy());
  const close = { connection: 'close' };
  assert.strictEqual((await request(server, { agent, headers: close })).text, 'false');
  assert.strictEqual((await request(server, { agent, headers: close })).text, 'true');
  const none = new https.Agent({ maxCachedSessions: 0 });
  t.after(() => none.destroy());
  for (let i = 0; i < 2; i += 1) {
    const answer = await request(server, { agent: none, headers: close });
    assert.strictEqual(answer.text, 'false');
  }
});

test('a client that leaves at once after a resumption harms nobody', async (t) => {
  const server = await tlsSite(t);
  server.on('tlsClientError', () => {});
  const session = await ticket(t, server);
  for (let i = 0; i < TRIES; i += 1) {
    const client = connect(t, server, { session });
    client.on('connect', () => client.destroy());
    await event(client, 'close');
  }
  assert.strictEqual(await resumes(t, server, session), true);
});

test('workers of a cluster share sessions by ticketKeys', async (t) => {
  cluster.setupPrimary({ exec: require.resolve('./ticket-worker.js') });
  const ticketKeys = crypto.randomBytes(48).toString('hex');
  const workers = [];
  t.after(() => {
    for (const worker of workers) worker.process.kill();
  });
  for (let i = 0; i < 2; i += 1) {
    const worker = cluster.fork({ TICKET_KEYS: ticketKeys, CERT: own.cert, KEY: own.key });
    workers.push(worker);
  }
  const ports = await Promise.all(
    workers.map(async (worker) => {
      const [{ port }] = await event(worker, 'message');
      return port;
    }),
  );
  const talk = (port, session) => {
    const client = tls.connect({
      port,
      host: '127.0.0.1',
      ca: ca.cert,
      servername: 'localhost',
      session,
    });
    t.after(() => client.destroy());
    return client.resume();
  };
  const first = talk(ports[0]);
  const [session] = await event(first, 'session');
  assert.strictEqual(first.isSessionReused(), false);
  const second = talk(ports[1], session);
  await event(second, 'secureConnect');
  assert.strictEqual(second.isSessionReused(), true);
  for (const worker of workers) worker.disconnect();
  await Promise.all(workers.map((worker) => event(worker, 'exit')));
});

test('sessionTimeout ends sessions', async (t) => {
  for (const sessionTimeout of [-1, -(2 ** 31)]) {
    assert.throws(() => createTLSServer({ ...own, sessionTimeout }), { code: 'ERR_OUT_OF_RANGE' });
  }
  // A client of TLS 1.3 looks at the time itself.
  const server = await tlsSite(t, { sessionTimeout: 1, maxVersion: 'TLSv1.2' });
  const session = await ticket(t, server);
  while (await resumes(t, server, session)) {
    await pause(100);
  }
});
