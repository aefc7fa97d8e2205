'use strict';

// The list of failures may be wrong in neither direction, and not in its reasons either.

const assert = require('node:assert');
const { test } = require('node:test');
const { judge, tested } = require('./judge.js');
const { outcomes } = require('./tap.js');

const listed = { says: /is not offered/, why: 'an option that is refused' };
const passes = { outcome: 'pass', output: '', servers: 1 };
const fails = { outcome: 'fail', output: 'options.pfx is not offered', servers: 0 };
const skips = { outcome: 'skip', output: '1..0 # Skipped: no IPv6', servers: 0 };

test('a failure that is not listed is wrong, and so is one that is and passes', () => {
  assert.strictEqual(judge({ nodes: passes, ours: fails }).wrong, true);
  assert.strictEqual(judge({ listed, ours: passes }).wrong, true);
  assert.strictEqual(judge({ listed, nodes: passes, ours: fails }).wrong, false);
  assert.strictEqual(judge({ ours: passes }).wrong, false);
});

test('a failure must be the one that is listed', () => {
  const otherwise = { ...fails, output: 'Error: read ECONNRESET' };
  const { verdict, wrong } = judge({ listed, nodes: passes, ours: otherwise });
  assert.strictEqual(verdict, 'fails otherwise than listed');
  assert.strictEqual(wrong, true);
});

test("what plain node does is no fault of Sealane's", () => {
  assert.strictEqual(judge({ nodes: fails, ours: fails }).wrong, false);
  assert.strictEqual(judge({ nodes: skips, ours: skips }).wrong, false);
  assert.strictEqual(judge({ nodes: passes, ours: skips }).wrong, true);
});

test('a listed file that is gone is wrong', () => {
  assert.strictEqual(judge({ listed }).wrong, true);
});

test('a server of Sealane is told from none', () => {
  const without = judge({ ours: { ...passes, servers: 0 } });
  assert.notStrictEqual(without.verdict, judge({ ours: passes }).verdict);
});

test('only what is not listed is run again, and plain node only where it is asked', async () => {
  const runs = [];
  const run = (results) => async (withSealane) => {
    runs.push(withSealane);
    return results.shift();
  };
  const second = await tested(undefined, run([fails, passes]));
  assert.deepStrictEqual(runs.splice(0), [true, true]);
  assert.match(second.note, /again/);
  await tested(listed, run([fails, passes]));
  assert.deepStrictEqual(runs.splice(0), [true, false]);
  await tested(undefined, run([passes]));
  assert.deepStrictEqual(runs.splice(0), [true]);
});

test("TAP of mocha's and of node's form is understood, at any depth", () => {
  const mocha = 'ok 1 a first\nnot ok 2 a second\nok 3 a third # SKIP -\n';
  assert.deepStrictEqual(
    [...outcomes({ outcome: 'fail', output: mocha })],
    [
      ['a first', 'pass'],
      ['a second', 'fail'],
      ['a third', 'skip'],
    ],
  );
  const nodes = '    ok 1 - one\n    ok 2 - one\n    1..2\nok 1 - all\n';
  const names = [...outcomes({ outcome: 'pass', output: nodes }).keys()];
  assert.deepStrictEqual(names, ['one', 'one (2)', 'all']);
});

test('a program that fails without a test that failed has failed all the same', () => {
  const found = outcomes({ outcome: 'fail', output: 'ok 1 - one\nSegmentation fault' });
  assert.strictEqual(found.get('the whole program'), 'fail');
});
