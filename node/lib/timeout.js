'use strict';

// Idle timeouts of sockets. The http server sets one or two per request, so a timer is not made
// again for each. One per socket runs, and looks at its end how long the socket has been idle.

/**
 * Ensures that a timer ends at the channel's deadline or before.
 * @param {import('./channel.js').Channel} channel with an `idleAfter` that is not 0
 */
function arm(channel) {
  const deadline = channel.activeAt + channel.idleAfter;
  channel.expired = false;
  if (channel.timer !== null) {
    if (channel.timerAt <= deadline) return;
    clearTimeout(channel.timer);
  }
  start(channel, channel.idleAfter, deadline);
}

/** @param {import('./channel.js').Channel} channel */
function disarm(channel) {
  channel.idleAfter = 0;
  if (channel.timer === null) return;
  clearTimeout(channel.timer);
  channel.timer = null;
}

function start(channel, after, deadline) {
  channel.timer = setTimeout(ended, after, channel);
  channel.timer.unref();
  channel.timerAt = deadline;
}

function ended(channel) {
  channel.timer = null;
  if (channel.idleAfter === 0) return;
  const deadline = channel.activeAt + channel.idleAfter;
  const left = Math.ceil(deadline - performance.now());
  if (left > 0) {
    start(channel, left, deadline);
    return;
  }
  channel.expired = true;
  channel.scope.runInAsyncScope(channel.socket._onTimeout, channel.socket);
}

module.exports = { arm, disarm };
