'use strict';

// Keys, certificates and what they are judged by, from the many forms that node takes to PEM.

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
  return list(value).map((one) => {
    const pem = bytes(one);
    if (pem === undefined) {
      throw invalidType(option, 'a string, a Buffer, or an array of these', one);
    }
    return pem;
  });
}

/**
 * Private keys as unencrypted PEM.
 *
 * @param {unknown} value a string, a Buffer, a KeyObject, or an array of these and, as in node only
 *   there, of `{ pem, passphrase }`
 * @param {unknown} passphrase of those that bring none of their own
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
    // Who wrote more than one certificate has written the chain as it shall be.
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

/** Certificates of a PEM text; none if one of them is broken, which the addon tells better. */
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
    throw invalidType('options.passphrase', 'a string', passphrase);
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

module.exports = { completeChains, readKeys, readPem };
