'use strict';

// How a connection's end looks to its socket: as an error with node's codes, or as none.

const { constants } = require('node:os');

/**
 * An error as node makes them of failed system calls.
 * @param {string} syscall
 * @param {string} code such as 'EPIPE'
 */
function systemError(syscall, code) {
  const error = new Error(`${syscall} ${code}`);
  return Object.assign(error, { errno: -constants.errno[code], code, syscall });
}

/**
 * The error for a socket after its lane has closed the connection.
 * @param {string | undefined} label of the cause
 * @returns {Error | null} null: its bytes are read to the end, without an error
 */
function closingError(label) {
  if (QUIET.has(label)) return null;
  const make = ERRORS[label];
  if (make !== undefined) return make();
  return coded('ECONNRESET', `the connection was closed: ${label ?? 'unknown cause'}`);
}

/** Ends that are no error in node's eyes; a stream that was cut short is one of them. */
const QUIET = new Set(['clean', 'client_truncated', 'service_closed', 'service_reset']);

const ERRORS = Object.freeze({
  __proto__: null,
  client_reset: () => systemError('read', 'ECONNRESET'),
  idle: () => systemError('read', 'ETIMEDOUT'),
  internal: () =>
    coded('ERR_SEALANE_INTERNAL', 'a fault of sealane ended this connection, and only this one'),
  lane_stopped: () => coded('ECONNABORTED', 'the server was stopped'),
  protocol_error: () => coded('EPROTO', 'the client broke the TLS protocol'),
});

function coded(code, message) {
  return Object.assign(new Error(message), { code });
}

module.exports = { closingError, systemError };
