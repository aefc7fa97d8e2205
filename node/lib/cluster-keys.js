'use strict';

// Ticket keys that the workers of a cluster share without an option. As for node's tls servers, the
// first worker makes them, and the primary's own cluster module gives them to the others: the
// primary need not load this package.

const cluster = require('node:cluster');
const { randomBytes } = require('node:crypto');

/**
 * The keys of all servers in the workers of this cluster; null outside of a cluster, and where the
 * primary cannot hold them.
 *
 * @returns {Promise<Buffer[] | null>}
 */
function clusterTicketKeys() {
  asking ??= askPrimary();
  return asking;
}

/** @returns {Promise<Buffer[] | null>} */
function askPrimary() {
  const canAsk = cluster.isWorker && process.connected && !process.versions.bun;
  if (!canAsk || typeof cluster._getServer !== 'function') return Promise.resolve(null);
  return new Promise((resolve) => {
    let keys = null;
    const asks = {
      _getServerData: () => ({ sealane: randomBytes(TICKET_KEY_BYTES).toString('hex') }),
      _setServerData(data) {
        if (typeof data?.sealane === 'string') keys = [Buffer.from(data.sealane, 'hex')];
      },
      once() {},
    };
    cluster._getServer(asks, HOLDER, (errno, handle) => {
      // The primary keeps the keys as long as one worker has the handle.
      held = handle;
      held?.unref?.();
      resolve(errno ? null : keys);
    });
  });
}

const TICKET_KEY_BYTES = 48;

/**
 * The socket that the primary opens to hold the keys: UDP, on a free port of the loopback, never
 * read. A TCP socket would accept clients.
 */
const HOLDER = Object.freeze({
  address: '127.0.0.1',
  addressType: 'udp4',
  fd: -1,
  flags: 0,
  index: 'sealane',
  port: 0,
});

/** One question for each process. */
let asking;
/** The keys in the answer. */
let held;

module.exports = { clusterTicketKeys };
