'use strict';

// Calls into the program's callbacks. A mistake there must end one handshake and not the process.

const { inspect, types } = require('node:util');
const { coded } = require('./errors.js');
const { warnOnce } = require('./warnings.js');

/**
 * Calls SNICallback. `done` is called once: with the first answer, or with the error that the
 * callback throws, or that the promise of an async callback rejects with. As in node, an exception
 * counts even when the callback has answered before.
 *
 * @param {Function} SNICallback
 * @param {object} server
 * @param {string} name
 * @param {(error: unknown, context?: unknown) => void} done
 */
function askGuarded(SNICallback, server, name, done) {
  let outcome;
  let isReturned = false;
  const settle = (error, context) => {
    if (outcome !== undefined) return;
    outcome = [error, context];
    if (isReturned) done(error, context);
  };
  const fail = (thrown) => {
    const error = errorOf(thrown, 'SNICallback threw');
    warnOnce(`SNICallback threw: ${error.message}`, 'SNICallback threw');
    return error;
  };
  let returned;
  try {
    returned = SNICallback.call(server, name, settle);
  } catch (thrown) {
    outcome = [fail(thrown)];
  }
  isReturned = true;
  if (outcome !== undefined) done(...outcome);
  if (returned !== null && typeof returned === 'object') {
    // After an answer it is too late to end the handshake, but the warning still comes.
    Promise.resolve(returned).then(undefined, (thrown) => settle(fail(thrown)));
  }
}

/**
 * A thrown value as an error: programs throw other values too.
 *
 * @param {unknown} thrown
 * @param {string} what describes the event
 */
function errorOf(thrown, what) {
  if (types.isNativeError(thrown)) return thrown;
  const shown = inspect(thrown, { customInspect: false, depth: 0 });
  return coded('ERR_SEALANE_CALLBACK', `${what} ${shown}`);
}

module.exports = { askGuarded, errorOf };
