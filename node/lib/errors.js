'use strict';

// Errors in the shapes that programs written for node's own modules look at: `code`, `syscall`,
// `address`, `port`. Each has the mistake and the remedy.

const { inspect, getSystemErrorMap } = require('node:util');

/** A value that node would refuse, or that this package does not offer. */
class OptionError extends TypeError {
  /**
   * @param {string} code ERR_INVALID_ARG_VALUE, ERR_INVALID_ARG_TYPE or ERR_OUT_OF_RANGE
   * @param {string} option full name, such as `options.ciphers`
   * @param {string} reason a sentence without its full stop
   * @param {string} [alternative] the remedy, in the same form
   * @param {string} [text] option and reason in one sentence
   */
  constructor(code, option, reason, alternative, text = `${option} ${reason}`) {
    super(`${text}${alternative ? `. ${capital(alternative)}` : ''}`);
    Object.defineProperty(this, 'name', { value: 'TypeError' });
    this.code = code;
    this.option = option;
    this.reason = reason;
    this.alternative = alternative;
  }
}

/** Several mistakes of one call, in one error. */
class OptionErrors extends TypeError {
  /** @param {OptionError[]} errors */
  constructor(errors) {
    super(
      `${errors.length} options are wrong:\n  ${errors.map((one) => one.message).join('\n  ')}`,
    );
    Object.defineProperty(this, 'name', { value: 'TypeError' });
    this.code = 'ERR_INVALID_ARG_VALUE';
    this.errors = errors;
  }
}

/**
 * Throws the collected errors: nothing, one error as it is, or all of them as one.
 *
 * @param {OptionError[]} errors
 */
function throwMistakes(errors) {
  if (errors.length === 1) {
    throw errors[0];
  }
  if (errors.length > 1) {
    throw new OptionErrors(errors);
  }
}

/**
 * @param {string} option
 * @param {unknown} value
 * @param {string} reason
 * @param {string} [alternative]
 */
function invalidValue(option, value, reason, alternative) {
  const error = new OptionError('ERR_INVALID_ARG_VALUE', option, reason, alternative);
  if (value !== undefined) {
    error.message += `. Received ${received(value)}`;
  }
  return error;
}

/**
 * In node's words.
 *
 * @param {string} option
 * @param {string} expected such as `of type string` or `an instance of Buffer`
 * @param {unknown} value
 */
function invalidType(option, expected, value) {
  const reason = `must be ${expected}. Received ${receivedType(value)}`;
  const kind = option.includes('.') ? 'property' : 'argument';
  const text = `The "${option}" ${kind} ${reason}`;
  return new OptionError('ERR_INVALID_ARG_TYPE', option, reason, undefined, text);
}

/**
 * In node's words.
 *
 * @param {string} option
 * @param {string} range such as `>= 1 && <= 1024`
 * @param {unknown} value
 */
function outOfRange(option, range, value) {
  const reason = `must be ${range}. Received ${received(value)}`;
  const text = `The value of "${option}" is out of range. It ${reason}`;
  return new OptionError('ERR_OUT_OF_RANGE', option, reason, undefined, text);
}

/**
 * An error with a code, for faults other than options.
 *
 * @param {string} code
 * @param {string} message
 * @param {object} [fields]
 */
function coded(code, message, fields) {
  return Object.assign(new Error(message), { code }, fields);
}

/**
 * The error of a `listen` that the system refused, in node's form.
 *
 * @param {Error & { code?: string, errno?: number, syscall?: string }} refused
 * @param {string | undefined} address host or path
 * @param {number | undefined} port
 */
function listenError(refused, address, port) {
  const errno = typeof refused.errno === 'number' ? -Math.abs(refused.errno) : undefined;
  const known = getSystemErrorMap().get(errno);
  if (known === undefined) {
    // It is no error of the system, and has its own text.
    return refused;
  }
  const [code, text] = known;
  const place = address === undefined ? '' : ` ${address}${port ? `:${port}` : ''}`;
  const syscall = refused.syscall ?? 'listen';
  const error = coded(code, `${syscall} ${code}: ${text}${place}`, { errno, syscall });
  if (address !== undefined) {
    error.address = address;
  }
  if (port) {
    error.port = port;
  }
  return error;
}

/**
 * The error of 'tlsClientError' for a handshake that failed, with node's code where it has one.
 *
 * @param {{ authorizationError?: string, label: string, message: string, remoteAddress?: string,
 * remotePort?: number }} failed
 */
function handshakeError({ authorizationError, label, message, remoteAddress, remotePort }) {
  // A certificate that is not believed is not one that is missing: node ends that connection.
  const known = authorizationError ? 'ECONNRESET' : HANDSHAKE_CODES[label];
  const code = known ?? 'ERR_SSL_HANDSHAKE_FAILURE';
  const why = authorizationError ? `${message}: ${authorizationError}` : message;
  const text = NODES_TEXTS[label] ?? (why || label.replaceAll('_', ' '));
  return coded(code, text, { reason: label, remoteAddress, remotePort });
}

/**
 * The same for a client that resumed a session with a certificate that is no longer trusted.
 *
 * @param {import('node:tls').TLSSocket} socket
 */
function unauthorizedError({ authorizationError, remoteAddress, remotePort }) {
  const code = authorizationError ?? 'CERT_REJECTED';
  const text = `the client resumed a session, and its certificate is not believed now: ${code}`;
  return coded(code, text, { reason: 'client_certificate', remoteAddress, remotePort });
}

/** Cause of a failed handshake to the code that node's users know. */
const HANDSHAKE_CODES = Object.freeze({
  __proto__: null,
  client_certificate: 'ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE',
  client_gone: 'ECONNRESET',
  client_reset: 'ECONNRESET',
  handshake_timeout: 'ERR_TLS_HANDSHAKE_TIMEOUT',
  hello_too_long: 'ERR_SSL_EXCESSIVE_MESSAGE_SIZE',
  lane_stopped: 'ECONNRESET',
  limit_handshake_queue: 'ECONNRESET',
  limit_handshake_wait: 'ECONNRESET',
  limit_handshakes: 'ECONNRESET',
  no_common_alpn: 'ERR_SSL_NO_APPLICATION_PROTOCOL',
  not_tls: 'ERR_SSL_WRONG_VERSION_NUMBER',
  nothing_in_common: 'ERR_SSL_NO_SHARED_CIPHER',
  plain_http: 'ERR_SSL_HTTP_REQUEST',
  unknown_name: 'ERR_SSL_UNRECOGNIZED_NAME',
});

/** Texts of messages that programs look for, too. */
const NODES_TEXTS = Object.freeze({
  __proto__: null,
  client_gone: 'socket hang up',
  not_tls: 'SSL routines::wrong version number: the client speaks something else than TLS',
});

/** No longer than a line, and never the content of a Buffer, which may be a key. */
function received(value) {
  if (value == null || typeof value === 'number' || typeof value === 'boolean') {
    return String(value);
  }
  if (typeof value === 'string') {
    // A key in place of a name of something must not get into a log.
    const short = value.length <= SHOWN_CHARACTERS_MAX && !value.includes('-----');
    return short ? inspect(value) : `a string of ${value.length} characters`;
  }
  if (typeof value === 'object') {
    return `an instance of ${value.constructor?.name || 'Object'}`;
  }
  return `a ${typeof value}`;
}

function receivedType(value) {
  if (value == null || typeof value === 'object') {
    return received(value);
  }
  if (typeof value === 'function') {
    return `function ${value.name}`;
  }
  const shown = typeof value === 'string' ? received(value) : String(value);
  return `type ${typeof value} (${shown})`;
}

function capital(sentence) {
  return sentence[0].toUpperCase() + sentence.slice(1);
}

const SHOWN_CHARACTERS_MAX = 64;

module.exports = {
  OptionError,
  OptionErrors,
  coded,
  handshakeError,
  invalidType,
  invalidValue,
  listenError,
  outOfRange,
  throwMistakes,
  unauthorizedError,
};
