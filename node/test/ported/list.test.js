'use strict';

// LIST.md: each of node's tests is in it once, with its new place or the reason why it has none.

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');

const { FAILING } = require('../outside/failing.js');

test('the list holds each test once, names files that exist, and counts right', () => {
  const text = fs.readFileSync(path.join(__dirname, 'LIST.md'), 'utf8');
  const [ported, skipped] = text.split('## Ported\n')[1].split('\n## Do not apply\n');
  const heads = (part) => part.match(/^### .+$/gm).map((line) => line.slice(4));
  const names = (part) => [...part.matchAll(ENTRY)].map(([, name]) => name);
  for (const file of heads(ported)) {
    assert.ok(fs.existsSync(path.join(__dirname, file)), `${file} is not there`);
  }
  const all = [...names(ported), ...names(skipped)];
  assert.strictEqual(new Set(all).size, all.length, 'a test stands there twice');
  for (const name of all) assert.match(name, /^test-(tls|https)-[\w.-]+\.m?js$/);
  const counts = text.match(/^(\d+) tests: (\d+) ported, (\d+) do not apply\.$/m);
  assert.deepStrictEqual(counts.slice(1).map(Number), [
    all.length,
    names(ported).length,
    names(skipped).length,
  ]);
  for (const reason of heads(skipped)) assert.ok(reason.length > 20, reason);
});

test("what is ported in part is what node's own file shows", () => {
  const text = fs.readFileSync(path.join(__dirname, 'LIST.md'), 'utf8');
  const [ported] = text.split('\n## Do not apply\n');
  const entries = [...ported.matchAll(ENTRY)];
  const fails = new Set(Object.keys(FAILING).map((file) => path.basename(file)));
  const expected = entries.map(([, name]) => name).filter((name) => fails.has(name));
  const inPart = entries.filter(([, , mark]) => mark).map(([, name]) => name);
  assert.deepStrictEqual(inPart, expected);
});

/** A test, and whether it is ported in part. */
const ENTRY = /^- (\S+\.m?js)( \(in part\))?$/gm;
