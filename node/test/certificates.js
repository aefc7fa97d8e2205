'use strict';

/**
 * Certificates for tests, made as they run: authorities, leaves, and revocation lists.
 *
 * Written as DER by hand, because node's crypto makes keys and signatures but no certificates. A
 * process of `openssl` per certificate would take most of the tests' time.
 */

const crypto = require('node:crypto');
const { isIP } = require('node:net');

const DAY_MS = 86_400_000;

/**
 * @typedef {object} Made
 * @property {string} cert The certificate in PEM.
 * @property {string} key Its private key in PEM (PKCS#8).
 * @property {crypto.KeyObject} privateKey
 * @property {string} name The common name.
 * @property {Buffer} der
 * @property {number} serial
 */

/**
 * Makes a certificate, signed by itself if there is no issuer.
 * @param {{ name: string, names?: string[], issuer?: Made, authority?: boolean,
 *   kind?: 'p256'|'p384'|'ed25519'|'rsa', from?: Date, to?: Date, purposes?: string[],
 *   organization?: string, signsCertificates?: boolean, pathLength?: number }} about
 * @returns {Made}
 */
function certificate(about) {
  const { privateKey, publicKey } = keyPair(about.kind ?? 'p256');
  const issuer = about.issuer ?? { name: about.name, privateKey };
  const serial = crypto.randomInt(1, 2 ** 47);
  const body = sequence(
    tagged(0xa0, integer(2)),
    integer(serial),
    algorithm(issuer.privateKey),
    distinguishedName(issuer.name, issuer.organization),
    sequence(
      time(about.from ?? new Date(Date.now() - DAY_MS)),
      time(about.to ?? new Date(Date.now() + 90 * DAY_MS)),
    ),
    distinguishedName(about.name, about.organization),
    publicKey.export({ type: 'spki', format: 'der' }),
    tagged(0xa3, sequence(...extensions(about))),
  );
  const der = signed(body, issuer.privateKey);
  const made = {
    cert: pem('CERTIFICATE', der),
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
  };
  // Not enumerable: a server takes `...made` as options.
  const more = { privateKey, name: about.name, organization: about.organization, der, serial };
  for (const [name, value] of Object.entries(more)) Object.defineProperty(made, name, { value });
  return made;
}

/**
 * An authority that signs others.
 * @param {string} name
 * @param {Partial<Parameters<typeof certificate>[0]>} [more]
 */
function authority(name, more = {}) {
  return certificate({ name, authority: true, ...more });
}

/**
 * A server's or client's certificate.
 * @param {Made} issuer
 * @param {string|string[]} names The first is the common name.
 * @param {Partial<Parameters<typeof certificate>[0]>} [more]
 */
function leaf(issuer, names, more = {}) {
  const list = [names].flat();
  return certificate({ name: list[0], names: list, issuer, ...more });
}

/**
 * A list of certificates that `issuer` has revoked, in PEM.
 * @param {Made} issuer
 * @param {Made[]} revoked
 */
function revocations(issuer, revoked) {
  const entries = revoked.map(({ serial }) => sequence(integer(serial), time(new Date())));
  const body = sequence(
    integer(1),
    algorithm(issuer.privateKey),
    distinguishedName(issuer.name, issuer.organization),
    time(new Date(Date.now() - DAY_MS)),
    time(new Date(Date.now() + 30 * DAY_MS)),
    ...(entries.length > 0 ? [sequence(...entries)] : []),
    tagged(0xa0, sequence(extension('2.5.29.20', integer(1)))),
  );
  return pem('X509 CRL', signed(body, issuer.privateKey));
}

function keyPair(kind) {
  switch (kind) {
    case 'ed25519':
      return crypto.generateKeyPairSync('ed25519');
    case 'p256':
      return crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
    case 'p384':
      return crypto.generateKeyPairSync('ec', { namedCurve: 'P-384' });
    case 'rsa':
      return crypto.generateKeyPairSync('rsa', { modulusLength: 2048 });
    default:
      throw new Error(`no such kind of key: ${kind}`);
  }
}

function extensions(about) {
  const found = [];
  if (about.authority) {
    const constraints = [tagged(1, Buffer.from([0xff]))];
    if (about.pathLength !== undefined) constraints.push(integer(about.pathLength));
    found.push(extension('2.5.29.19', sequence(...constraints), true));
    // keyCertSign and cRLSign, or digitalSignature alone.
    const usage = about.signsCertificates === false ? [7, 0x80] : [1, 0x06];
    found.push(extension('2.5.29.15', tagged(3, Buffer.from(usage)), true));
    return found;
  }
  const purposes = about.purposes ?? ['serverAuth', 'clientAuth'];
  const numbers = { serverAuth: '1.3.6.1.5.5.7.3.1', clientAuth: '1.3.6.1.5.5.7.3.2' };
  found.push(extension('2.5.29.15', tagged(3, Buffer.from([7, 0x80])), true));
  found.push(extension('2.5.29.37', sequence(...purposes.map((p) => identifier(numbers[p])))));
  if (about.names) {
    const names = about.names.map((name) =>
      isIP(name) === 0
        ? tagged(0x82, Buffer.from(name, 'latin1'))
        : tagged(0x87, addressBytes(name)),
    );
    found.push(extension('2.5.29.17', sequence(...names)));
  }
  return found;
}

function addressBytes(address) {
  if (isIP(address) === 4) return Buffer.from(address.split('.').map(Number));
  const [head, tail = ''] = address.split('::');
  const groups = (text) =>
    text
      .split(':')
      .filter(Boolean)
      .map((group) => parseInt(group, 16));
  const [left, right] = [groups(head), groups(tail)];
  const all = [...left, ...Array(8 - left.length - right.length).fill(0), ...right];
  return Buffer.from(all.flatMap((group) => [group >> 8, group & 0xff]));
}

function extension(number, value, critical = false) {
  const parts = [identifier(number)];
  if (critical) parts.push(tagged(1, Buffer.from([0xff])));
  return sequence(...parts, tagged(4, value));
}

function signed(body, privateKey) {
  const hash = privateKey.asymmetricKeyType === 'ed25519' ? null : 'sha256';
  const signature = crypto.sign(hash, body, privateKey);
  return sequence(body, algorithm(privateKey), tagged(3, Buffer.concat([zero, signature])));
}

function algorithm(privateKey) {
  switch (privateKey.asymmetricKeyType) {
    case 'ec':
      return sequence(identifier('1.2.840.10045.4.3.2'));
    case 'ed25519':
      return sequence(identifier('1.3.101.112'));
    default:
      return sequence(identifier('1.2.840.113549.1.1.11'), tagged(5, Buffer.alloc(0)));
  }
}

function distinguishedName(name, organization) {
  const part = (number, text) =>
    tagged(0x31, sequence(identifier(number), tagged(12, Buffer.from(text))));
  const parts = organization ? [part('2.5.4.10', organization)] : [];
  return sequence(...parts, part('2.5.4.3', name));
}

function time(date) {
  const digits = date.toISOString().replace(/[-:T]|\.\d+/g, '');
  return tagged(23, Buffer.from(digits.slice(2), 'latin1'));
}

function identifier(text) {
  const [first, second, ...rest] = text.split('.').map(Number);
  const bytes = [first * 40 + second];
  for (const number of rest) {
    const groups = [number & 0x7f];
    for (let left = number >>> 7; left > 0; left >>>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return tagged(6, Buffer.from(bytes));
}

function integer(number) {
  const bytes = [];
  for (let left = number; left > 0 || bytes.length === 0; left = Math.floor(left / 256)) {
    bytes.unshift(left % 256);
  }
  if (bytes[0] > 0x7f) bytes.unshift(0);
  return tagged(2, Buffer.from(bytes));
}

function sequence(...parts) {
  return tagged(0x30, Buffer.concat(parts));
}

function tagged(tag, content) {
  const { length } = content;
  let head = [tag, length];
  if (length > 0xff) head = [tag, 0x82, length >> 8, length & 0xff];
  else if (length > 0x7f) head = [tag, 0x81, length];
  return Buffer.concat([Buffer.from(head), content]);
}

function pem(label, der) {
  const lines = der
    .toString('base64')
    .match(/.{1,64}/g)
    .join('\n');
  return `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`;
}

const zero = Buffer.from([0]);

module.exports = { authority, certificate, leaf, revocations, DAY_MS };
