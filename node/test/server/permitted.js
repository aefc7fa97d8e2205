'use strict';

// For permission.test.js: whether a server of the implementation that is given listens.

const https = require('node:https');
const sealane = require('sealane');

const { createServer } = process.argv[2] === 'node' ? https : sealane;
const places = { port: { port: 0 }, path: { path: `\0sealane-permitted-${process.pid}` } };

for (const [name, where] of Object.entries(places)) {
  const server = createServer();
  server.on('error', ({ code }) => console.log(`${name}: ${code}`));
  try {
    server.listen(where);
    console.log(`${name}: listens`);
    server.close();
  } catch ({ code, permission, message }) {
    console.log(`${name}: ${code} ${permission} ${message}`);
  }
}
