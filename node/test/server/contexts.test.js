'use strict';

// Certificates, names and ticket keys of a server that runs.

const assert = require('node:assert/strict');
const { AsyncLocalStorage } = require('node:async_hooks');
const { execFile } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const nodeTls = require('node:tls');
const { promisify } = require('node:util');
const sealane = require('sealane');
const { authority, leaf } = require('../certificates');
const { ca, connected, httpsSite, own, pair, refused, request } = require('../site');
const { ticket, tlsSite } = require('../site');
const { event, until } = require('../within');

const a = credentials('a.example');
const b = credentials('b.example');

function credentials(...names) {
  const { cert, key } = leaf(ca, names);
  return { cert, key };
}

/** The name on the certificate that a client is shown. */
async function shown(t, server, servername) {
  const client = await connected(t, server, { servername, checkServerIdentity() {} });
  const { CN } = client.getPeerCertificate().subject;
  client.end();
  return CN;
}

test('what is wrong with certificates and keys is told when they are given', () => {
  for (const [options, message] of [
    [{ cert: 'no PEM', key: a.key }, /cert/i],
    [{ cert: a.cert, key: b.key }, /key/i],
    [{ certificates: '/nowhere/at/all' }, /nowhere/],
  ]) {
    assert.throws(() => sealane.createServer(options), { message });
    assert.throws(() => sealane.createSecureContext(options), { message });
  }
});

test('a context tells its names', async () => {
  const context = sealane.createSecureContext(a);
  assert.deepEqual(context.names, ['a.example']);
  const [warning, ...others] = context.warnings;
  assert.match(warning, /the certificate of its issuer .* is not in the chain/);
  assert.deepEqual(others, []);
  assert.equal(context.certificates[0].length, 1);
  const off = await sealane.createSecureContextAsync(a);
  assert.deepEqual(off.certificates, context.certificates);
  await assert.rejects(sealane.createSecureContextAsync({ cert: a.cert, key: b.key }));
  await assert.rejects(sealane.createSecureContextAsync({ threads: 1 }), /use lanes/i);
});

test('clients that come while lanes start get the context that is chosen', async (t) => {
  const chosen = sealane.createSecureContext(a);
  for (let round = 0; round < 3; round += 1) {
    const server = sealane.createTLSServer(
      { ...own, lanes: 16, SNICallback: (_name, choose) => choose(null, chosen) },
      (socket) => socket.on('error', () => {}).end(),
    );
    server.listen(0, '127.0.0.1');
    t.after(() => server.close());
    const { port } = server.address();
    const clients = [];
    do {
      const options = { port, ca: ca.cert, servername: 'a.example' };
      clients.push(event(nodeTls.connect(options), 'secureConnect'));
      await new Promise(setImmediate);
    } while (!server.stats().lanes.length && clients.length < 200);
    await Promise.all(clients);
  }
});

test('names are added, replaced and removed while the server runs', async (t) => {
  const server = await tlsSite(t);
  assert.equal(await shown(t, server, 'a.example'), 'localhost');
  server.addContext('a.example', a);
  server.addContext('*.example', sealane.createSecureContext(b));
  assert.equal(await shown(t, server, 'a.example'), 'a.example');
  assert.equal(await shown(t, server, 'other.example'), 'b.example');
  server.addContext('A.example', b);
  assert.equal(await shown(t, server, 'a.example'), 'b.example');
  assert.equal(server.removeContext('a.example'), true);
  assert.equal(server.removeContext('a.example'), false);
  assert.equal(server.removeContext('*.example'), true);
  assert.equal(await shown(t, server, 'a.example'), 'localhost');
});

test('names that are added before listen are served', async (t) => {
  const server = sealane.createServer(own, (_request, response) => response.end('x'));
  server.addContext('a.example', a);
  await require('../site').start(t, server);
  assert.equal(await shown(t, server, 'a.example'), 'a.example');
});

test('a bad context changes nothing', async (t) => {
  const server = await tlsSite(t);
  assert.throws(() => server.setSecureContext({ cert: a.cert, key: b.key }));
  assert.throws(() => server.setSecureContext({ minVersion: 'TLSv1' }));
  assert.throws(() => server.addContext('a.example', { cert: 'x', key: 'y' }));
  assert.throws(() => server.addContext('a.example', nodeTls.createSecureContext(a)), {
    message: /SecureContext of node's tls\. Make one with createSecureContext of this package/,
  });
  assert.throws(() => server.addContext('', a), { code: 'ERR_TLS_REQUIRED_SERVER_NAME' });
  assert.equal(await shown(t, server, 'a.example'), 'localhost');
});

test('setSecureContext takes effect for new connections and leaves the old ones', async (t) => {
  const server = await tlsSite(t, {}, (socket) => socket.pipe(socket));
  const { client } = await pair(t, server);
  server.setSecureContext(a);
  assert.equal(await shown(t, server, 'a.example'), 'a.example');
  server.setSecureContext(await sealane.createSecureContextAsync(b));
  assert.equal(await shown(t, server, 'a.example'), 'b.example');
  client.write('still here');
  assert.equal(String((await event(client, 'data'))[0]), 'still here');
});

test("a context of node's own, which hides its keys, is refused where it is given", async (t) => {
  const ofNode = nodeTls.createSecureContext(a);
  const server = await tlsSite(t);
  for (const give of [
    () => server.addContext('a.example', ofNode),
    () => server.setSecureContext(ofNode),
    () => sealane.createServer(ofNode),
    () => sealane.createSecureContext(ofNode),
  ]) {
    assert.throws(give, { message: /SecureContext of node's tls.*createSecureContext of this/ });
  }
  assert.equal(await shown(t, server, 'localhost'), 'localhost');
});

test("a context of node's own from SNICallback fails that handshake alone", async (t) => {
  const warned = [];
  const onWarning = ({ code, message }) => code === 'SEALANE_NOT_OFFERED' && warned.push(message);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const server = await tlsSite(t, {
    SNICallback: (name, done) => done(null, name === 'a.example' && nodeTls.createSecureContext(a)),
  });
  const failed = event(server, 'tlsClientError');
  await refused(t, server, { servername: 'a.example' });
  const [error] = await failed;
  assert.match(error.message, /SecureContext of node's tls/);
  await until(() => warned.length > 0, 'a warning');
  assert.match(warned[0], /SNICallback gave no context.*SecureContext of node's tls/);
  assert.equal(await shown(t, server, 'localhost'), 'localhost');
});

for (const version of ['TLSv1.2', 'TLSv1.3']) {
  test(`${version}: a session goes on where SNICallback gives its certificate`, async (t) => {
    let answer;
    let asked = 0;
    const server = await tlsSite(t, {
      maxVersion: version,
      minVersion: version,
      // Later, so that the hello waits.
      SNICallback(_name, done) {
        asked += 1;
        setImmediate(() => done(null, answer));
      },
    });
    const [ofA, ofB] = [a, b].map(sealane.createSecureContext);
    const who = { servername: 'a.example', checkServerIdentity() {} };
    answer = ofA;
    const session = await ticket(t, server, who);
    for (const [now, reused, name] of [
      [ofA, true, 'a.example'],
      [ofB, false, 'b.example'],
      [null, false, 'localhost'],
      [sealane.createSecureContext(a), true, 'a.example'],
      [credentials('a.example'), false, 'a.example'],
    ]) {
      answer = now;
      const { client, socket } = await pair(t, server, { ...who, session });
      assert.equal(client.isSessionReused(), reused, name);
      assert.equal(socket.isSessionReused(), reused, name);
      // A client's resumed session has no certificate, so node returns none.
      assert.equal(client.getPeerCertificate().subject?.CN, reused ? undefined : name);
    }
    assert.equal(asked, 6);
  });
}

test('files are read again by reload, and a bad file changes nothing', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sealane-'));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const write = (name, { cert, key }) => fs.writeFileSync(path.join(folder, name), cert + key);
  write('a.pem', a);
  const server = await tlsSite(t, { certificates: folder, cert: undefined, key: undefined });
  assert.equal(await shown(t, server, 'a.example'), 'a.example');
  write('b.pem', b);
  assert.equal(await shown(t, server, 'b.example'), 'a.example');
  await server.reload();
  assert.equal(await shown(t, server, 'b.example'), 'b.example');

  fs.writeFileSync(path.join(folder, 'b.pem'), b.cert + a.key);
  fs.rmSync(path.join(folder, 'a.pem'));
  await assert.rejects(server.reload(), /b\.pem/);
  assert.equal(await shown(t, server, 'a.example'), 'a.example');
  assert.equal(await shown(t, server, 'b.example'), 'b.example');

  const without = sealane.createTLSServer(own);
  await assert.rejects(without.reload(), { code: 'ERR_SEALANE_NO_FILES' });
});

test('a listener for key logs that cannot be served is told so', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sealane-'));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const file = path.join(folder, 'a.pem');
  fs.writeFileSync(file, a.cert + a.key);
  const server = await tlsSite(t, { certificates: folder, cert: undefined, key: undefined });
  fs.writeFileSync(file, 'broken');
  assert.throws(() => server.on('keylog', () => {}), /a\.pem/);
  assert.equal(await shown(t, server, 'a.example'), 'a.example');
  fs.writeFileSync(file, a.cert + a.key);
  const line = event(
    server.on('keylog', () => {}),
    'keylog',
  );
  await shown(t, server, 'a.example');
  await line;
});

test("versions that node's flags and programs have set are kept to", async (t) => {
  const { DEFAULT_MIN_VERSION } = nodeTls;
  t.after(() => {
    nodeTls.DEFAULT_MIN_VERSION = DEFAULT_MIN_VERSION;
  });
  nodeTls.DEFAULT_MIN_VERSION = 'TLSv1.3';
  const server = await tlsSite(t);
  await refused(t, server, { minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' });
  nodeTls.DEFAULT_MIN_VERSION = 'TLSv1';
  await connected(t, await tlsSite(t), { minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' });
});

test('a certificate is told after many others were chosen', async (t) => {
  // More than the server remembers in addition to those that it serves.
  const passing = 1_100;
  const server = await tlsSite(t, {
    SNICallback: (name, done) => done(null, name.startsWith('passing') ? { ...own } : null),
  });
  for (let i = 0; i < passing; i += 1) {
    (await connected(t, server, { servername: `passing${i}`, checkServerIdentity() {} })).destroy();
  }
  const { socket } = await pair(t, server);
  assert.equal(socket.getCertificate().subject?.CN, 'localhost');
});

test('ticket keys rotate, and old tickets open while their key is there', async (t) => {
  const keys = [1, 2, 3].map((byte) => Buffer.alloc(48, byte));
  const server = await tlsSite(t, { ticketKeys: keys[0] }, (socket) => socket.end('x'));
  assert.deepEqual(server.getTicketKeys(), keys[0]);
  const session = await ticket(t, server);
  const isReused = async (given) => {
    const client = await connected(t, server, { session: given });
    const reused = client.isSessionReused();
    client.destroy();
    return reused;
  };
  assert.equal(await isReused(session), true);
  server.setTicketKeys([keys[1], keys[0]]);
  assert.equal(await isReused(session), true);
  server.setTicketKeys([keys[2], keys[1]]);
  assert.equal(await isReused(session), false);
  assert.deepEqual(server.getTicketKeys(), keys[2]);
  assert.throws(() => server.setTicketKeys(), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('sessions of one sessionIdContext do not resume under another', async (t) => {
  const ticketKeys = Buffer.alloc(48, 7);
  const site = (sessionIdContext) =>
    tlsSite(t, { ticketKeys, sessionIdContext }, (socket) => socket.end('x'));
  const [first, same, other] = [await site('one'), await site('one'), await site('two')];
  const session = await ticket(t, first);
  assert.equal((await connected(t, same, { session })).isSessionReused(), true);
  assert.equal((await connected(t, other, { session })).isSessionReused(), false);
});

test('requestCert without ca asks for what this node believes in', async (t) => {
  const server = await tlsSite(t, { requestCert: true, rejectUnauthorized: false });
  const stranger = leaf(authority('nobody knows'), 'client');
  const { socket } = await pair(t, server, { cert: stranger.cert, key: stranger.key });
  assert.equal(socket.authorized, false);
  assert.ok(socket.authorizationError);
});

test('keylog lines come while somebody listens', async (t) => {
  const server = await tlsSite(t);
  const lines = [];
  server.on('keylog', (line, socket) => lines.push([String(line), socket.remotePort]));
  const { client } = await pair(t, server);
  assert.ok(lines.length >= 4);
  for (const [line, port] of lines) {
    assert.match(line, /^[A-Z0-9_]+ [0-9a-f]{64} [0-9a-f]+\n$/);
    assert.equal(port, client.localPort);
  }
});

test('events that would never come throw', () => {
  const server = sealane.createServer(own);
  for (const name of ['newSession', 'resumeSession', 'OCSPRequest']) {
    assert.throws(() => server.on(name, () => {}), { code: 'ERR_INVALID_ARG_VALUE' });
  }
});

test('plain HTTP on the port is a clientError with its peer', async (t) => {
  const server = await httpsSite(t);
  const failed = event(server, 'clientError');
  const client = require('node:net').connect(server.address().port, '127.0.0.1');
  t.after(() => client.destroy());
  client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await event(client, 'connect');
  const { localPort } = client;
  client.resume();
  const [error, socket] = await failed;
  assert.equal(error.code, 'ERR_SSL_HTTP_REQUEST');
  assert.equal(socket.remotePort, localPort);
  assert.equal(socket.writable, false);
});

test('stats count what lanes did', async (t) => {
  const server = await httpsSite(t, { lanes: 2 }, (_request, response) => response.end('x'));
  await request(server);
  const { lanes } = server.stats();
  assert.equal(lanes.length, 2);
  const sum = (name) => lanes.reduce((all, lane) => all + lane[name], 0);
  assert.equal(sum('accepted'), 1);
  assert.equal(sum('handshakes'), 1);
  assert.ok(sum('bytesWritten') > 0);
  // The latest events may not have been read yet.
  assert.ok(sum('commandsDepth') >= 0);
  assert.ok(sum('eventsDepth') >= 0);
  assert.deepEqual(sealane.createServer(own).stats(), { lanes: [] });
});

test('what a connection runs in leaks into no other', async (t) => {
  const storage = new AsyncLocalStorage();
  const seen = [];
  const server = sealane.createTLSServer(own, (socket) => {
    seen.push(storage.getStore());
    storage.run(`connection ${seen.length}`, () => {
      socket.on('data', (chunk) => {
        seen.push(storage.getStore());
        storage.run('one of its writes', () => socket.write(chunk));
      });
    });
  });
  await storage.run('the listener', () => require('../site').start(t, server));
  for (let i = 0; i < 2; i++) {
    const client = await connected(t, server);
    client.write('x');
    await event(client, 'data');
  }
  assert.deepEqual(seen[0], seen[2], 'each connection begins in the same');
  assert.notEqual(seen[2], 'connection 1');
  assert.ok(!seen.includes('one of its writes'));
});

test('an error of a listener is that of the process, and other connections go on', async () => {
  const program = path.join(__dirname, 'broken-listener.js');
  const { stdout } = await promisify(execFile)(process.execPath, [program], { timeout: 20_000 });
  assert.equal(stdout, 'answered: good\ncaught: the listener is broken\n');
});

test("'tlsClientError' waits for no client to take the alert", async (t) => {
  const server = await tlsSite(t, { lanes: 1 });
  const failed = event(server, 'tlsClientError');
  // A record that is none, and nothing is read.
  const client = net.connect(server.address().port, '127.0.0.1').pause();
  t.after(() => client.destroy());
  client.on('error', () => {});
  client.write(Buffer.from('16030100050100000100', 'hex'));
  await failed;
  const [lane] = server.stats().lanes;
  assert.equal(lane.connections, 1, 'the lane still waits for it');
});
