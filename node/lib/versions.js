'use strict';

// The versions of TLS, by all options about them: minVersion and maxVersion, and OpenSSL's
// secureProtocol and secureOptions, as far as these ask for supported versions.

const { constants } = require('node:crypto');
const tls = require('node:tls');
const { OptionError, invalidType, invalidValue } = require('./errors.js');
const { warnOnce } = require('./warnings.js');

/**
 * One of `minVersion` and `maxVersion`.
 *
 * @param {unknown} value
 * @param {string} option
 */
function readVersion(value, option) {
  if (value === 'TLSv1' || value === 'TLSv1.1') {
    const reason = `cannot be ${value}: TLS below 1.2 is not offered (RFC 8996)`;
    const alternative = "give 'TLSv1.2' or 'TLSv1.3'; for older clients use node's own tls";
    throw invalidValue(option, undefined, reason, alternative);
  }
  if (value !== OLDER && value !== NEWER) {
    throw invalidValue(option, value, 'is not offered', "give one of these: 'TLSv1.2', 'TLSv1.3'");
  }
  return value;
}

/**
 * A method of OpenSSL, by its meaning in node.
 *
 * @param {unknown} value
 * @param {string} option
 * @returns {{ min?: string, max?: string }}
 */
function readProtocol(value, option) {
  if (typeof value !== 'string') {
    throw invalidType(option, 'of type string', value);
  }
  if (!Object.hasOwn(METHODS, value)) {
    const methods = Object.keys(METHODS).join(', ');
    const instead = `give minVersion and maxVersion, or one of these: ${methods}`;
    throw invalidValue(option, value, 'is not offered', instead);
  }
  return METHODS[value];
}

/**
 * Bits of OpenSSL: those that always hold here, and those that can be chosen.
 *
 * @param {unknown} value
 * @param {string} option
 * @returns {{ min?: string, max?: string, tickets?: boolean, honorCipherOrder?: boolean }}
 */
function readSecureOptions(value, option) {
  if (!Number.isInteger(value)) {
    throw invalidType(option, "an integer, of bits of crypto.constants' SSL_OP_*", value);
  }
  const bits = value >>> 0;
  const has = (name) => (bits & constants[name]) !== 0;
  let wrong = bits;
  for (const name of [...SO_ANYWAY, ...HAD, ...PASSED_OVER]) {
    wrong &= ~constants[name];
  }
  if (wrong !== 0 || !Number.isSafeInteger(value) || Math.abs(value) > 0xffff_ffff) {
    const reason = `asks by its bits 0x${(wrong >>> 0).toString(16)} for what is not offered`;
    const known = [...SO_ANYWAY, ...HAD].join(', ');
    throw invalidValue(option, undefined, reason, `leave them out; these have a meaning: ${known}`);
  }
  if (PASSED_OVER.some(has)) {
    warnOnce(`${option} has SSL_OP_PRIORITIZE_CHACHA, which sealane passes over`);
  }
  const found = {};
  if (has('SSL_OP_NO_TLSv1_2')) found.min = NEWER;
  if (has('SSL_OP_NO_TLSv1_3')) found.max = OLDER;
  if (has('SSL_OP_NO_TICKET')) found.tickets = false;
  if (has('SSL_OP_CIPHER_SERVER_PREFERENCE')) found.honorCipherOrder = true;
  return found;
}

/**
 * The oldest and the newest version of a context, never below 1.2. Without an option, node's flags,
 * such as --tls-min-v1.3, and the program's defaults set them.
 *
 * @param {Record<string, any>} context the group `context` of `readOptions`
 */
function versionsOf({ ciphers, maxVersion, minVersion, secureOptions, secureProtocol }) {
  const { min, max } = secureProtocol ?? { min: minVersion, max: maxVersion };
  const only13 = ciphers?.only13 || secureOptions?.min === NEWER;
  return {
    min: only13 ? NEWER : (min ?? (tls.DEFAULT_MIN_VERSION === NEWER ? NEWER : OLDER)),
    max: secureOptions?.max ?? max ?? (tls.DEFAULT_MAX_VERSION === OLDER ? OLDER : NEWER),
  };
}

/**
 * The errors about options that contradict each other.
 *
 * @param {Record<string, any>} context the group `context` of `readOptions`
 */
function versionMistakes(context) {
  const { ciphers, maxVersion, minVersion, secureOptions, secureProtocol } = context;
  if (secureProtocol && (minVersion || maxVersion)) {
    const reason = 'is given beside options.minVersion or options.maxVersion';
    const code = 'ERR_TLS_PROTOCOL_VERSION_CONFLICT';
    return [new OptionError(code, 'options.secureProtocol', reason, 'leave it out')];
  }
  if (minVersion && maxVersion && minVersion > maxVersion) {
    const reason = `is above options.maxVersion ('${maxVersion}')`;
    return [invalidValue('options.minVersion', minVersion, reason)];
  }
  const { min, max } = versionsOf(context);
  if (ciphers?.only13 && max === OLDER) {
    const reason = "names only suites of TLS 1.3, while the newest version is 'TLSv1.2'";
    return [invalidValue('options.ciphers', undefined, reason)];
  }
  if (ciphers?.without13 && max === NEWER) {
    const reason = 'names no suite of TLS 1.3 that is offered, which leaves TLS 1.2 alone';
    const instead = "name one of these: TLS_AES_128_GCM_SHA256, or say maxVersion: 'TLSv1.2'";
    return [invalidValue('options.ciphers', undefined, reason, instead)];
  }
  if (secureOptions && min > max) {
    return [invalidValue('options.secureOptions', undefined, 'leaves no version of TLS')];
  }
  return [];
}

const OLDER = 'TLSv1.2';
const NEWER = 'TLSv1.3';

/** Methods of OpenSSL to the versions that node takes them for; none is the default. */
const METHODS = Object.freeze({
  __proto__: null,
  SSLv23_method: { max: OLDER },
  SSLv23_server_method: { max: OLDER },
  TLS_method: {},
  TLS_server_method: {},
  TLSv1_2_method: { min: OLDER, max: OLDER },
  TLSv1_2_server_method: { min: OLDER, max: OLDER },
});

/** Bits that ask for properties that always hold here. */
const SO_ANYWAY = Object.freeze([
  'SSL_OP_ALL',
  'SSL_OP_ALLOW_NO_DHE_KEX',
  'SSL_OP_CISCO_ANYCONNECT',
  'SSL_OP_COOKIE_EXCHANGE',
  'SSL_OP_LEGACY_SERVER_CONNECT',
  'SSL_OP_NO_COMPRESSION',
  'SSL_OP_NO_ENCRYPT_THEN_MAC',
  'SSL_OP_NO_QUERY_MTU',
  'SSL_OP_NO_RENEGOTIATION',
  'SSL_OP_NO_SESSION_RESUMPTION_ON_RENEGOTIATION',
  'SSL_OP_NO_SSLv2',
  'SSL_OP_NO_SSLv3',
  'SSL_OP_NO_TLSv1',
  'SSL_OP_NO_TLSv1_1',
]);

/** Bits that are obeyed. */
const HAD = Object.freeze([
  'SSL_OP_CIPHER_SERVER_PREFERENCE',
  'SSL_OP_NO_TICKET',
  'SSL_OP_NO_TLSv1_2',
  'SSL_OP_NO_TLSv1_3',
]);

/** A matter of taste, which is not offered. */
const PASSED_OVER = Object.freeze(['SSL_OP_PRIORITIZE_CHACHA']);

module.exports = { readProtocol, readSecureOptions, readVersion, versionMistakes, versionsOf };
