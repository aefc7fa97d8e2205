'use strict';

// The socket of 'tlsClientError' and 'clientError' for a handshake that failed in a lane. It is
// destroyed, and has only the data of its peer.

const { Duplex } = require('node:stream');
const { inheritFromNode } = require('./inherited.js');

/** A socket for a client that never became a connection. */
class FailedSocket extends Duplex {
  /**
   * @param {{ authorizationError?: string, remoteAddress?: string, remotePort?: number,
   *   remoteFamily?: string, servername?: string }} failed
   */
  constructor({ authorizationError, remoteAddress, remotePort, remoteFamily, servername }) {
    super();
    this.authorized = false;
    this.authorizationError = authorizationError;
    this.encrypted = true;
    this._parent = null;
    this._secureEstablished = false;
    this.servername = servername;
    const peer = { remoteAddress, remoteFamily, remotePort };
    for (const [name, value] of Object.entries(peer)) {
      Object.defineProperty(this, name, { enumerable: true, value });
    }
    this.destroy();
  }

  _read() {}

  _write(_chunk, _encoding, done) {
    done();
  }

  _destroy(error, done) {
    done(error);
  }
}

inheritFromNode(FailedSocket.prototype, Duplex.prototype);

module.exports = { FailedSocket };
