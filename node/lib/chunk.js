'use strict';

// Writes of a program, put where a lane reads them: strings are encoded in place.

const { copyBytes } = require('./ring.js');

/** A longer string is measured first; a shorter one is taken for the longest it can become. */
const GUESSED_CHARACTERS_MAX = 4096;

/** The most bytes of a UTF-16 unit in UTF-8. */
const UTF8_BYTES_PER_UNIT = 3;

/**
 * The most bytes that a chunk becomes. Infinity if it has to be encoded to know.
 * @param {string | Uint8Array} chunk
 * @param {string} encoding
 * @returns {number}
 */
function bytesMax(chunk, encoding) {
  if (typeof chunk !== 'string') return chunk.length;
  if (encoding === 'latin1' || encoding === 'binary') return chunk.length;
  if (encoding !== 'utf8' && encoding !== 'utf-8') return Infinity;
  if (chunk.length <= GUESSED_CHARACTERS_MAX) return chunk.length * UTF8_BYTES_PER_UNIT;
  return Buffer.byteLength(chunk);
}

/**
 * Writes a chunk, for the `bytesMax` of which there is room.
 * @param {Buffer} bytes
 * @param {number} at
 * @param {string | Uint8Array} chunk
 * @param {string} encoding
 * @returns {number} how many bytes it took
 */
function put(bytes, at, chunk, encoding) {
  if (typeof chunk !== 'string') {
    copyBytes(bytes, at, chunk);
    return chunk.length;
  }
  if (chunk.length === 0) return 0;
  if (encoding === 'latin1' || encoding === 'binary') {
    return bytes.latin1Write(chunk, at, chunk.length);
  }
  return bytes.utf8Write(chunk, at, bytes.length - at);
}

module.exports = { bytesMax, put };
