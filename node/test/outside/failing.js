'use strict';

/**
 * Tests that fail with Sealane's servers: the reason, and the output. The run compares this list
 * with the results, in both directions. Every reason is one that the package's README gives, or
 * lies in the test itself.
 */

/** @type {{ why: string, says: RegExp, files: string[] }[]} by folder and name, without `.js` */
const REFUSED = [
  {
    why: 'refused: ALPNCallback',
    says: /options\.ALPNCallback is not offered/,
    files: [
      'parallel/test-http2-alpn',
      'parallel/test-https-argument-of-creating',
      'parallel/test-tls-alpn-server-client',
      'parallel/test-tls-server-setkeycert',
    ],
  },
  {
    why: 'refused: ALPNCallback, pskCallback and events of sessions, which throw on purpose',
    says: /client pskCallback throwing/,
    files: ['parallel/test-tls-psk-alpn-callback-exception-handling'],
  },
  {
    why: 'refused: a name whose last label is a number',
    says: /alert illegal parameter/,
    files: ['parallel/test-https-agent-sni'],
  },
  {
    why: 'refused: certificateCompression',
    says: /options\.certificateCompression is not offered/,
    files: ['parallel/test-tls-certificate-compression'],
  },
  {
    why: 'refused: ciphers without forward secrecy, and those below the security level',
    says: /no cipher match in/,
    files: [
      'parallel/test-https-agent-session-eviction',
      'parallel/test-tls-client-getephemeralkeyinfo',
      'parallel/test-tls-connect-stream-writes',
      'parallel/test-tls-dhe',
      'parallel/test-tls-ecdh',
      'parallel/test-tls-ecdh-auto',
      'parallel/test-tls-ecdh-multiple',
      'parallel/test-tls-getprotocol',
      'parallel/test-tls-no-cert-required',
      'parallel/test-tls-session-cache',
      'parallel/test-tls-set-ciphers',
    ],
  },
  {
    why: 'refused: ciphers without forward secrecy, and those below the security level',
    // Its client, made by hand, offers AES128-SHA alone and reads no alert.
    says: /at TestTLSSocket\.createFinished/,
    files: ['parallel/test-tls-write-error'],
  },
  {
    why: 'refused: ciphers without forward secrecy, and those below the security level',
    // Whichever of its connections ends first.
    says: /alert handshake failure|expect="AES256-SHA256"/,
    files: ['parallel/test-tls-getcipher', 'parallel/test-tls-honorcipherorder'],
  },
  {
    why: "refused: a client's own certificate of version 1",
    says: /rejected, but should NOT have been/,
    files: ['parallel/test-tls-server-verify'],
  },
  {
    why: "refused: a client's own certificate of version 1",
    // Those of agent3 and agent10.
    says: /alert certificate unknown/,
    files: [
      'parallel/test-https-agent-pfx-object-array-reuse',
      'parallel/test-tls-client-cert-resumption',
    ],
  },
  {
    why: "refused: a client's own certificate of version 1",
    // That of agent2, or the first to fail is one with a handshake that SNICallback ends, by an
    // alert.
    says: /certificate unknown|alert bad certificate|tlsv1 unrecognized name|CERT_REJECTED/,
    files: ['parallel/test-tls-sni-option'],
  },
  {
    why: 'refused: finite-field Diffie-Hellman',
    says: /options\.dhparam is not offered/,
    files: ['parallel/test-tls-client-mindhsize'],
  },
  {
    why: 'refused: getFinished',
    says: /getFinished is not offered/,
    files: ['parallel/test-tls-finished'],
  },
  {
    why: 'refused: getSharedSigalgs',
    says: /getSharedSigalgs is not offered|ERR_SSL_NO_SHARED_SIGNATURE_ALGORITHMS/,
    files: ['parallel/test-tls-set-sigalgs'],
  },
  {
    why: 'refused: keys of less than 2048 bits',
    says: /an RSA key of 512 bits; 2048 to 8192 are served/,
    files: ['parallel/test-tls-reduced-SECLEVEL-in-cipher'],
  },
  {
    why: "refused: node's flag --tls-keylog",
    says: /actual: 1,\s+expected: 2,/,
    files: ['parallel/test-tls-enable-keylog-cli'],
  },
  {
    why: 'refused: pfx',
    says: /options\.pfx is not offered/,
    files: [
      'parallel/test-https-pfx',
      'parallel/test-tls-multi-key',
      'parallel/test-tls-multi-pfx',
      'parallel/test-tls-pfx-authorizationerror',
    ],
  },
  {
    why: 'refused: pre-shared keys',
    says: /rustls has no external pre-shared keys/,
    files: [
      'parallel/test-tls-psk-circuit',
      'parallel/test-tls-psk-errors',
      'parallel/test-tls-psk-server',
    ],
  },
  {
    why: 'refused: renegotiation',
    says: /no renegotiation/,
    files: [
      'parallel/test-https-client-renegotiation-limit',
      'parallel/test-tls-client-renegotiation-limit',
      'parallel/test-tls-disable-renegotiation',
    ],
  },
  {
    why: 'refused: session events',
    says: /event 'newSession' is not offered/,
    files: ['parallel/test-tls-async-cb-after-socket-end'],
  },
  {
    why: 'refused: setMaxSendFragment',
    says: /ERR_SEALANE_NOT_OFFERED/,
    files: ['parallel/test-tls-max-send-fragment'],
  },
  {
    why: 'refused: stapled OCSP answers',
    says: /event 'OCSPRequest' is not offered/,
    files: ['parallel/test-tls-ocsp-callback'],
  },
  {
    why: 'refused: TLS below 1.2',
    says: /TLS below 1\.2 is not offered/,
    files: ['parallel/test-https-agent-additional-options'],
  },
  {
    why: 'refused: TLS below 1.2',
    says: /expected: 'ERR_TLS_INVALID_PROTOCOL_METHOD'/,
    files: [
      'parallel/test-tls-cli-max-version-1.2',
      'parallel/test-tls-cli-max-version-1.3',
      'parallel/test-tls-cli-min-version-1.0',
      'parallel/test-tls-cli-min-version-1.1',
      'parallel/test-tls-cli-min-version-1.2',
      'parallel/test-tls-cli-min-version-1.3',
      'parallel/test-tls-min-max-version',
    ],
  },
  {
    why: "refused: OpenSSL's trace",
    // There is no server to connect to.
    says: /reading 'enableTrace'/,
    files: ['parallel/test-tls-enable-trace'],
  },
];

/** Differences in the README. */
const OTHERWISE = [
  {
    why: 'differs: a client whose handshake SNICallback ends gets an alert',
    says: /unrecognized name|ERR_SSL_TLSV1_UNRECOGNIZED_NAME|no certificate for the name/,
    files: ['parallel/test-tls-empty-sni-context', 'parallel/test-tls-sni-servername'],
  },
  {
    // Of rustls: each use of a ticket costs an observer the link between two connections.
    why: 'differs: a session that resumes gets a fresh ticket',
    says: /test-https-agent-session-reuse\.js:120|assert\(!lastSession\)/,
    files: ['parallel/test-https-agent-session-reuse', 'parallel/test-tls-ticket-cluster'],
  },
  {
    why: 'differs: close ends with the lanes, and not within a tick',
    says: /server should been closed immediately/,
    files: ['parallel/test-http2-allow-http1'],
  },
  {
    // A kilobyte less in each handshake, and RFC 8446 (4.4.2) lets a server leave it out.
    why: 'differs: ca completes a chain, but for the root, which clients have',
    says: /assert\.ok\(peerCert\.issuerCertificate\)/,
    files: ['parallel/test-tls-peer-certificate'],
  },
  {
    // All mistakes of a call are in one error: these tests look for the first alone.
    why: 'differs: a certificate without its key is refused at once',
    says: /options\.cert comes without options\.key/,
    files: ['parallel/test-https-options-boolean-check', 'parallel/test-tls-options-boolean-check'],
  },
  {
    // RFC 8446 section 5: unexpected_message; OpenSSL sends protocol_version. The server's socket
    // gets EPROTO.
    why: 'differs: the alert for a record that is none',
    says: /\+ 'ERR_SSL_SSLV3_ALERT_UNEXPECTED_MESSAGE'|ERR_SSL_\(WRONG_VERSION_NUMBER/,
    files: ['parallel/test-tls-alert-handling'],
  },
  {
    why: 'differs: the alert for a client without a certificate',
    // Under TLS 1.2, where OpenSSL has handshake_failure. Since Node 22 in other letters.
    says: /- 'ERR_SSL_(SSLV3|SSL\/TLS)_ALERT_HANDSHAKE_FAILURE'/,
    files: ['parallel/test-tls-client-auth'],
  },
];

/** Tests that no other implementation of these servers could pass. */
const OF_THE_TEST = [
  {
    why: "test: reaches into node's own context, server._sharedCreds",
    says: /reading 'context'/,
    files: ['parallel/test-https-resume-after-renew'],
  },
  {
    why: "test: replaces node's binding before tls is loaded, which the shim has done",
    says: /- {3}code: .ERR_CRYPTO_CUSTOM_ENGINE_NOT_SUPPORTED/,
    files: [
      'parallel/test-tls-clientcertengine-unsupported',
      'parallel/test-tls-keyengine-unsupported',
    ],
  },
];

const FAILING = Object.fromEntries(
  [...REFUSED, ...OTHERWISE, ...OF_THE_TEST].flatMap(({ why, says, files }) =>
    files.map((file) => [`${file}.js`, { says, why }]),
  ),
);

/** The same for the tests of other packages, by name. */
const FAILING_SUITES = {
  'WebSocket SSL connects to secure websocket server with client side certificate': {
    why: "refused: a client's own certificate of version 1",
    says: /alert certificate unknown/,
  },
};

module.exports = { FAILING, FAILING_SUITES };
