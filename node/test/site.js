'use strict';

/**
 * A server of the implementation under test and node's own clients for it, both gone when the
 * test ends.
 */

const https = require('node:https');
const { networkInterfaces } = require('node:os');
const tls = require('node:tls');

const { authority, leaf } = require('./certificates');
const { createServer, createTLSServer } = require('./implementation');
const { collect, event, until, within } = require('./within');

/** The authority that clients trust by default. */
const ca = authority('Sealane test authority');
/** The certificate that servers show by default. */
const ownLeaf = leaf(ca, ['localhost', '127.0.0.1', '::1']);
/** Whether the loopback has an address of IPv6. */
const hasIPv6 = Object.values(networkInterfaces())
  .flat()
  .some(({ address }) => address === '::1');
/** The reason why a test about IPv6 is skipped, or `false`: for node:test's `skip`. */
const onlyIPv6 = hasIPv6 ? false : 'this machine has no IPv6';
/** The same as options. */
const own = { cert: ownLeaf.cert, key: ownLeaf.key };

/**
 * Starts a server of raw TLS on a free port of the loopback.
 * @param {import('node:test').TestContext} t
 */
async function tlsSite(t, options = {}, onSecureConnection = undefined, where = undefined) {
  return start(t, createTLSServer({ ...own, ...options }, onSecureConnection), where);
}

/** Starts a server of HTTP/1 over TLS on a free port of the loopback. */
async function httpsSite(t, options = {}, onRequest = undefined, where = undefined) {
  return start(t, createServer({ ...own, ...options }, onRequest), where);
}

/**
 * Lets a server listen, and sees to its end after the test. That it closes is part of every test.
 * @template {import('node:tls').Server} S
 * @param {S} server
 * @returns {Promise<S>}
 */
async function start(t, server, where = { host: '127.0.0.1', port: 0 }) {
  const ends = new Set();
  endsOf.set(server, ends);
  server.on('secureConnection', (socket) => keep(ends, socket));
  server.listen(where);
  await event(server, 'listening');
  t.after(() => stop(server, ends));
  return server;
}

/** Both ends of the connections of each server that are alive. */
const endsOf = new WeakMap();

function keep(ends, socket) {
  ends.add(socket);
  socket.once('close', () => ends.delete(socket));
}

async function stop(server, ends) {
  // Connections that a client has begun may still arrive here.
  server.on('secureConnection', (socket) => socket.destroy());
  for (const socket of ends) socket.destroy();
  if (!server.listening) return;
  await within(
    new Promise((resolve) => {
      server.close(resolve);
    }),
    "a server's close",
  );
}

/**
 * A client's socket, not yet connected. Its errors reach listeners only.
 * @returns {import('node:tls').TLSSocket}
 */
function connect(t, server, options = {}) {
  const where =
    typeof server.address() === 'string'
      ? { path: server.address() }
      : { host: '127.0.0.1', port: server.address().port };
  const client = tls.connect({ ...where, ca: ca.cert, servername: 'localhost', ...options });
  client.on('error', () => {});
  keep(endsOf.get(server), client);
  t.after(() => client.destroy());
  return client;
}

/** A client's socket after its handshake. */
async function connected(t, server, options = {}) {
  const client = connect(t, server, options);
  await event(client, 'secureConnect');
  return client;
}

/**
 * A connection's two ends.
 * @returns {Promise<{ client: import('node:tls').TLSSocket,
 *   socket: import('node:tls').TLSSocket }>}
 */
async function pair(t, server, options = {}) {
  const arrived = [];
  const onSocket = (socket) => arrived.push(socket);
  server.on('secureConnection', onSocket);
  try {
    const client = await connected(t, server, options);
    // The connections of others may arrive meanwhile; those over paths have no ports.
    const isIts = (socket) => socket.remotePort === client.localPort;
    await until(() => arrived.some(isIts), "the server's end of a connection");
    return { client, socket: arrived.find(isIts) };
  } finally {
    server.off('secureConnection', onSocket);
  }
}

/**
 * The error of a client that the server rejects, or undefined where the connection just ends. TLS
 * 1.3 lets a client believe that it is admitted until the server has judged it.
 */
async function refused(t, server, options = {}) {
  const client = connect(t, server, options);
  const outcome = new Promise((resolve) => {
    client.once('error', resolve);
    client.once('close', () => resolve(undefined));
  });
  client.resume();
  return within(outcome, 'a refused client');
}

/** A session that the server lets its client resume. */
async function ticket(t, server, options = {}) {
  const client = connect(t, server, options);
  client.resume();
  const [session] = await event(client, 'session');
  client.end();
  await event(client, 'close');
  return session;
}

/**
 * One request over a separate connection, unless there is an agent.
 * @returns {Promise<{ status: number, headers: object, body: Buffer, text: string, socket:
 * import('node:tls').TLSSocket }>}
 */
function request(server, options = {}, body = undefined) {
  const { port } = server.address();
  return within(
    new Promise((resolve, reject) => {
      const sent = https.request({
        host: '127.0.0.1',
        port,
        ca: ca.cert,
        servername: 'localhost',
        agent: false,
        ...options,
      });
      sent.on('error', reject);
      sent.on('response', async (answer) => {
        const { statusCode: status, headers, socket, trailers } = answer;
        try {
          const got = await collect(answer, "an answer's body");
          resolve({ status, headers, body: got, text: String(got), socket, trailers });
        } catch (error) {
          reject(error);
        }
      });
      sent.end(body);
    }),
    'an answer',
  );
}

/**
 * Ends a process that its last test leaves alive, with a message, because it would hang the run.
 */
function endProcessAfterTests() {
  require('node:test').after(() => {
    setTimeout(() => {
      process.stderr.write(
        'something kept the process alive after its last test:\n' +
          `${process.getActiveResourcesInfo().join(' ')}\n`,
      );
      process.exit(1);
    }, LINGER_MS).unref();
  });
}

const LINGER_MS = 5_000;

// A server in a separate process that is no test must not become one.
if (require.main?.filename.endsWith('.test.js')) endProcessAfterTests();

module.exports = {
  ca,
  connect,
  connected,
  endsOf,
  hasIPv6,
  httpsSite,
  onlyIPv6,
  own,
  ownLeaf,
  pair,
  refused,
  request,
  start,
  ticket,
  tlsSite,
};
