'use strict';

// The peer and the agreed parameters of a connection: the properties of node's tls.TLSSocket, the
// same for sockets on a ring and on a descriptor.

const { X509Certificate } = require('node:crypto');
const tls = require('node:tls');
const { Opened } = require('./open.js');

/** The property of a socket that holds its channel. */
const kChannel = Symbol('channel');

function opened(socket) {
  const channel = socket[kChannel];
  channel.identity ??= new Opened(channel.opened);
  return channel.identity;
}

const GETTERS = {
  // A program that trusts a client by its certificate reads that certificate: it must be there.
  authorized: (it, socket) => it.authorized && showsLeaf(socket),
  authorizationError: (it, socket) =>
    it.authorizationError ?? (it.authorized && !showsLeaf(socket) ? 'CERT_REJECTED' : null),
  servername: (it) => it.serverName,
  alpnProtocol: (it) => it.alpn,
  remoteAddress: (it) => it.remote.address,
  remoteFamily: (it) => it.remote.family,
  remotePort: (it) => it.remote.port,
  localAddress: (it) => it.local.address,
  localFamily: (it) => it.local.family,
  localPort: (it) => it.local.port,
};

const METHODS = {
  address() {
    return { ...opened(this).local };
  },

  getProtocol() {
    return opened(this).protocol;
  },

  getCipher() {
    return opened(this).cipher;
  },

  isSessionReused() {
    return opened(this).resumed;
  },

  /** As in node, only clients know it. */
  getEphemeralKeyInfo() {
    return null;
  },

  /** As in node, the session is the client's to keep. */
  getSession() {
    return undefined;
  },

  /** As in node, the ticket is the client's to keep. */
  getTLSTicket() {
    return undefined;
  },

  /** @param {boolean} [detailed] with the issuers, as far as the client sent them */
  getPeerCertificate(detailed) {
    const leaf = leafOf(this);
    if (leaf === undefined) return {};
    return detailed ? legacyChain([leaf, ...issuersOf(this)]) : legacy(leaf);
  },

  getPeerX509Certificate() {
    return leafOf(this);
  },

  getCertificate() {
    const certificate = this.getX509Certificate();
    return certificate === undefined ? {} : legacy(certificate);
  },

  getX509Certificate() {
    const der = this[kChannel].lane.certificate(opened(this).context);
    return der && new X509Certificate(der);
  },

  /** TLS 1.3 has no renegotiation, and the lanes refuse that of TLS 1.2: nothing is left to do. */
  disableRenegotiation() {},
};

/** Methods that cannot be offered, each with its reason and the alternative. */
const NOT_OFFERED = {
  connect: ['this socket is connected already', 'use tls.connect of node for clients'],
  enableTrace: [
    "OpenSSL's trace does not exist here",
    "listen for 'keylog' on the server and decrypt with a protocol analyser",
  ],
  exportKeyingMaterial: [
    'the secrets of a session do not leave its lane',
    'bind tokens to the connection by a client certificate',
  ],
  getFinished: ['Finished messages do not leave the lane', 'use client certificates'],
  getPeerFinished: ['Finished messages do not leave the lane', 'use client certificates'],
  getSharedSigalgs: ["the client's algorithms do not leave the lane", 'set options.sigalgs'],
  getTypeOfService: ['the descriptor stays with its lane', 'set it where packets are routed'],
  renegotiate: ['renegotiation does not exist in TLS 1.3', 'set requestCert on the server'],
  setKeyCert: ['the handshake is done', 'choose a context in SNICallback'],
  setMaxSendFragment: ['a lane chooses the size of its records', 'write smaller chunks'],
  setServername: ['only a client asks for a name', 'read servername'],
  setSession: ['only a client resumes a session', 'give servers equal ticketKeys'],
  setTypeOfService: ['the descriptor stays with its lane', 'set it where packets are routed'],
};

/**
 * Gives a class of sockets all of it.
 * @param {object} prototype
 */
function defineIdentity(prototype) {
  for (const [name, read] of Object.entries(GETTERS)) {
    const get = function () {
      return read(opened(this), this);
    };
    Object.defineProperty(prototype, name, { configurable: true, enumerable: true, get });
  }
  const methods = { ...METHODS };
  for (const [name, [reason, alternative]] of Object.entries(NOT_OFFERED)) {
    // A method that this release of node lacks must not exist here either.
    if (!(name in tls.TLSSocket.prototype)) continue;
    methods[name] = () => {
      const text = `TLSSocket.${name} is not offered: ${reason}; ${alternative}`;
      throw Object.assign(new Error(text), {
        code: 'ERR_SEALANE_NOT_OFFERED',
        reason,
        alternative,
      });
    };
  }
  for (const [name, value] of Object.entries(methods)) {
    Object.defineProperty(prototype, name, { configurable: true, writable: true, value });
  }
}

/**
 * Whether the client's own certificate can be read. Clients come again, and reading takes longer
 * than all other work here for a connection, so the result is kept for the last ones.
 */
function showsLeaf(socket) {
  const channel = socket[kChannel];
  if (channel.showsLeaf === undefined) {
    const bytes = opened(socket).leaf?.toString('latin1') ?? '';
    channel.showsLeaf = readableLeaves.get(bytes) ?? leafOf(socket) !== undefined;
    readableLeaves.delete(bytes);
    readableLeaves.set(bytes, channel.showsLeaf);
    if (readableLeaves.size > LEAVES_MAX) {
      readableLeaves.delete(readableLeaves.keys().next().value);
    }
  }
  return channel.showsLeaf;
}

/** By the bytes of a client's certificate, the one unused for longest first. */
const readableLeaves = new Map();
/** Each of 32 KiB at most, which is the limit of lanes. */
const LEAVES_MAX = 128;

/** The client's own certificate, read once. Undefined if there is none that can be read. */
function leafOf(socket) {
  const channel = socket[kChannel];
  if (channel.leaf === undefined) {
    const leaf = readable(opened(socket).leaf);
    channel.leaf = leaf !== undefined && legacyOf(leaf) !== undefined ? leaf : null;
  }
  return channel.leaf ?? undefined;
}

/** The certificates that the client sent behind it, up to the first that OpenSSL cannot read. */
function issuersOf(socket) {
  const issuers = [];
  for (const der of opened(socket).chain.slice(1)) {
    const issuer = readable(der);
    if (issuer === undefined || legacyOf(issuer) === undefined) break;
    issuers.push(issuer);
  }
  return issuers;
}

/**
 * The parsed certificate. A stranger chose these bytes, and OpenSSL throws if it cannot read them.
 */
function readable(der) {
  if (der === undefined) return undefined;
  try {
    const certificate = new X509Certificate(der);
    // It throws at a key that cannot be read, where toLegacyObject of Node 24 ends the process.
    return certificate.publicKey && certificate;
  } catch {
    return undefined;
  }
}

/** The same of a certificate with fields that OpenSSL cannot all read. */
function legacyOf(certificate) {
  try {
    return legacy(certificate);
  } catch {
    return undefined;
  }
}

/** Certificates in the form of getPeerCertificate, each linked to its issuer. */
function legacyChain(chain) {
  const objects = chain.map(legacy);
  for (let i = 0; i + 1 < objects.length; i++) objects[i].issuerCertificate = objects[i + 1];
  const last = chain.length - 1;
  // A self-issued one ends the chain, which is shown by a circle.
  if (chain[last].checkIssued(chain[last])) objects[last].issuerCertificate = objects[last];
  return objects[0];
}

/** Node's legacy form of a certificate: `infoAccess` is an object there, and a text in X509. */
function legacy(certificate) {
  const object = certificate.toLegacyObject();
  if (typeof object.infoAccess !== 'string') return object;
  const access = Object.create(null);
  for (const line of object.infoAccess.split('\n')) {
    const colon = line.indexOf(':');
    if (colon < 0) continue;
    const [key, text] = [line.slice(0, colon), line.slice(colon + 1)];
    access[key] ??= [];
    access[key].push(text.startsWith('"') ? JSON.parse(text) : text);
  }
  object.infoAccess = access;
  return object;
}

module.exports = { defineIdentity, kChannel };
