'use strict';

// Client programs that are no part of node: curl, openssl, h2load, Python, Go, Chromium.

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');

const { authority, leaf } = require('../certificates');
const { createTLSServer, isSealane } = require('../implementation');
const { ca, own, start } = require('../site');
const { until } = require('../within');
const { files, folder, missing, run } = require('./programs');
const { http1Site, http2Site, large, sha256 } = require('./serving');

const VERSIONS = ['1.2', '1.3'];

for (const protocol of ['1.1', '2']) {
  test(`curl over HTTP/${protocol}`, { skip: missing('curl') }, async (t) => {
    const server = await http2Site(t);
    const here = folder(t);
    const { trust } = files(here, { trust: ca.cert });
    const base = `https://localhost:${server.address().port}`;
    const flag = protocol === '2' ? '--http2' : '--http1.1';
    for (const version of VERSIONS) {
      const common = [
        '-sS',
        '--fail',
        flag,
        `--tlsv${version}`,
        '--tls-max',
        version,
        '--cacert',
        trust,
        '--resolve',
        `localhost:${server.address().port}:127.0.0.1`,
      ];
      const page = await run('curl', [...common, `${base}/`, '-w', ' %{http_version}']);
      assert.strictEqual(page.text, `version=${protocol === '2' ? '2.0' : '1.1'} ${protocol}`);
      const body = await run('curl', [...common, `${base}/large`]);
      assert.strictEqual(sha256(body.out), sha256(large));
      const upload = await run('curl', [...common, '--data-binary', '@-', `${base}/upload`], {
        input: large,
      });
      assert.strictEqual(upload.text, sha256(large));
      const many = await run(
        'curl',
        [
          ...common,
          '--parallel',
          '-o',
          '/dev/null',
          '-w',
          '%{http_code} ',
          ...Array(20).fill(`${base}/`),
        ].concat(Array(19).fill(['-o', '/dev/null']).flat()),
      );
      assert.strictEqual(
        many.text
          .trim()
          .split(' ')
          .filter((c) => c === '200').length,
        20,
      );
    }
    const stranger = await run(
      'curl',
      ['-sS', flag, '--resolve', `localhost:${server.address().port}:127.0.0.1`, `${base}/`],
      { succeeds: false },
    );
    assert.strictEqual(stranger.code, 60, 'an unknown authority must be refused');
  });
}

test('openssl s_client: full and resumed, 1.2 and 1.3', { skip: missing('openssl') }, async (t) => {
  const server = await http1Site(t);
  const here = folder(t);
  const { trust } = files(here, { trust: ca.cert });
  const session = path.join(here, 'session');
  for (const version of ['1_2', '1_3']) {
    const s_client = async (...more) => {
      const { text } = await run(
        'openssl',
        [
          's_client',
          `-tls${version}`,
          '-connect',
          `127.0.0.1:${server.address().port}`,
          '-servername',
          'localhost',
          '-CAfile',
          trust,
          '-verify_return_error',
          '-alpn',
          'http/1.1',
          '-ign_eof',
          ...more,
        ],
        { input: 'GET / HTTP/1.0\r\n\r\n' },
      );
      assert.match(text, /Verify return code: 0 \(ok\)/);
      assert.match(text, /HTTP\/1\.1 200 OK/);
      assert.match(text, /ALPN protocol: http\/1\.1/);
      return text;
    };
    const name = version.replace('_', '.');
    assert.match(await s_client('-sess_out', session), new RegExp(`New, TLSv${name}`));
    for (let i = 0; i < 4; i += 1) {
      assert.match(await s_client('-sess_in', session), new RegExp(`Reused, TLSv${name}`));
    }
  }
});

test('clients see the names of `ca` alone', { skip: missing('openssl') }, async (t) => {
  const clients = authority('Authority of clients');
  for (const [more, wanted] of [
    [{}, /No client certificate CA names sent/],
    [{ ca: clients.cert }, /Acceptable client certificate CA names\n.*Authority of clients/],
  ]) {
    const asks = { ...own, ...more, requestCert: true, rejectUnauthorized: false };
    const server = await start(
      t,
      createTLSServer(asks, (socket) => socket.end()),
    );
    for (const version of ['1_2', '1_3']) {
      const where = ['-connect', `127.0.0.1:${server.address().port}`];
      const said = await run('openssl', ['s_client', `-tls${version}`, ...where, '-ign_eof']);
      assert.match(said.text, wanted);
    }
  }
});

test('openssl s_client with a client certificate', { skip: missing('openssl') }, async (t) => {
  const clients = authority('Authority of clients');
  const alice = leaf(clients, 'alice', { names: undefined });
  const names = [];
  const server = await start(
    t,
    createTLSServer({ ...own, requestCert: true, ca: clients.cert }, (socket) => {
      names.push(socket.getPeerCertificate().subject.CN);
      socket.end('welcome');
    }),
  );
  const { trust, cert, key } = files(folder(t), { trust: ca.cert, ...alice });
  const s_client = (...more) =>
    run(
      'openssl',
      [
        's_client',
        '-connect',
        `127.0.0.1:${server.address().port}`,
        '-servername',
        'localhost',
        '-CAfile',
        trust,
        '-ign_eof',
        ...more,
      ],
      { succeeds: false },
    );
  const welcome = await s_client('-cert', cert, '-key', key);
  assert.match(welcome.text, /welcome/);
  assert.match(welcome.text, /Acceptable client certificate CA names\n.*Authority of clients/);
  const { text, err } = await s_client();
  assert.doesNotMatch(text, /welcome/);
  if (isSealane) assert.match(err, /alert/);
  assert.deepStrictEqual(names, ['alice']);
});

test('h2load over HTTP/2 and HTTP/1.1', { skip: missing('h2load') }, async (t) => {
  const server = await http2Site(t);
  const url = `https://127.0.0.1:${server.address().port}/`;
  for (const more of [['-m', '10'], ['--h1']]) {
    const { text } = await run('h2load', ['-n', '2000', '-c', '20', ...more, url]);
    assert.match(text, /2000 succeeded, 0 failed, 0 errored/, text);
    assert.match(text, /Application protocol: (h2|http\/1\.1)/);
  }
});

test("Python's ssl", { skip: missing('python3') }, async (t) => {
  const server = await http1Site(t);
  const { trust } = files(folder(t), { trust: ca.cert });
  const { text } = await run('python3', [
    path.join(__dirname, 'client.py'),
    String(server.address().port),
    trust,
  ]);
  const hash = sha256(large);
  assert.deepStrictEqual(text.trim().split('\n'), [
    `TLSv1.2 ${hash} reused=False`,
    `TLSv1.2 ${hash} reused=True`,
    `TLSv1.3 ${hash} reused=False`,
    `TLSv1.3 ${hash} reused=True`,
  ]);
});

test("Go's crypto/tls and net/http", { skip: missing('go') }, async (t) => {
  const [one, two] = [await http1Site(t), await http2Site(t)];
  const here = folder(t);
  const { trust } = files(here, { trust: ca.cert });
  const { text } = await run(
    'go',
    [
      'run',
      path.join(__dirname, 'client.go'),
      String(one.address().port),
      String(two.address().port),
      trust,
    ],
    {
      env: { GO111MODULE: 'off', GOFLAGS: '', GOTOOLCHAIN: 'local', GOPATH: here },
    },
  );
  const hash = sha256(large);
  assert.deepStrictEqual(text.trim().split('\n'), [
    `HTTP/1.1 ${hash} resumed=false`,
    `HTTP/1.1 ${hash} resumed=true`,
    `HTTP/2.0 ${hash} resumed=false`,
    'half-closed HTTP/1.1 200 OK',
  ]);
});

test('Chromium takes a page over HTTP/2', {
  skip: missing('chromium') || missing('certutil'),
}, async (t) => {
  const server = await http2Site(t);
  const seen = [];
  server.on('request', (incoming) => seen.push(incoming.httpVersion));
  const home = folder(t);
  const { trust } = files(home, { trust: ca.cert });
  const database = path.join(home, '.pki/nssdb');
  fs.mkdirSync(database, { recursive: true });
  // Its sandbox wants a user other than root and namespaces that containers lack; it is the
  // page that is under test.
  const browse = async () =>
    (
      await run(
        'chromium',
        [
          '--headless',
          '--no-sandbox',
          '--disable-gpu',
          '--disable-dev-shm-usage',
          '--disable-background-networking',
          '--no-first-run',
          '--dump-dom',
          `--user-data-dir=${path.join(home, 'profile')}`,
          `https://localhost:${server.address().port}/`,
        ],
        { env: { HOME: home } },
      )
    ).text;
  const nss = `sql:${database}`;
  await run('certutil', ['-N', '--empty-password', '-d', nss]);
  assert.doesNotMatch(await browse(), /version=/, 'an unknown authority must be refused');
  await run('certutil', ['-A', '-d', nss, '-t', 'C,,', '-n', 'sealane-test', '-i', trust]);
  assert.match(await browse(), /version=2\.0/);
  await until(() => seen.includes('2.0'), 'the request');
});
