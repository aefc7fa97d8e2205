'use strict';

// What can be negotiated, by every name under which node's users know it: the lists of `ciphers`,
// `ecdhCurve` and `sigalgs`, read into the names of the IANA registries.

const { invalidValue } = require('./errors.js');

/** Suites in the order of preference that node has by default, with OpenSSL's names. */
const SUITES = Object.freeze([
  ['TLS_AES_256_GCM_SHA384', 'TLS_AES_256_GCM_SHA384'],
  ['TLS_CHACHA20_POLY1305_SHA256', 'TLS_CHACHA20_POLY1305_SHA256'],
  ['TLS_AES_128_GCM_SHA256', 'TLS_AES_128_GCM_SHA256'],
  ['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256', 'ECDHE-RSA-AES128-GCM-SHA256'],
  ['TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256', 'ECDHE-ECDSA-AES128-GCM-SHA256'],
  ['TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384', 'ECDHE-RSA-AES256-GCM-SHA384'],
  ['TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384', 'ECDHE-ECDSA-AES256-GCM-SHA384'],
  ['TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256', 'ECDHE-ECDSA-CHACHA20-POLY1305'],
  ['TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256', 'ECDHE-RSA-CHACHA20-POLY1305'],
]);

const GROUPS = Object.freeze([
  ['X25519MLKEM768'],
  ['x25519', 'X25519'],
  ['secp256r1', 'prime256v1', 'P-256'],
  ['secp384r1', 'P-384'],
]);

const SCHEMES = Object.freeze([
  ['ecdsa_secp256r1_sha256', 'ECDSA+SHA256'],
  ['ecdsa_secp384r1_sha384', 'ECDSA+SHA384'],
  ['ecdsa_secp521r1_sha512', 'ECDSA+SHA512'],
  ['ed25519'],
  ['rsa_pss_rsae_sha256', 'RSA-PSS+SHA256'],
  ['rsa_pss_rsae_sha384', 'RSA-PSS+SHA384'],
  ['rsa_pss_rsae_sha512', 'RSA-PSS+SHA512'],
  ['rsa_pkcs1_sha256', 'RSA+SHA256'],
  ['rsa_pkcs1_sha384', 'RSA+SHA384'],
  ['rsa_pkcs1_sha512', 'RSA+SHA512'],
]);

/**
 * Reads `ciphers`. As in node, a list that names no suite of TLS 1.3 leaves those as they are, and
 * one that names no other means TLS 1.3 alone.
 *
 * @param {string} list
 * @param {string} option
 * @returns {{ suites: string[], only13: boolean }}
 */
function readSuites(list, option) {
  const named = readList(list, option, SUITES, (row) => row[1]);
  const of13 = named.filter(is13);
  if (of13.length > 0) {
    return { suites: named, only13: of13.length === named.length };
  }
  const all13 = SUITES.map((row) => row[0]).filter(is13);
  return { suites: [...all13, ...named], only13: false };
}

/** @param {string} list @param {string} option */
function readGroups(list, option) {
  return readList(list, option, GROUPS, (row) => row.at(-1));
}

/** @param {string} list @param {string} option */
function readSchemes(list, option) {
  return readList(list, option, SCHEMES, (row) => row[0]);
}

/** Names between colons, each once, in the order of the list. */
function readList(list, option, rows, shown) {
  const found = new Set();
  const unknown = [];
  for (const name of list.split(':').map((one) => one.trim())) {
    const row = rows.find((names) => names.some((one) => equal(one, name)));
    if (row) {
      found.add(row[0]);
    } else if (name !== '') {
      unknown.push(name);
    }
  }
  if (unknown.length > 0 || found.size === 0) {
    const reason = unknown.length > 0 ? `names ${unknown.map(told).join(', ')}` : 'names nothing';
    const offered = rows.map(shown).join(':');
    throw invalidValue(option, list, reason, `name some of these, between colons: ${offered}`);
  }
  return [...found];
}

function told(name) {
  // A key that got here by mistake must not get into a log.
  if (!/^[\w!+@=.-]{1,64}$/.test(name) || name.includes('-----')) {
    return 'what is no name at all';
  }
  if (/^[!+-]|^(ALL|HIGH|MEDIUM|LOW|DEFAULT|COMPLEMENTOFDEFAULT|k[A-Z]+|a[A-Z]+)$/.test(name)) {
    return `'${name}', which is a filter over OpenSSL's own list`;
  }
  if (name.startsWith('@')) {
    return `'${name}', which is an order to OpenSSL`;
  }
  return `'${name}', which is not offered`;
}

function equal(one, other) {
  return one.toLowerCase() === other.toLowerCase();
}

function is13(suite) {
  return !suite.includes('_WITH_');
}

module.exports = { GROUPS, SCHEMES, SUITES, readGroups, readSchemes, readSuites };
