'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const message = require('../../lib/message.js');

const rust = fs.readFileSync(path.join(__dirname, '../../src/message.rs'), 'utf8');

/** The value of a constant of message.rs. */
function constant(name) {
  const found = new RegExp(`pub const ${name}: \\w+ = ([\\d_]+);`).exec(rust);
  assert.ok(found, name);
  return Number(found[1].replaceAll('_', ''));
}

test('events have the numbers that lanes give them', () => {
  const body = /pub enum Event \{([^}]*)\}/.exec(rust)[1];
  const events = [...body.matchAll(/(\w+) = (\d+),/g)].map(([, name, number]) => [
    name.toUpperCase(),
    Number(number),
  ]);
  assert.deepEqual(Object.fromEntries(events), message.Event);
});

test('commands, flags, options and limits have the numbers that lanes read', () => {
  for (const [name, number] of Object.entries(message.Command)) {
    assert.equal(constant(name), number, name);
  }
  for (const [name, number] of Object.entries(message.Flag)) {
    assert.equal(constant(`FLAG_${name}`), number, name);
  }
  for (const [name, number] of Object.entries(message.Option)) {
    assert.equal(constant(`OPTION_${name}`), number, name);
  }
  for (const name of ['HEADER_BYTES', 'PAYLOAD_BYTES_MAX', 'WINDOW_OUT', 'WINDOW_IN']) {
    assert.equal(constant(name), message[name], name);
  }
});
