'use strict';

// Parameters that can be negotiated, by every name under which node's users know them. The lists of
// `ecdhCurve` and `sigalgs` are read into the names of the IANA registries.

const { getCurves } = require('node:crypto');
const { invalidValue } = require('./errors.js');
const { warnOnce } = require('./warnings.js');

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
 * Reads `ecdhCurve`.
 *
 * @param {string} list
 * @param {string} option
 */
function readGroups(list, option) {
  const isElsewhere = (name) => OTHER_GROUPS.test(name) || getCurves().includes(name);
  return readList(list, option, GROUPS, (row) => row.at(-1), isElsewhere);
}

/**
 * Reads `sigalgs`.
 *
 * @param {string} list
 * @param {string} option
 */
function readSchemes(list, option) {
  return readList(
    list,
    option,
    SCHEMES,
    (row) => row[0],
    (name) => OTHER_SCHEMES.test(name),
  );
}

/**
 * Names between colons, each once, in the order of the list. Other names that OpenSSL knows are
 * ignored. A name that is unknown there too is a mistake, as in node.
 */
function readList(list, option, rows, shown, isElsewhere) {
  const found = new Set();
  const absent = [];
  const unknown = [];
  for (const name of list.split(':').map((one) => one.trim())) {
    const row = rows.find((names) => names.some((one) => sameName(one, name)));
    if (row) {
      found.add(row[0]);
    } else if (isElsewhere(name)) {
      absent.push(name);
    } else if (name !== '') {
      unknown.push(name);
    }
  }
  if (unknown.length > 0 || found.size === 0) {
    const wrong = [...unknown, ...absent];
    const reason =
      wrong.length > 0 ? `names ${listed(wrong)}, which is not offered` : 'names nothing';
    const offered = rows.map(shown).join(':');
    throw invalidValue(option, list, reason, `name some of these, between colons: ${offered}`);
  }
  if (absent.length > 0) {
    warnOnce(`${option} names ${listed(absent)}, which sealane does not offer`);
  }
  return [...found];
}

/** Names as they may be shown: a key that got here by mistake must not get into a log. */
function listed(names) {
  const isName = (name) => /^[\w!+@=./-]{1,64}$/.test(name) && !name.includes('-----');
  const shown = names.slice(0, SHOWN_MAX).map((one) => (isName(one) ? `'${one}'` : 'no name'));
  const more = names.length - shown.length;
  return `${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

function sameName(one, other) {
  return one.toLowerCase() === other.toLowerCase();
}

const SHOWN_MAX = 12;
/** Groups of OpenSSL that are not in its list of curves. */
const OTHER_GROUPS = /^(P-(192|224|521)|X448|ffdhe\d+|.*MLKEM\d+|X25519Kyber768Draft00)$/i;
/** Schemes of OpenSSL, the weak ones among them. */
const OTHER_SCHEMES = new RegExp(
  '^((RSA|DSA|ECDSA|RSA-PSS|PSS)\\+SHA(1|224|256|384|512)|ed448|rsa_pss_pss_sha\\d+|' +
    'rsa_pkcs1_sha1|rsa_pkcs1_sha224|ecdsa_sha1|ecdsa_sha224|ecdsa_brainpool\\w+|mldsa\\d+)$',
  'i',
);

module.exports = { GROUPS, SCHEMES, SUITES, listed, readGroups, readSchemes, sameName };
