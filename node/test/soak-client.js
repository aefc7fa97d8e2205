'use strict';

// The clients of the soak: PORT CONNECTIONS AT-ONCE SEED. Each sends its own number over and over,
// wants it back, and sometimes leaves without an end. It reports to its parent when it got
// another's.

const net = require('node:net');
const tls = require('node:tls');

const { random } = require('./soak');

const [port, count, atOnce, seed] = process.argv.slice(2).map(Number);
const chance = random(seed);
const context = tls.createSecureContext({});
/** A connection that neither side ends has this many echoes. */
const ROUNDS_MAX = 4;
const SILENCE_MS = 30_000;
let begun = 0;
let running = 0;
let session;

// If the soak was interrupted, or ended, there is no parent to report to.
process.once('disconnect', () => process.exit());
for (let i = 0; i < atOnce; i += 1) next();

function next() {
  if (begun >= count) {
    if (running === 0) process.disconnect();
    return;
  }
  begun += 1;
  running += 1;
  connect(seed * 2 ** 24 + begun);
}

function connect(number) {
  const raw = net.connect({ port, host: '127.0.0.1' });
  const resumed = session && chance() < 0.7 ? { session } : {};
  const client = tls.connect({
    socket: raw,
    secureContext: context,
    rejectUnauthorized: false,
    ...resumed,
  });
  const words = 1 + Math.floor(chance() ** 4 * 4096);
  const said = Buffer.alloc(words * 8);
  for (let at = 0; at < said.length; at += 8) said.writeDoubleLE(number, at);
  let rounds = 0;
  let got = 0;
  client.setTimeout(SILENCE_MS, () => {
    process.send(`connection ${number} was silent for ${SILENCE_MS} ms`);
    client.destroy();
  });
  client.on('error', () => {});
  client.on('session', (ticket) => {
    session = ticket;
  });
  client.on('secureConnect', () => client.write(said));
  client.on('data', (chunk) => {
    // Bytes come in order, so the place of each in its number is known.
    for (let i = 0; i < chunk.length; i += 1) {
      if (chunk[i] !== said[(got + i) % 8]) {
        process.send(`connection ${number} got another's bytes`);
        client.destroy();
        return;
      }
    }
    got += chunk.length;
    if (got < said.length * (rounds + 1)) return;
    rounds += 1;
    leave(client, raw, rounds, said);
  });
  if (chance() < 0.03) raw.once('connect', () => raw.destroy());
  client.on('close', () => {
    running -= 1;
    next();
  });
}

function leave(client, raw, rounds, said) {
  const lot = chance();
  if (lot < 0.2) client.destroy();
  else if (lot < 0.4) client.end();
  else if (lot < 0.45) raw.resetAndDestroy();
  else if (rounds >= ROUNDS_MAX) client.end();
  else client.write(said);
}
