'use strict';

// The table of options: the same, converted, refused, and that all mistakes are reported.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const crypto = require('node:crypto');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { test } = require('node:test');
const tls = require('node:tls');
const { CALLS, OPTIONS, defaultLanes, meaning, readOptions } = require('../../lib/options.js');

const CERTIFICATES = path.join(__dirname, '../../../testdata/certificates');
const OPTIONS_FILE = require.resolve('../../lib/options.js');
const pem = (name) => fs.readFileSync(path.join(CERTIFICATES, name));

const cert = pem('p256.crt');
const key = pem('p256.pkcs8.key');

const read = (options, on = CALLS.createServer) => readOptions(options, on);
const meant = (options) => meaning(read(options).context);

/** The warnings of the process while `run` ran, in a separate process: each comes but once. */
function warnings(...lines) {
  const script = `
    const { CALLS, readOptions } = require(${JSON.stringify(OPTIONS_FILE)});
    const read = (options, on = CALLS.createServer) => readOptions(options, on);
    process.on('warning', ({ name, code, message }) => console.log(name, code, message));
    ${lines.join('\n')}`;
  const run = spawnSync(process.execPath, ['--no-warnings', '-e', script], { encoding: 'utf8' });
  assert.equal(run.stderr, '');
  return run.stdout.split('\n').slice(0, -1);
}

test('what is no option is passed over, with one warning and what may have been meant', () => {
  assert.deepEqual(read({ constructor: 1, Port: 443 }).server, {});
  const told = warnings(
    'read({ Port: 443, nonsense: 1, cert: null });',
    'read({ nonsense: 2 });',
    'read({ port: 443, nonsense: 3 });',
    'read({ keepAliveTimeout: 1 }, CALLS.createTLSServer);',
  );
  assert.equal(told.length, 3, String(told));
  assert.match(
    told[0],
    /^SealaneWarning SEALANE_NOT_OFFERED sealane passes over options of create/,
  );
  assert.match(told[0], /: Port \(did you mean port\?\), nonsense$/);
  assert.match(told[1], /: port$/);
  assert.match(told[2], /of createTLSServer that have no meaning there: keepAliveTimeout$/);
});

test('what differs from an option by its case alone is a mistake', () => {
  for (const [name, known] of [
    ['requestcert', 'requestCert'],
    ['RejectUnauthorized', 'rejectUnauthorized'],
    ['alpnProtocols', 'ALPNProtocols'],
    ['PFX', 'pfx'],
    ['MinVersion', 'minVersion'],
  ]) {
    assert.throws(() => read({ [name]: true }), {
      code: 'ERR_INVALID_ARG_VALUE',
      message: new RegExp(`^options\\.${name} is no option\\. Did you mean ${known}\\?`),
      option: `options.${name}`,
    });
  }
  assert.throws(() => readOptions({ CA: cert }, CALLS.createSecureContext), /mean ca\?/);
});

test("only the inside of node's own context is refused under that name", () => {
  const { context } = tls.createSecureContext();
  assert.throws(() => read({ context }), { message: /inside of a SecureContext of node's tls/ });
  assert.deepEqual(read({ context: { requestCert: true } }).server, {});
});

test('names without end are warned of up to a limit', () => {
  const told = warnings('for (let i = 0; i < 1000; i++) read({ ["made up " + i]: i });');
  assert.equal(told.length, 256);
});

test('options that are not given are no mistake, whatever their name', () => {
  read({ pfx: undefined, nonsense: undefined, cert: null });
  read(undefined);
  read({ enableTrace: false, secureOptions: 0 });
});

test('all mistakes of a call are told at once', () => {
  const options = { threads: 4, minVersion: 'TLSv1', lanes: 0, requestCert: 'yes' };
  assert.throws(
    () => read(options),
    (error) => {
      const found = error.errors.map((one) => one.option);
      assert.deepEqual(
        found,
        Object.keys(options).map((name) => `options.${name}`),
      );
      return found.every((option) => error.message.includes(option));
    },
  );
});

test('each refused option throws with its reason and what to do instead', () => {
  const refused = Object.entries(OPTIONS).filter(([, row]) => row.how === 'refused');
  for (const [name, row] of refused) {
    const value = row.concerns ? tls.createSecureContext().context : 'x';
    assert.throws(() => read({ [name]: value }), {
      code: 'ERR_INVALID_ARG_VALUE',
      option: `options.${name}`,
      reason: row.refused,
      alternative: row.instead,
    });
    assert.ok(row.instead, `${name} has no alternative`);
  }
  const names = refused.map(([name]) => name);
  const asked = ['pskCallback', 'dhparam', 'pfx', 'ALPNCallback', 'threads'];
  for (const name of [...asked, 'allowPartialTrustChain']) {
    assert.ok(names.includes(name), name);
  }
});

test('an option in the wrong call that somebody counts on throws, with where it belongs', () => {
  assert.throws(() => read({ requestCert: true }, CALLS.createSecureContext), {
    message: /is no option of createSecureContext\. Give it to createServer.*once for all names/,
  });
  assert.throws(() => read({ ticketKeys: Buffer.alloc(48) }, CALLS.createSecureContext), {
    message: /all names of a server share ticket keys/,
  });
  assert.throws(() => read({ lanes: 2 }, CALLS.setSecureContext), { option: 'options.lanes' });
});

test('no message shows a key', () => {
  for (const options of [{ handover: key.toString() }, { lanes: key }, { ciphers: `${key}` }]) {
    assert.throws(
      () => read(options),
      (error) => !error.message.includes(key.toString().split('\n')[1]),
    );
  }
});

test('ciphers are taken by the names of OpenSSL and of IANA', () => {
  const { suites, minVersion } = meant({
    ciphers: 'ECDHE-RSA-AES128-GCM-SHA256:TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256',
  });
  assert.deepEqual(suites, [
    'TLS_AES_256_GCM_SHA384',
    'TLS_CHACHA20_POLY1305_SHA256',
    'TLS_AES_128_GCM_SHA256',
    'TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256',
    'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256',
  ]);
  assert.equal(minVersion, 'TLSv1.2');
  assert.deepEqual(
    meant({ ciphers: 'TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256' }).suites,
    ['TLS_AES_128_GCM_SHA256', 'TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256'],
  );
});

test('ciphers of TLS 1.3 alone mean TLS 1.3 alone, as in node', () => {
  const { suites, minVersion } = meant({ ciphers: 'TLS_AES_128_GCM_SHA256' });
  assert.deepEqual([suites, minVersion], [['TLS_AES_128_GCM_SHA256'], 'TLSv1.3']);
  assert.throws(() => read({ ciphers: 'TLS_AES_128_GCM_SHA256', maxVersion: 'TLSv1.2' }), {
    option: 'options.ciphers',
  });
});

test('ciphers are taken in the language of OpenSSL', () => {
  const of12 = (ciphers) =>
    meant({ ciphers }).suites.flatMap((name) => /ECDHE_(.*)/.exec(name)?.[1] ?? []);
  const all = of12('ALL');
  assert.equal(all.length, 6);
  for (const whole of [
    tls.DEFAULT_CIPHERS,
    'HIGH:!aNULL:!MD5',
    'DEFAULT:@SECLEVEL=1',
    'ECDHE+AESGCM:ECDHE+CHACHA20',
    'EECDH, HIGH; -NULL',
  ]) {
    assert.deepEqual(of12(whole).toSorted(), all.toSorted(), whole);
  }
  const [gcm128, gcm256] = ['RSA_WITH_AES_128_GCM_SHA256', 'RSA_WITH_AES_256_GCM_SHA384'];
  assert.deepEqual(of12('aRSA+AESGCM'), [gcm128, gcm256]);
  assert.deepEqual(of12('aRSA+AESGCM:@STRENGTH'), [gcm256, gcm128]);
  assert.deepEqual(of12('aRSA+AESGCM:+AES128'), [gcm256, gcm128]);
  assert.deepEqual(of12('!AES128:aRSA+AESGCM'), [gcm256]);
  assert.deepEqual(of12('ALL:-AES:-CHACHA20:ECDHE-RSA-AES128-GCM-SHA256'), [gcm128]);
  assert.deepEqual(of12('ALL:!ECDSA:!CHACHA20:ECDHE-ECDSA-AES128-GCM-SHA256'), [gcm128, gcm256]);
  assert.deepEqual(of12('AES128-SHA:DHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256'), [
    gcm128,
  ]);
  assert.equal(meant({ ciphers: 'HIGH:!TLS_AES_128_GCM_SHA256' }).suites.length, 8);
});

test('ciphers that leave nothing, or ask for more than there is, throw', () => {
  for (const ciphers of [
    'AES128-SHA',
    'NULL',
    '!aNULL',
    'ALL:!ECDHE',
    'TLS_AES_128_GCM_SHA256:x',
  ]) {
    assert.throws(() => read({ ciphers }), {
      code: 'ERR_SSL_NO_CIPHER_MATCH',
      option: 'options.ciphers',
      message: /no cipher match.*ECDHE-ECDSA-CHACHA20-POLY1305/,
    });
  }
  for (const ciphers of [
    'HIGH:@SECLEVEL=3',
    'HIGH@SECLEVEL=3',
    'ECDHE+AESGCM:!AES128@SECLEVEL=3',
    'DEFAULT@SECLEVEL=5',
    'HIGH:@WEAKNESS',
    ':',
    'SUITEB128:HIGH',
    'SUITEB128ONLY',
    'SUITEB192@SECLEVEL=2',
  ]) {
    assert.throws(() => read({ ciphers }), { option: 'options.ciphers' }, ciphers);
  }
  assert.equal(meant({ ciphers: '' }).suites, undefined);
});

test('ciphers end at an @ or a !, as in OpenSSL', () => {
  const sorted = (ciphers) => meant({ ciphers }).suites.toSorted();
  for (const [without, separated] of [
    ['ECDHE+AESGCM:!AES128@SECLEVEL=2', 'ECDHE+AESGCM:!AES128'],
    ['ECDHE+AESGCM!AES128', 'ECDHE+AESGCM:!AES128'],
    ['HIGH!AES128!CHACHA20', 'HIGH:!AES128:!CHACHA20'],
    ...[0, 1, 2].map((level) => [`DEFAULT@SECLEVEL=${level}`, 'DEFAULT']),
  ]) {
    assert.deepEqual(sorted(without), sorted(separated), without);
  }
  assert.ok(sorted('HIGH!AES128').every((name) => !/_WITH_AES_128/.test(name)));
});

test('TLS 1.3 does not go because its suites are not there', () => {
  for (const ciphers of ['TLS_AES_128_CCM_SHA256:HIGH', 'HIGH:TLS_AES_128_CCM_8_SHA256']) {
    assert.throws(() => read({ ciphers }), {
      message: /^options\.ciphers names no suite of TLS 1\.3 that is offered/,
      option: 'options.ciphers',
    });
    const { maxVersion, suites } = meant({ ciphers, maxVersion: 'TLSv1.2' });
    assert.deepEqual([maxVersion, suites.length], ['TLSv1.2', 6]);
  }
  const before = tls.DEFAULT_CIPHERS;
  try {
    tls.DEFAULT_CIPHERS = 'TLS_AES_128_CCM_SHA256:HIGH';
    assert.throws(() => meant({}), /no suite of TLS 1\.3 that is offered/);
  } finally {
    tls.DEFAULT_CIPHERS = before;
  }
  // A program that takes each away has asked for it.
  const all13 = meant({}).suites ?? meant({ ciphers: 'HIGH' }).suites.slice(0, 3);
  const none = meant({ ciphers: `HIGH:${all13.map((name) => `!${name}`).join(':')}` });
  assert.equal(none.suites.length, 6);
});

test('what is passed over is told, the same once', () => {
  const told = warnings(
    "read({ ciphers: require('tls').DEFAULT_CIPHERS });",
    "read({ ciphers: 'AES128-SHA:HIGH:!aNULL', ecdhCurve: 'P-521:P-256' });",
    "read({ ciphers: 'AES256-SHA:HIGH', ecdhCurve: 'P-521:P-384' });",
    "read({ ciphers: 'AES128-SHA:HIGH' });",
    "read({ secureOptions: require('crypto').constants.SSL_OP_PRIORITIZE_CHACHA });",
  );
  assert.deepEqual(
    told.map((line) => /options\.\w+ \w+ [^,]*/.exec(line)[0]),
    [
      "options.ciphers names 'AES128-SHA'",
      "options.ecdhCurve names 'P-521'",
      "options.ciphers names 'AES256-SHA'",
      'options.secureOptions has SSL_OP_PRIORITIZE_CHACHA',
    ],
  );
});

test('the own list of Bun and Deno is no setting of the program', () => {
  for (const runtime of ['bun', 'deno']) {
    const script = `
      Object.defineProperty(process.versions, '${runtime}', { value: '1' });
      require('node:tls').DEFAULT_CIPHERS = 'ECDHE-RSA-AES128-SHA256:HIGH';
      process.on('warning', ({ message }) => console.log(message));
      const { CALLS, meaning, readOptions } = require(${JSON.stringify(OPTIONS_FILE)});
      meaning(readOptions({}, CALLS.createSecureContext).context);
      readOptions({ ciphers: require('node:tls').DEFAULT_CIPHERS }, CALLS.createSecureContext);`;
    const run = spawnSync(process.execPath, ['--no-warnings', '-e', script], { encoding: 'utf8' });
    assert.deepEqual([run.stdout, run.stderr], ['', ''], runtime);
  }
});

test('suites that a program sets for all of its TLS hold here', () => {
  const before = tls.DEFAULT_CIPHERS;
  assert.equal(meant({}).suites, undefined);
  try {
    tls.DEFAULT_CIPHERS = 'TLS_AES_256_GCM_SHA384';
    const { minVersion, suites } = meant({});
    assert.deepEqual([minVersion, suites], ['TLSv1.3', ['TLS_AES_256_GCM_SHA384']]);
  } finally {
    tls.DEFAULT_CIPHERS = before;
  }
});

test('secureProtocol and secureOptions hold as far as they ask for what there is', () => {
  const versions = (options) => {
    const { minVersion, maxVersion, honorCipherOrder, tickets } = meant(options);
    return [minVersion.at(-1), maxVersion.at(-1), honorCipherOrder, tickets].join(' ');
  };
  const { constants } = crypto;
  const bits = (...names) => names.reduce((sum, name) => sum | constants[`SSL_OP_${name}`], 0);
  assert.equal(versions({ secureProtocol: 'TLSv1_2_method' }), '2 2 true true');
  assert.equal(versions({ secureProtocol: 'TLS_method' }), '2 3 true true');
  assert.equal(versions({ secureProtocol: 'SSLv23_method' }), '2 2 true true');
  for (const [secureOptions, expected] of [
    [bits('ALL', 'NO_SSLv2', 'NO_SSLv3', 'NO_TLSv1', 'NO_TLSv1_1'), '2 3 false true'],
    [bits('NO_COMPRESSION', 'NO_RENEGOTIATION', 'NO_TLSv1_2') >>> 0, '3 3 false true'],
    [bits('NO_TLSv1_3', 'NO_TICKET'), '2 2 false false'],
    [bits('CIPHER_SERVER_PREFERENCE'), '2 3 true true'],
  ]) {
    assert.equal(versions({ secureOptions, honorCipherOrder: false }), expected);
  }
  for (const wrong of [
    { secureProtocol: 'TLSv1_method' },
    { secureProtocol: 'SSLv3_method' },
    { secureProtocol: 7 },
    { secureProtocol: 'TLS_method', minVersion: 'TLSv1.3' },
    { secureOptions: bits('ALLOW_UNSAFE_LEGACY_RENEGOTIATION') },
    { secureOptions: bits('NO_TLSv1_2', 'NO_TLSv1_3') },
    { secureOptions: 1 },
    { secureOptions: 2 ** 40 },
    { secureOptions: 1.5 },
  ]) {
    assert.throws(() => read(wrong), { option: `options.${Object.keys(wrong)[0]}` });
  }
});

test('curves and schemes are taken by both names', () => {
  assert.deepEqual(meant({ ecdhCurve: 'P-256:X25519' }).groups, ['secp256r1', 'x25519']);
  assert.deepEqual(meant({ groups: 'prime256v1' }).groups, ['secp256r1']);
  assert.equal(meant({ ecdhCurve: 'auto' }).groups, undefined);
  assert.deepEqual(meant({ ecdhCurve: 'P-521:X25519:X448' }).groups, ['x25519']);
  assert.throws(() => read({ ecdhCurve: 'P-521' }), { message: /'P-521', which is not offered/ });
  assert.throws(() => read({ ecdhCurve: 'P-256:wrong' }), { message: /'wrong', which is not/ });
  assert.deepEqual(meant({ sigalgs: 'RSA+SHA1:ed25519' }).schemes, ['ed25519']);
  assert.throws(() => read({ sigalgs: 'RSA+SHA1' }), { message: /'RSA\+SHA1', which is not/ });
  assert.deepEqual(meant({ sigalgs: 'RSA-PSS+SHA256:ed25519' }).schemes, [
    'rsa_pss_rsae_sha256',
    'ed25519',
  ]);
});

test('versions below 1.2 and in the wrong order throw', () => {
  for (const minVersion of ['TLSv1', 'TLSv1.1', 'SSLv3', '1.2']) {
    assert.throws(() => read({ minVersion }), { option: 'options.minVersion' });
  }
  assert.throws(() => read({ minVersion: 'TLSv1.3', maxVersion: 'TLSv1.2' }), {
    option: 'options.minVersion',
  });
  assert.equal(meant({ minVersion: 'TLSv1.3' }).maxVersion, 'TLSv1.3');
});

test('ALPNProtocols are taken as a list and as they are sent', () => {
  const protocols = (value) => read({ ALPNProtocols: value }).server.ALPNProtocols;
  assert.deepEqual(protocols(['h2', 'http/1.1']), ['h2', 'http/1.1']);
  assert.deepEqual(protocols([Buffer.from('h2')]), ['h2']);
  assert.deepEqual(protocols(Buffer.from('\x02h2\x08http/1.1')), ['h2', 'http/1.1']);
  assert.deepEqual(protocols([]), []);
  assert.throws(() => protocols(Buffer.from('\x05h2')), { option: 'options.ALPNProtocols' });
  assert.throws(() => protocols(['']), { code: 'ERR_OUT_OF_RANGE' });
  assert.throws(() => protocols('h2'), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('keys are taken as strings, Buffers, lists and objects, and decrypted', () => {
  const passphrase = 'open';
  const plain = crypto.createPrivateKey(key);
  const encrypted = plain.export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase,
  });
  const traditional = plain.export({ type: 'sec1', format: 'pem', cipher: 'aes128', passphrase });
  const forms = [
    { key },
    { key: key.toString() },
    { key: [key] },
    { key: plain },
    { key: [{ pem: key }] },
    { key: encrypted, passphrase },
    { key: traditional, passphrase },
    { key: [{ pem: encrypted, passphrase }], passphrase: 'of the others' },
  ];
  for (const form of forms) {
    const [got] = meant({ cert, ...form }).key;
    assert.ok(crypto.createPrivateKey(got).equals(plain));
  }
  assert.throws(() => read({ cert, key: encrypted }), {
    message: /is encrypted\. Give its passphr/,
  });
  assert.throws(() => read({ cert, key: encrypted, passphrase: 'wrong' }), {
    message: /cannot be decrypted with its passphrase/,
  });
  assert.throws(() => read({ cert, key: 7 }), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => read({ cert }), { option: 'options.cert' });
});

test('ticket keys are one or several of 48 bytes', () => {
  const keys = (value) => read({ ticketKeys: value }).tickets.ticketKeys;
  assert.deepEqual(keys(Buffer.alloc(48, 1)), [Buffer.alloc(48, 1)]);
  assert.equal(keys([Buffer.alloc(48), Buffer.alloc(48)]).length, 2);
  assert.throws(() => keys(Buffer.alloc(47)), {
    message: /exactly 48 bytes, and has 47\. Session ticket keys must be a 48-byte buffer/,
  });
  assert.throws(() => keys([]), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => keys(Array(9).fill(Buffer.alloc(48))), { code: 'ERR_OUT_OF_RANGE' });
  assert.throws(() => keys('x'.repeat(48)), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('numbers have their ranges', () => {
  for (const options of [
    { handshakeTimeout: 0 },
    { lanes: 1.5 },
    { lanes: 100_000 },
    { maxPending: 0 },
    { sessionTimeout: -1 },
    { shutdownTimeout: Number.POSITIVE_INFINITY },
  ]) {
    assert.throws(() => read(options), { code: 'ERR_OUT_OF_RANGE' });
  }
  assert.ok(defaultLanes() >= 1);
});

test('what node refuses too is refused in its words', () => {
  for (const options of [
    { ciphers: 1 },
    { ecdhCurve: 1 },
    { handshakeTimeout: 'abcd' },
    { sessionTimeout: 'abcd' },
    { sessionTimeout: -1 },
    { sessionTimeout: 2 ** 31 },
    { sessionTimeout: 1.5 },
    { SNICallback: 7 },
  ]) {
    const message = ({ code, message }) => `${code} ${message}`;
    const nodes = thrownBy(() => tls.createServer(options));
    const ours = thrownBy(() => read(options));
    assert.equal(
      message(ours).replace('"options.SNI', '"SNI'),
      message(nodes).replace('"options.SNI', '"SNI'),
    );
  }
  assert.throws(() => read({ requestCert: 'yes' }), {
    message:
      'The "options.requestCert" property must be of type boolean. ' +
      "Received type string ('yes')",
  });
  assert.throws(() => read({ SNICallback: class Some {} }) && read({ requestCert: () => {} }), {
    message: /Received function requestCert$/,
  });
});

function thrownBy(run) {
  try {
    run();
  } catch (error) {
    return error;
  }
  return assert.fail('nothing was thrown');
}

test('a session lasts as long as node takes it, for a week at most', () => {
  const seconds = (sessionTimeout) => read({ sessionTimeout }).tickets.sessionTimeout;
  assert.deepEqual([0, 1, 604_800, 2 ** 31 - 1].map(seconds), [1, 1, 604_800, 604_800]);
});

test('options of HTTP are left to http.Server', () => {
  assert.deepEqual(read({ keepAliveTimeout: 7, maxHeaderSize: 9 }).http, {
    keepAliveTimeout: 7,
    maxHeaderSize: 9,
  });
});

test('a block list must be one', () => {
  read({ blockList: new net.BlockList() });
  assert.throws(() => read({ blockList: ['::1'] }), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('an issuer that only ca holds is sent with the certificate', () => {
  const chain = meant({ cert, key, ca: [cert] }).cert;
  assert.deepEqual(chain, [cert], 'a certificate is no issuer of itself');
});

test("certificates under OpenSSL's other labels are taken, and its trust is kept to", () => {
  const labelled = (...args) => {
    const run = spawnSync('openssl', ['x509', '-trustout', ...args], { input: cert });
    assert.equal(run.status, 0, String(run.stderr));
    assert.match(String(run.stdout), /BEGIN TRUSTED CERTIFICATE/);
    return run.stdout;
  };
  const [plain] = meant({ ca: cert }).ca;
  const old = Buffer.from(String(cert).replaceAll(' CERTIFICATE', ' X509 CERTIFICATE'));
  const der = (pem) => new crypto.X509Certificate(pem).raw;
  for (const ca of [
    old,
    labelled(),
    labelled('-setalias', 'an alias'),
    labelled('-addtrust', 'clientAuth', '-addtrust', 'emailProtection'),
    labelled('-addtrust', 'anyExtendedKeyUsage'),
    labelled('-addreject', 'serverAuth'),
  ]) {
    const [got] = meant({ ca }).ca;
    assert.match(String(got), /^-----BEGIN CERTIFICATE-----/m);
    assert.deepEqual(der(got), der(plain));
    assert.deepEqual(der(meant({ cert: ca, key }).cert[0]), der(plain));
  }
  for (const ca of [
    labelled('-addtrust', 'serverAuth'),
    labelled('-addreject', 'clientAuth'),
    labelled('-addreject', 'anyExtendedKeyUsage', '-addtrust', 'clientAuth'),
  ]) {
    assert.throws(() => read({ ca }), { message: /is not trusted to issue those of clients/ });
    assert.ok(meant({ cert: ca, key }).cert, 'it is the own one');
  }
  const [broken] = meant({ ca: '-----BEGIN TRUSTED CERTIFICATE-----\nMIIB\n-----END TRUSTED ' }).ca;
  assert.ok(broken, 'the addon tells what is wrong');
});
