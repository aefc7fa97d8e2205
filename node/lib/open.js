'use strict';

// A lane's messages about a connection when its handshake is done, and about a handshake that
// failed.

const { Opening } = require('./message.js');

/** Bytes of OPEN's payload in front of names and certificates. */
const FIXED_BYTES = 56;

/** Bytes of an address, of either family. */
const ADDRESS_BYTES = 16;

/** Bytes of FAILED's payload in front of its two texts. */
const FAILED_FIXED_BYTES = 32;

/** By IANA's numbers: IANA's name, OpenSSL's name. */
const SUITES = new Map([
  [0x1301, ['TLS_AES_128_GCM_SHA256', 'TLS_AES_128_GCM_SHA256']],
  [0x1302, ['TLS_AES_256_GCM_SHA384', 'TLS_AES_256_GCM_SHA384']],
  [0x1303, ['TLS_CHACHA20_POLY1305_SHA256', 'TLS_CHACHA20_POLY1305_SHA256']],
  [0xc02b, ['TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256', 'ECDHE-ECDSA-AES128-GCM-SHA256']],
  [0xc02c, ['TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384', 'ECDHE-ECDSA-AES256-GCM-SHA384']],
  [0xc02f, ['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256', 'ECDHE-RSA-AES128-GCM-SHA256']],
  [0xc030, ['TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384', 'ECDHE-RSA-AES256-GCM-SHA384']],
  [0xcca8, ['TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256', 'ECDHE-RSA-CHACHA20-POLY1305']],
  [0xcca9, ['TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256', 'ECDHE-ECDSA-CHACHA20-POLY1305']],
]);

const VERSIONS = new Map([
  [0x0303, 'TLSv1.2'],
  [0x0304, 'TLSv1.3'],
]);

const FAMILIES = new Map([
  [4, 'IPv4'],
  [6, 'IPv6'],
]);

/** OPEN's payload, kept as it came and read when somebody asks. */
class Opened {
  #text;
  #remote;
  #local;

  /** @param {string} text the payload, a character per byte */
  constructor(text) {
    this.#text = text;
  }

  /** @returns {string | null} 'TLSv1.2' or 'TLSv1.3' */
  get protocol() {
    return VERSIONS.get(this.#short(0)) ?? null;
  }

  /** @returns {{ name: string, standardName: string, version: string | null } | undefined} */
  get cipher() {
    const names = SUITES.get(this.#short(2));
    return names && { name: names[1], standardName: names[0], version: this.protocol };
  }

  /** @returns {boolean} */
  get resumed() {
    return this.#has(Opening.RESUMED);
  }

  /** @returns {boolean} whether the client showed a certificate that is believed */
  get authorized() {
    return this.#has(Opening.VERIFIED);
  }

  /** @returns {string | null} the fault of the client's certificate, by OpenSSL's name */
  get authorizationError() {
    const start = FIXED_BYTES + this.#byte(7) + this.#byte(14);
    return this.#text.slice(start, start + this.#byte(15)) || null;
  }

  /** @returns {string | false} */
  get alpn() {
    return this.#text.slice(FIXED_BYTES, FIXED_BYTES + this.#byte(7)) || false;
  }

  /** @returns {string | false} */
  get serverName() {
    const start = FIXED_BYTES + this.#byte(7);
    return this.#text.slice(start, start + this.#byte(14)) || false;
  }

  /** @returns {number} of the context with the certificate that was shown */
  get context() {
    return (this.#short(20) | (this.#short(22) << 16)) >>> 0;
  }

  /** @returns {{ address?: string, family?: string, port?: number }} */
  get remote() {
    this.#remote ??= this.#address(24, this.#byte(12), this.#short(8));
    return this.#remote;
  }

  /** @returns {{ address?: string, family?: string, port?: number }} */
  get local() {
    this.#local ??= this.#address(40, this.#byte(13), this.#short(10));
    return this.#local;
  }

  /** @returns {Buffer | undefined} the client's own certificate, as DER */
  get leaf() {
    return this.#certificates(1)[0];
  }

  /** @returns {Buffer[]} the client's certificates, its own first, as DER */
  get chain() {
    return this.#certificates(Infinity);
  }

  /** The whole certificates in the payload. */
  #certificates(most) {
    const bytes = Buffer.from(this.#text, 'latin1');
    const chain = [];
    let at = FIXED_BYTES + this.#byte(7) + this.#byte(14) + this.#byte(15);
    while (chain.length < most && at + 4 <= bytes.length) {
      const end = at + 4 + bytes.readUInt32LE(at);
      if (end > bytes.length) break;
      chain.push(bytes.subarray(at + 4, end));
      at = end;
    }
    return chain;
  }

  #byte(at) {
    return this.#text.charCodeAt(at);
  }

  #short(at) {
    return this.#text.charCodeAt(at) | (this.#text.charCodeAt(at + 1) << 8);
  }

  #has(flag) {
    return (this.#byte(6) & flag) !== 0;
  }

  #address(at, family, port) {
    return address(Buffer.from(this.#text.slice(at, at + 16), 'latin1'), family, port);
  }
}

/**
 * FAILED's payload.
 * @param {Buffer} bytes
 */
function failedOf(bytes) {
  if (bytes.length < FAILED_FIXED_BYTES) return { cause: -1, label: '', message: '' };
  const remote = address(bytes.subarray(16, 32), bytes.readUInt32LE(4), bytes.readUInt32LE(8));
  const message = FAILED_FIXED_BYTES + Math.min(bytes.readUInt32LE(12), bytes.length);
  return {
    authorizationError: bytes.toString('latin1', FAILED_FIXED_BYTES, message) || undefined,
    cause: bytes.readUInt32LE(0),
    label: '',
    remoteAddress: remote.address,
    remoteFamily: remote.family,
    remotePort: remote.port,
    message: bytes.toString('utf8', message),
  };
}

/** The address in node's form. Empty for a peer that has none. */
function address(bytes, number, port) {
  const family = FAMILIES.get(number);
  if (family === undefined || bytes.length < ADDRESS_BYTES) return {};
  return { address: number === 4 ? bytes.subarray(0, 4).join('.') : ipv6(bytes), family, port };
}

/** In the form of RFC 5952: the longest run of zeros is left out. */
function ipv6(bytes) {
  if (
    bytes.readUInt32BE(0) === 0 &&
    bytes.readUInt32BE(4) === 0 &&
    bytes.readUInt32BE(8) === 0xffff
  ) {
    return `::ffff:${bytes.subarray(12).join('.')}`;
  }
  const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(2 * index));
  let [from, length] = [0, 1];
  for (let start = 0; start < 8; start++) {
    let end = start;
    while (end < 8 && groups[end] === 0) end += 1;
    if (end - start > length) [from, length] = [start, end - start];
  }
  const hex = groups.map((group) => group.toString(16));
  if (length === 1) return hex.join(':');
  return `${hex.slice(0, from).join(':')}::${hex.slice(from + length).join(':')}`;
}

module.exports = { Opened, failedOf };
