'use strict';

// The test runners of most projects: each loads the package in its own way, Jest and two pools of
// Vitest in a context of `vm` with its own `Object` and `Error`.

const assert = require('node:assert');
const { execFile } = require('node:child_process');
const path = require('node:path');
const { test } = require('node:test');
const { promisify } = require('node:util');

const FOLDER = __dirname;
const MODULES = path.join(FOLDER, '..', '..', 'node_modules');
const SUITE = path.join(FOLDER, 'suite.js');
/** Ends a run that would wait for ever. */
const LIMIT_MS = 120_000;
const JEST = JSON.stringify({ rootDir: FOLDER, testMatch: [SUITE], transform: {} });

/** The arguments of node for each runner, and its output for one test that passed. */
const RUNNERS = {
  'node:test': [['--test', '--test-reporter=tap', SUITE], /^# pass 1$/m],
  Mocha: [[path.join(MODULES, 'mocha/bin/mocha.js'), SUITE], /^ *1 passing/m],
  Jest: [
    [path.join(MODULES, 'jest/bin/jest.js'), '--runInBand', '--config', JEST],
    /^Tests: *1 passed, 1 total$/m,
  ],
  'Vitest, forks': [vitest('forks'), /^ *Tests *1 passed \(1\)$/m],
  'Vitest, vmThreads': [vitest('vmThreads'), /^ *Tests *1 passed \(1\)$/m],
};

function vitest(pool) {
  return [path.join(MODULES, 'vitest/vitest.mjs'), 'run', '--root', FOLDER, '--pool', pool];
}

for (const [runner, [args, passed]] of Object.entries(RUNNERS)) {
  test(`${runner} runs a program of the package`, async () => {
    const { NODE_TEST_CONTEXT: _, FORCE_COLOR: __, ...env } = process.env;
    const options = { env: { ...env, NO_COLOR: '1' }, timeout: LIMIT_MS };
    const ran = await promisify(execFile)(process.execPath, args, options).catch((error) => error);
    assert.match(`${ran.stdout}\n${ran.stderr}`, passed);
    assert.strictEqual(ran.code, undefined);
  });
}
