// An HTTPS server of Node's for `sealane-lab count --kernel` and `servers`, with Node's own TLS or
// with the package sealane. It answers as the lab's backend does to /echo/WORD, and ends with its
// standard input:
//
//   sealane-lab count --kernel --only node-https,node-sealane \
//     --peer 'node-https=exec node lab/examples/echo-server.mjs node {port} {cert} {workers}' \
//     --peer 'node-sealane=exec node lab/examples/echo-server.mjs sealane {port} {cert} {workers}'

import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { createRequire } from 'node:module';

const [tls, port, file, workers] = process.argv.slice(2);
const pem = readFileSync(file);
const options = { key: pem, cert: pem, minVersion: 'TLSv1.3', ciphers: 'TLS_AES_128_GCM_SHA256' };

function answer(request, response) {
  const word = request.url.split('/').pop();
  response.writeHead(200, { 'Content-Length': word.length }).end(word);
}

function create() {
  if (tls === 'node') return createServer(options, answer);
  const sealane = createRequire(import.meta.url)('../../node');
  return sealane.createServer({ ...options, lanes: Number(workers) }, answer);
}

create().listen(Number(port), '127.0.0.1');
process.stdin.on('end', () => process.exit(0)).resume();
