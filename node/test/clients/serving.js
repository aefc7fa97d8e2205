'use strict';

/** The peers of the client programs: a server of HTTP/1, and one that speaks HTTP/2 as well. */

const crypto = require('node:crypto');
const http2 = require('node:http2');

const { attach, createServer, isSealane } = require('../implementation');
const { own, start } = require('../site');

const SIZE = 3_000_000;
/** The answer to GET /large. */
const large = crypto.randomBytes(SIZE);

const sha256 = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');

function answer(incoming, outgoing) {
  if (incoming.url === '/large') {
    outgoing.end(large);
  } else if (incoming.url === '/upload') {
    const hash = crypto.createHash('sha256');
    incoming.on('data', (chunk) => hash.update(chunk));
    incoming.on('end', () => outgoing.end(hash.digest('hex')));
  } else {
    outgoing.setHeader('Content-Type', 'text/html');
    outgoing.end(`version=${incoming.httpVersion}`);
  }
}

/** A server of HTTP/1. */
function http1Site(t, options = {}) {
  return start(t, createServer({ ...own, ...options }, answer));
}

/** A server of HTTP/2, with HTTP/1 for clients without it. */
function http2Site(t, options = {}) {
  const given = { ...own, ...options };
  const server = isSealane
    ? attach(http2.createSecureServer({ allowHTTP1: true }, answer), given)
    : http2.createSecureServer({ ...given, allowHTTP1: true }, answer);
  return start(t, server);
}

module.exports = { answer, http1Site, http2Site, large, sha256 };
