'use strict';

// Callbacks and listeners of the program that throw or reject: one handshake ends, and the server
// and the process live. After test-tls-psk-alpn-callback-exception-handling and
// test-tls-snicallback-error of node.

const assert = require('node:assert');
const { fork } = require('node:child_process');
const http2 = require('node:http2');
const net = require('node:net');
const path = require('node:path');
const { test } = require('node:test');
const tls = require('node:tls');

const { leaf } = require('../certificates');
const {
  attach,
  createSecureContext,
  createServer,
  createTLSServer,
  isSealane,
  onlySealane,
} = require('../implementation');
const { ca, connect, own, pair, refused, start } = require('../site');
const { ended, event, until } = require('../within');

const bad = 'bad.example.com';
const good = leaf(ca, [bad, 'localhost']);
const purpose = new Error('on purpose');

/** Ways in which SNICallback goes wrong, and whether node ends the handshake by it too. */
const WRONG = [
  [
    'throws',
    () => {
      throw purpose;
    },
    true,
  ],
  [
    'throws what is no error',
    () => {
      throw 'a string';
    },
    true,
  ],
  [
    'throws null',
    () => {
      throw null;
    },
    false,
  ],
  [
    'throws after its answer',
    (done) => {
      done(null, createSecureContext(good));
      throw purpose;
    },
    true,
  ],
  ['throws while its context is read', (done) => done(null, contextThatThrows()), false],
  [
    'rejects',
    async () => {
      throw purpose;
    },
    false,
  ],
  [
    'rejects later',
    async () => {
      await new Promise(setImmediate);
      throw purpose;
    },
    false,
  ],
  [
    'gives a thenable that throws',
    () => ({
      // biome-ignore lint/suspicious/noThenProperty: a hostile one is the test
      then() {
        throw purpose;
      },
    }),
    false,
  ],
  [
    'answers with an error twice',
    (done) => {
      done(purpose);
      done(purpose);
    },
    true,
  ],
];

function contextThatThrows() {
  return {
    get cert() {
      throw purpose;
    },
  };
}

/** Kinds of servers with a SNICallback. */
const SERVERS = {
  createTLSServer: (options) => createTLSServer(options, (socket) => socket.end('served')),
  createServer: (options) => createServer(options),
  attach: (options) =>
    isSealane
      ? attach(http2.createSecureServer(), { ...options, ALPNProtocols: ['h2'] })
      : http2.createSecureServer(options),
};

for (const [kind, make] of Object.entries(SERVERS)) {
  test(`${kind}: a SNICallback that goes wrong ends one handshake`, async (t) => {
    let wrong;
    const server = make({
      ...own,
      SNICallback: (name, done) => (name === bad ? wrong(done) : done(null)),
    });
    await start(t, server);
    const ALPNProtocols = kind === 'attach' ? ['h2'] : undefined;
    for (const [how, goesWrong, nodeToo] of WRONG) {
      if (!isSealane && !nodeToo) continue;
      await t.test(how, async (t) => {
        wrong = goesWrong;
        const failed = event(server, 'tlsClientError');
        await refused(t, server, { servername: bad, ALPNProtocols });
        const [error, socket] = await failed;
        if (isSealane) assert.match(error.message, /on purpose|a string|null/);
        assert.ok(socket.destroyed || !isSealane);
        (await pair(t, server, { ALPNProtocols })).client.destroy();
      });
    }
  });
}

test('a socket that was handed over: SNICallback that goes wrong ends it', {
  skip: onlySealane,
}, async (t) => {
  let wrong;
  const server = createTLSServer({
    ...own,
    SNICallback: (name, done) => (name === bad ? wrong(done) : done(null)),
  });
  await start(t, server);
  const outer = net.createServer((socket) => server.emit('connection', socket));
  await start(t, outer);
  t.after(() => outer.close());
  for (const [, goesWrong] of WRONG) {
    wrong = goesWrong;
    const failed = event(server, 'tlsClientError');
    const client = tls.connect({ ca: ca.cert, port: outer.address().port, servername: bad });
    await ended(client);
    await failed;
  }
});

test('a client whose SNICallback never answers keeps no other waiting', async (t) => {
  const server = await start(
    t,
    createTLSServer({ ...own, SNICallback: (name, done) => name !== bad && done(null) }),
  );
  connect(t, server, { servername: bad });
  await pair(t, server);
});

test('callbacks that lanes could not ask are refused when they are given', {
  skip: onlySealane,
}, () => {
  const throws = () => {
    throw purpose;
  };
  for (const name of ['ALPNCallback', 'pskCallback']) {
    assert.throws(() => createTLSServer({ ...own, [name]: throws }), {
      message: new RegExp(`^options.${name} is not offered`),
    });
  }
  for (const name of ['OCSPRequest', 'newSession', 'resumeSession']) {
    assert.throws(() => createTLSServer(own).on(name, throws), { message: /is not offered/ });
  }
});

test('an exception of a listener is uncaught, as in node, and the server lives', async (t) => {
  const child = fork(path.join(__dirname, 'throwing-listeners.js'), { stdio: 'inherit' });
  t.after(() => child.kill());
  const outcomes = [];
  child.on('message', (outcome) => outcomes.push(outcome));
  await event(child, 'exit');
  await until(() => outcomes.length >= 1, 'outcomes');
  const expected = [];
  for (const name of ['connection', 'secureConnection', 'keylog', 'tlsClientError', 'request']) {
    expected.push(`${name} throws: uncaught, served`, `${name} rejects: rejected, served`);
  }
  assert.deepStrictEqual(outcomes, expected);
});
