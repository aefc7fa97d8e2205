'use strict';

// Every option of node's tls.createServer, tls.createSecureContext, https.createServer,
// http.createServer and net.Server.listen, and ours, in one table. Each is either the same,
// converted, or refused with its reason and the alternative. An option without a row is ignored, as
// node does, with a warning.

const cluster = require('node:cluster');
const os = require('node:os');
const net = require('node:net');
const tls = require('node:tls');
const { RUNTIME_LIST, readSuites } = require('./ciphers.js');
const { completeChains, readAuthorities, readKeys, readPem } = require('./credentials.js');
const {
  OptionError,
  invalidType,
  invalidValue,
  outOfRange,
  throwMistakes,
} = require('./errors.js');
const { readGroups, readSchemes } = require('./offers.js');
const {
  readProtocol,
  readSecureOptions,
  readVersion,
  versionMistakes,
  versionsOf,
} = require('./versions.js');
const { warnOfNames } = require('./warnings.js');

/**
 * The options of each call: the groups of the table below.
 *
 * @type {Record<string, { call: string, groups: string[] }>}
 */
const CALLS = Object.freeze({
  createServer: {
    call: 'createServer',
    groups: ['context', 'tickets', 'server', 'lanes', 'net', 'http'],
  },
  createTLSServer: {
    call: 'createTLSServer',
    groups: ['context', 'tickets', 'server', 'lanes', 'net'],
  },
  attach: { call: 'attach', groups: ['context', 'tickets', 'server', 'lanes', 'net'] },
  setSecureContext: { call: 'setSecureContext', groups: ['context', 'tickets'] },
  createSecureContext: { call: 'createSecureContext', groups: ['context'] },
});

/**
 * Reads the options of one call. All mistakes are thrown at once.
 *
 * @param {object | null | undefined} options
 * @param {{ call: string, groups: string[] }} on one of CALLS
 * @returns {Record<string, Record<string, any>>} by group
 */
function readOptions(options, on) {
  if (options != null && (typeof options !== 'object' || Array.isArray(options))) {
    throw invalidType('options', 'of type object', options);
  }
  const mistakes = [];
  const passedOver = [];
  const read = Object.fromEntries(on.groups.map((group) => [group, {}]));
  for (const name in options) {
    const value = options[name];
    if (isAbsent(name, value)) {
      continue;
    }
    try {
      const row = rowOf(name, value, on);
      if (row === PASSED_OVER) {
        passedOver.push(name);
      } else if (row) {
        read[row.group][name] = row.read ? row.read(value, `options.${name}`, options) : value;
      }
    } catch (error) {
      mistakes.push(error);
    }
  }
  throwMistakes(mistakes);
  throwMistakes(contradictions(read));
  warnOfNames(passedOver.map(nameAndNear), (names) => {
    return `sealane passes over options of ${on.call} that have no meaning there: ${names}`;
  });
  return read;
}

/** As in node, `false` means none where a value would be converted. */
function isAbsent(name, value) {
  return value == null || (value === false && OPTIONS[name]?.how === 'converted');
}

/**
 * The row of an option that this call takes. Undefined for a refused one that is off anyway, and
 * PASSED_OVER for one that node would ignore too.
 */
function rowOf(name, value, on) {
  const row = Object.hasOwn(OPTIONS, name) ? OPTIONS[name] : PASSED_OVER;
  const option = `options.${name}`;
  const meant = row === PASSED_OVER ? nearOf(name) : undefined;
  if (meant && !HARMLESS.includes(OPTIONS[meant].group)) {
    // A server that asks for client certificates must not go without them because of one letter.
    throw invalidValue(option, undefined, 'is no option', `did you mean ${meant}?`);
  }
  if (row.refused) {
    if (value === false || value === 0) {
      return undefined;
    }
    if (row.concerns && !row.concerns(value)) {
      return PASSED_OVER;
    }
    throw invalidValue(option, undefined, row.refused, row.instead);
  }
  if (on.groups.includes(row.group) || row === PASSED_OVER) {
    return row;
  }
  if (HARMLESS.includes(row.group)) {
    return PASSED_OVER;
  }
  throw invalidValue(option, undefined, `is no option of ${on.call}`, BELONGS[row.group]);
}

/** With the option that may have been meant. */
function nameAndNear(name) {
  const near = nearOf(name);
  return near ? `${name} (did you mean ${near}?)` : name;
}

/** The option that differs from this name by its case alone. */
function nearOf(name) {
  const known = Object.keys(OPTIONS);
  return known.find((one) => one !== name && one.toLowerCase() === name.toLowerCase());
}

function contradictions({ context }) {
  const mistakes = versionMistakes(context);
  const { ecdhCurve, groups, key, cert } = context;
  if (ecdhCurve && groups) {
    const reason = 'is another name of options.ecdhCurve, which is given too';
    mistakes.push(invalidValue('options.groups', undefined, reason, 'give one of them'));
  }
  if (key && !cert) {
    mistakes.push(invalidValue('options.key', undefined, 'comes without options.cert'));
  }
  if (cert && !key) {
    const instead = 'give the private key too, as options.key';
    mistakes.push(invalidValue('options.cert', undefined, 'comes without options.key', instead));
  }
  return mistakes;
}

/**
 * The second step: the options of a secure context in the addon's form.
 *
 * @param {Record<string, any>} context the group `context` of `readOptions`
 */
function meaning(context) {
  const { ca = [], cert = [], secureOptions = {} } = context;
  const ciphers = context.ciphers ?? defaultSuites();
  throwMistakes(versionMistakes({ ...context, ciphers }));
  const { min, max } = versionsOf({ ...context, ciphers });
  const found = {
    cert: completeChains(cert, ca),
    key: context.key ?? [],
    directory: context.certificates ?? [],
    ca,
    crl: context.crl ?? [],
    honorCipherOrder: secureOptions.honorCipherOrder ?? context.honorCipherOrder ?? true,
    minVersion: min,
    maxVersion: max,
    suites: ciphers?.suites,
    groups: context.groups ?? context.ecdhCurve,
    schemes: context.sigalgs,
    tickets: secureOptions.tickets ?? true,
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}

/** As --tls-cipher-list, or the program, has set them; undefined: as the runtime is made. */
function defaultSuites() {
  const list = tls.DEFAULT_CIPHERS;
  return list === RUNTIME_LIST ? undefined : readSuites(list, 'tls.DEFAULT_CIPHERS');
}

/**
 * Authorities that may issue to clients where `ca` is not given: the roots that this node trusts.
 */
function defaultAuthorities() {
  return (tls.getCACertificates?.('default') ?? tls.rootCertificates).map((pem) =>
    Buffer.from(pem),
  );
}

/** One lane less than there are cores: JavaScript has its own. A cluster's workers are as many. */
function defaultLanes() {
  if (cluster.isWorker) return 1;
  return Math.min(Math.max(1, os.availableParallelism() - 1), LANES_MAX);
}

const string = (value, option) => {
  if (typeof value !== 'string') {
    throw invalidType(option, 'of type string', value);
  }
  return value;
};

const boolean = (value, option) => {
  if (typeof value !== 'boolean') {
    throw invalidType(option, 'of type boolean', value);
  }
  return value;
};

const callback = (value, option) => {
  if (typeof value !== 'function') {
    throw invalidType(option, 'of type function', value);
  }
  return value;
};

const integer = (min, max) => (value, option) => {
  if (typeof value !== 'number') {
    throw invalidType(option, 'of type number', value);
  }
  if (!Number.isInteger(value)) {
    throw outOfRange(option, 'an integer', value);
  }
  if (value < min || value > max) {
    throw outOfRange(option, `>= ${min} && <= ${max}`, value);
  }
  return value;
};

/**
 * A lifetime that node accepts, in seconds. Lanes count from one, and RFC 8446 ends it after a
 * week.
 */
function ticketLifetime(value, option) {
  const seconds = integer(0, INT32_MAX)(value, option);
  return Math.min(Math.max(seconds, 1), TICKET_LIFETIME_S_MAX);
}

const oneOf = (values) => (value, option) => {
  if (!values.includes(value)) {
    const alternative = `give one of these: ${values.map((one) => `'${one}'`).join(', ')}`;
    throw invalidValue(option, value, 'is not offered', alternative);
  }
  return value;
};

/** As in node, an empty list is none. */
function suites(value, option) {
  return string(value, option) === '' ? undefined : readSuites(value, option);
}

/** `auto`, as OpenSSL has it, is the server's own choice. */
function curves(value, option) {
  string(value, option);
  return value === 'auto' ? undefined : readGroups(value, option);
}

function paths(value, option) {
  const list = Array.isArray(value) ? value : [value];
  return list.map((one) => {
    if (one instanceof URL) {
      return require('node:url').fileURLToPath(one);
    }
    return string(one, option);
  });
}

/** Names of protocols, latin1, from a list of them or from the form in which they are sent. */
function protocols(value, option) {
  const names = Array.isArray(value)
    ? value.map((one) => asBytes(one, option))
    : unwire(value, option);
  for (const name of names) {
    if (name.length < 1 || name.length > 255) {
      throw outOfRange(option, 'protocols of 1 to 255 bytes', name.length);
    }
  }
  return names.map((name) => name.toString('latin1'));
}

function unwire(value, option) {
  const wire = asBytes(value, option, 'an array, or a Buffer of length-prefixed names');
  const names = [];
  for (let at = 0; at < wire.length; at += 1 + wire[at]) {
    if (at + 1 + wire[at] > wire.length) {
      throw invalidValue(option, undefined, 'ends within a name: each stands behind its length');
    }
    names.push(wire.subarray(at + 1, at + 1 + wire[at]));
  }
  return names;
}

function asBytes(value, option, expected = 'a string or a Buffer') {
  if (typeof value === 'string' && expected === 'a string or a Buffer') {
    return Buffer.from(value, 'latin1');
  }
  if (!ArrayBuffer.isView(value)) {
    throw invalidType(option, expected, value);
  }
  return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
}

/**
 * One key, or several: tickets are sealed with the first and opened with any.
 *
 * @param {unknown} value
 * @param {string} option
 * @returns {Buffer[]}
 */
function ticketKeys(value, option) {
  if (Array.isArray(value) && value.length === 0) {
    throw invalidType(option, BUFFERS, value);
  }
  const keys = (Array.isArray(value) ? value : [value]).map((key) => {
    // A copy that the program cannot overwrite.
    const copy = Buffer.from(asBytes(key, option, BUFFERS));
    if (copy.length !== TICKET_KEY_BYTES) {
      const reason = `must be exactly ${TICKET_KEY_BYTES} bytes, and has ${copy.length}`;
      // Node's texts, the one for options and the other for setTicketKeys.
      const instead = `Session ticket keys must be a ${TICKET_KEY_BYTES}-byte buffer`;
      const text = `The property '${option}' ${reason}`;
      throw new OptionError('ERR_INVALID_ARG_VALUE', option, reason, instead, text);
    }
    return copy;
  });
  if (keys.length > TICKET_KEYS_MAX) {
    throw outOfRange(option, `1 to ${TICKET_KEYS_MAX} keys`, keys.length);
  }
  return keys;
}

function blockList(value, option) {
  if (!(value instanceof net.BlockList)) {
    throw invalidType(option, 'an instance of net.BlockList', value);
  }
  return value;
}

const LANES_MAX = 64;
const PENDING_MAX = 1 << 20;
const TICKET_KEYS_MAX = 8;
const TICKET_KEY_BYTES = 48;
const INT32_MAX = 2 ** 31 - 1;
const BUFFERS = 'an instance of Buffer, TypedArray, or DataView, or an array of these';
const TICKET_LIFETIME_S_MAX = 604_800;

/** The row of an option that this package, or the call, does not have. */
const PASSED_OVER = Object.freeze({ how: 'passed over' });
/** Groups that no call is safer by, where they do not belong. */
const HARMLESS = Object.freeze(['http', 'listen', 'net']);

/** The right call for an option that was given to a wrong one. */
const BELONGS = Object.freeze({
  context: 'give it to createServer, setSecureContext, addContext or createSecureContext',
  lanes: 'give it to createServer, createTLSServer or attach, once for all names',
  server: 'give it to createServer, createTLSServer or attach, once for all names',
  tickets: 'give it to createServer or setSecureContext: all names of a server share ticket keys',
});

const same = (group, read) => ({ group, how: 'same', read });
const converted = (group, read) => ({ group, how: 'converted', read });
const ours = (group, read) => ({ group, how: 'ours', read });
const refused = (reason, instead, concerns) => {
  return { how: 'refused', refused: reason, instead, concerns };
};

const OPENSSL_ONLY = 'is a setting of OpenSSL, which does not serve these connections';

/** @type {Record<string, { how: string, group?: string, read?: Function, refused?: string }>} */
const OPTIONS = Object.freeze({
  // Settings that a client sees of the server: tls.createSecureContext.
  ca: converted('context', readAuthorities),
  cert: converted('context', readPem),
  ciphers: converted('context', suites),
  crl: converted('context', readPem),
  ecdhCurve: converted('context', curves),
  honorCipherOrder: same('context', boolean),
  key: converted('context', (value, option, all) => readKeys(value, all.passphrase, option)),
  maxVersion: same('context', readVersion),
  minVersion: same('context', readVersion),
  passphrase: converted('context', string),
  secureOptions: converted('context', readSecureOptions),
  secureProtocol: converted('context', readProtocol),
  sigalgs: converted('context', (value, option) => readSchemes(string(value, option), option)),

  // Sessions.
  sessionIdContext: converted('tickets', string),
  sessionTimeout: same('tickets', ticketLifetime),
  ticketKeys: converted('tickets', ticketKeys),

  // tls.createServer.
  ALPNProtocols: converted('server', protocols),
  SNICallback: same('server', callback),
  handshakeTimeout: same('server', integer(1, INT32_MAX)),
  rejectUnauthorized: same('server', boolean),
  requestCert: same('server', boolean),

  // net.createServer.
  allowHalfOpen: same('net', boolean),
  blockList: same('net', blockList),
  highWaterMark: same('net', integer(0, 2 ** 30)),
  keepAlive: same('net', boolean),
  keepAliveInitialDelay: same('net', integer(0, INT32_MAX)),
  noDelay: same('net', boolean),
  pauseOnConnect: same('net', boolean),

  // http.createServer, which reads them itself.
  IncomingMessage: same('http'),
  ServerResponse: same('http'),
  connectionsCheckingInterval: same('http'),
  headersTimeout: same('http'),
  httpValidation: same('http'),
  insecureHTTPParser: same('http'),
  joinDuplicateHeaders: same('http'),
  keepAliveTimeout: same('http'),
  keepAliveTimeoutBuffer: same('http'),
  maxHeaderSize: same('http'),
  optimizeEmptyRequests: same('http'),
  rejectNonStandardBodyWrites: same('http'),
  requestTimeout: same('http'),
  requireHostHeader: same('http'),
  shouldUpgradeCallback: same('http'),
  uniqueHeaders: same('http'),

  // net.Server.listen, which listen.js reads.
  backlog: same('listen'),
  exclusive: converted('listen'),
  fd: same('listen'),
  host: same('listen'),
  ipv6Only: same('listen'),
  path: same('listen'),
  port: same('listen'),
  readableAll: same('listen'),
  reusePort: same('listen'),
  signal: same('listen'),
  writableAll: same('listen'),

  // Ours.
  certificates: ours('context', paths),
  groups: ours('context', curves),
  handover: ours('lanes', oneOf(['auto', 'ring', 'socket'])),
  lanes: ours('lanes', integer(1, LANES_MAX)),
  maxPending: ours('lanes', integer(1, PENDING_MAX)),
  pinLanes: ours('lanes', boolean),
  shutdownTimeout: ours('server', integer(1, INT32_MAX)),

  // Refused.
  ALPNCallback: refused(
    'is not offered: a lane chooses the protocol without asking JavaScript',
    'list ALPNProtocols in order of preference; with SNICallback a name may have its own context',
  ),
  NPNProtocols: refused('is not offered: NPN has been replaced by ALPN', 'use ALPNProtocols'),
  allowPartialTrustChain: refused(
    'is not offered: a chain must lead to an authority that issued itself',
    'give that authority in ca too',
  ),
  certificateCompression: refused('is not offered', 'leave it out'),
  clientCertEngine: refused(OPENSSL_ONLY, 'give key and cert'),
  context: refused(
    "is the inside of a SecureContext of node's tls, which does not give its keys out",
    'make one with createSecureContext of this package',
    (value) => value.constructor?.name === 'SecureContext',
  ),
  dhparam: refused(
    'is not offered: key exchange is over elliptic curves only',
    'leave it out, or choose curves with ecdhCurve',
  ),
  enableTrace: refused('is not offered', "listen to 'keylog', and open a capture in Wireshark"),
  pfx: refused(
    'is not offered',
    'convert the file once, and give its content as both key and cert: ' +
      'openssl pkcs12 -in bundle.pfx -nodes -out bundle.pem',
  ),
  privateKeyEngine: refused(OPENSSL_ONLY, 'give key'),
  privateKeyIdentifier: refused(OPENSSL_ONLY, 'give key'),
  pskCallback: refused(
    'is not offered: rustls has no external pre-shared keys',
    "use client certificates (requestCert), or node's own tls for these clients",
  ),
  pskIdentityHint: refused(
    'is not offered: rustls has no external pre-shared keys',
    'leave it out',
  ),
  secureContext: refused('is no option of a server here', 'call setSecureContext(secureContext)'),
  threads: refused('was the word of TLSnappy', 'use lanes'),
});

module.exports = {
  CALLS,
  OPTIONS,
  defaultAuthorities,
  defaultLanes,
  meaning,
  readOptions,
  ticketKeys,
};
