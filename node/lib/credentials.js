'use strict';

// Keys, certificates, authorities and lists, from the many forms that node takes to PEM.

const { KeyObject, X509Certificate, createPrivateKey } = require('node:crypto');
const { types } = require('node:util');
const { invalidType, invalidValue } = require('./errors.js');

/**
 * One PEM text or several of them, as Buffers.
 *
 * @param {unknown} value
 * @param {string} option
 * @returns {Buffer[]}
 */
function readPem(value, option) {
  return readChecked(value, option, () => {});
}

/** The same. `check` gets the attributes that OpenSSL has put behind a certificate. */
function readChecked(value, option, check) {
  return list(value).map((one) => {
    const pem = bytes(one);
    if (pem === undefined) {
      throw invalidType(option, 'a string, a Buffer, or an array of these', one);
    }
    return OTHER_LABELS.some((label) => pem.includes(label)) ? underOneLabel(pem, check) : pem;
  });
}

/** Certificates under OpenSSL's other two labels, as everybody writes them. */
function underOneLabel(pem, check) {
  const text = pem.toString('latin1').replace(OTHERWISE_LABELLED, (_whole, label, base64) => {
    const der = Buffer.from(base64, 'base64');
    const end = endOf(der, 0);
    if (label === 'TRUSTED') {
      check(der.subarray(end));
    }
    return certificatePem(der.subarray(0, end)).trim();
  });
  return Buffer.from(text, 'latin1');
}

/** @param {Buffer} der @returns {string} */
function certificatePem(der) {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

/**
 * A private key in PEM, in memory that its owner can empty: a string could not be.
 *
 * @param {Buffer} der
 * @param {string} type pkcs1, pkcs8 or sec1
 * @returns {Buffer}
 */
function keyPem(der, type) {
  const label = KEY_LABELS[type];
  const [head, tail] = [`-----BEGIN ${label}-----\n`, `-----END ${label}-----\n`];
  const groups = Math.ceil(der.length / 3);
  const pem = Buffer.alloc(head.length + 4 * groups + Math.ceil(groups / 16) + tail.length);
  let end = pem.write(head, 'latin1');
  for (let at = 0; at < der.length; at += 3) {
    const bits = (der[at] << 16) | (der[at + 1] << 8) | der[at + 2];
    for (let i = 0; i < 4; i += 1) {
      pem[end++] = at + i > der.length ? PADDING : BASE64[(bits >> (18 - 6 * i)) & 63];
    }
    if (at % 48 === 45 || at + 3 >= der.length) pem[end++] = LINE_END;
  }
  pem.write(tail, end, 'latin1');
  return pem;
}

/**
 * Whether an authority with these settings may vouch for clients: a sequence of uses that it is
 * trusted for, and one, tagged, of uses that it is not.
 */
function trustsClients(settings) {
  if (settings.length === 0) {
    return true;
  }
  const end = endOf(settings, 0);
  let at = contentOf(settings, 0);
  let trusted = true;
  while (at < end) {
    const [tag, next] = [settings[at], endOf(settings, at)];
    const uses = settings.subarray(at, next);
    const hasClients = CLIENT_USES.some((use) => uses.includes(use));
    if (tag === SEQUENCE) trusted = hasClients;
    if (tag === REJECTED && hasClients) return false;
    at = next;
  }
  return trusted;
}

/** The start and end of the value at this place of DER, never before or beyond the bytes. */
function contentOf(der, at) {
  const length = der[at + 1];
  return at + 2 + (length > 0x80 ? Math.min(length & 0x7f, 4) : 0);
}

function endOf(der, at) {
  const start = contentOf(der, at);
  const long = start - at - 2;
  const length = long === 0 ? der[at + 1] : der.subarray(at + 2, start).reduce(asNumber, 0);
  return Math.min(start + (length || 0), der.length);
}

function asNumber(high, low) {
  return high * 256 + low;
}

/**
 * Authorities of clients: the same, without those that OpenSSL would trust only for other uses.
 *
 * @param {unknown} value
 * @param {string} option
 * @returns {Buffer[]}
 */
function readAuthorities(value, option) {
  return readChecked(value, option, (settings) => {
    if (!trustsClients(settings)) {
      const reason = 'holds a TRUSTED CERTIFICATE that is not trusted to issue those of clients';
      const instead = 'leave it out, or write it anew: openssl x509 -in OLD -out NEW';
      throw invalidValue(option, undefined, reason, instead);
    }
  });
}

/**
 * Private keys as unencrypted PEM.
 *
 * @param {unknown} value a string, a Buffer, a KeyObject, or an array of these and, as in node only
 * there, of `{ pem, passphrase }`
 * @param {unknown} passphrase of keys without a separate one
 * @param {string} option
 * @returns {Buffer[]}
 */
function readKeys(value, passphrase, option) {
  return list(value).map((one) => {
    if (one instanceof KeyObject) {
      return exportKey(one, option);
    }
    const pem = bytes((Array.isArray(value) && one?.pem) || one);
    if (pem === undefined) {
      const expected = 'a string, a Buffer, or an array of these and of { pem, passphrase }';
      throw invalidType(option, expected, one);
    }
    return isEncrypted(pem) ? decrypt(pem, one?.passphrase ?? passphrase, option) : pem;
  });
}

/**
 * The certificates that a server sends. As in node, an issuer that only `ca` holds is sent too.
 *
 * @param {Buffer[]} certs
 * @param {Buffer[]} authorities
 * @returns {Buffer[]}
 */
function completeChains(certs, authorities) {
  if (authorities.length === 0) {
    return certs;
  }
  const issuers = authorities.flatMap(parsed);
  return certs.map((pem) => {
    const chain = parsed(pem);
    // More than one certificate is a chain that the program has written as it shall be.
    if (chain.length !== 1) {
      return pem;
    }
    const missing = [];
    let last = chain[0];
    while (missing.length < CHAIN_LENGTH_MAX && !last.checkIssued(last)) {
      const issuer = issuers.find((one) => last.checkIssued(one));
      if (issuer === undefined || issuer.checkIssued(issuer)) {
        break;
      }
      missing.push(issuer.toString());
      last = issuer;
    }
    return missing.length === 0 ? pem : Buffer.from([`${pem}`, ...missing].join('\n'));
  });
}

/** Certificates of a PEM text. None if one of them is broken: the addon has the better error. */
function parsed(pem) {
  try {
    return (pem.toString('latin1').match(CERTIFICATE) ?? []).map((one) => new X509Certificate(one));
  } catch {
    return [];
  }
}

function decrypt(pem, passphrase, option) {
  if (passphrase == null) {
    throw invalidValue(
      option,
      undefined,
      'is encrypted',
      'give its passphrase as options.passphrase, or as { pem, passphrase }',
    );
  }
  if (typeof passphrase !== 'string') {
    throw invalidType('options.passphrase', 'of type string', passphrase);
  }
  let key;
  try {
    key = createPrivateKey({ key: pem, passphrase });
  } catch (error) {
    throw invalidValue(
      option,
      undefined,
      `cannot be decrypted with its passphrase (${error.message})`,
      'try it with: openssl pkey -in KEY -noout',
    );
  }
  return exportKey(key, option);
}

function exportKey(key, option) {
  if (key.type !== 'private') {
    throw invalidValue(option, key.type, `is a ${key.type} key`, 'give the private key');
  }
  return Buffer.from(key.export({ type: 'pkcs8', format: 'pem' }));
}

function isEncrypted(pem) {
  return pem.includes('BEGIN ENCRYPTED PRIVATE KEY') || pem.includes('Proc-Type: 4,ENCRYPTED');
}

function list(value) {
  return Array.isArray(value) ? value.flat() : [value];
}

function bytes(value) {
  if (typeof value === 'string') {
    return Buffer.from(value);
  }
  if (ArrayBuffer.isView(value)) {
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
  return types.isAnyArrayBuffer(value) ? Buffer.from(value) : undefined;
}

const CERTIFICATE = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----.*?-----END [^-]*-----/gs;
const CHAIN_LENGTH_MAX = 8;
const OTHER_LABELS = Object.freeze(['BEGIN TRUSTED CERTIFICATE', 'BEGIN X509 CERTIFICATE']);
const OTHERWISE_LABELLED =
  /-----BEGIN (TRUSTED|X509) CERTIFICATE-----([^-]*)-----END \1 CERTIFICATE-----/g;
const KEY_LABELS = Object.freeze({
  pkcs1: 'RSA PRIVATE KEY',
  pkcs8: 'PRIVATE KEY',
  sec1: 'EC PRIVATE KEY',
});
const BASE64 = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/');
const PADDING = '='.charCodeAt(0);
const LINE_END = '\n'.charCodeAt(0);
const SEQUENCE = 0x30;
const REJECTED = 0xa0;
/** As DER: clients' certificates, and any use. */
const CLIENT_USES = Object.freeze([
  Buffer.from('06082b06010505070302', 'hex'),
  Buffer.from('0604551d2500', 'hex'),
]);

module.exports = {
  certificatePem,
  completeChains,
  keyPem,
  readAuthorities,
  readKeys,
  readPem,
};
