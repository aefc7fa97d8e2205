'use strict';

// Sends as many bytes as fast as it can: PORT BYTES.

const tls = require('node:tls');

const [port, bytes] = process.argv.slice(2).map(Number);
const chunk = Buffer.alloc(64 * 1024);
const client = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => {
  let left = bytes;
  const write = () => {
    while (left > 0) {
      left -= chunk.length;
      if (!client.write(chunk)) {
        client.once('drain', write);
        return;
      }
    }
    client.end();
  };
  write();
});
client.resume();
client.on('error', () => {});
client.on('close', () => process.disconnect?.());
