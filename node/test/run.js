'use strict';

/**
 * Runs the package's tests: every *.test.js below this folder, or those with one of the arguments
 * in their path. Exit code 0 if all passed.
 *
 *   node test/run.js [PART-OF-PATH...]
 *   IMPLEMENTATION=node node test/run.js ported    (node's own tls as the oracle)
 */

const { readdirSync } = require('node:fs');
const { join, relative } = require('node:path');
const { finished } = require('node:stream/promises');
const { run } = require('node:test');
const { spec: Spec } = require('node:test/reporters');
const { NODE_TESTS, sourcePackage } = require('./outside/source.js');

/** Each file is a separate process, and a test waits more than it computes. */
const FILES_AT_ONCE = 3;
const FILE_LIMIT_MS = 600_000;
/** Tests that node's own implementation must pass too. The rest is Sealane's alone. */
const OF_NODE_TOO = /^(clients|frameworks|life|ported)\//;
/** It skips itself where they cannot be had. */
const NEEDS_NODES_TESTS = 'short.test.js';
const isSealane = process.env.IMPLEMENTATION !== 'node';

main();

async function main() {
  const files = chosen(process.argv.slice(2));
  if (files.length === 0) {
    process.stderr.write('run.js: no test file fits these arguments\n');
    process.exitCode = 2;
    return;
  }
  if (files.some((file) => file.endsWith(NEEDS_NODES_TESTS))) fetchNodesTests();
  const stream = run({ files, concurrency: FILES_AT_ONCE, timeout: FILE_LIMIT_MS });
  stream.on('test:fail', ({ todo }) => {
    if (todo === undefined || todo === false) process.exitCode = 1;
  });
  const report = stream.compose(new Spec());
  report.pipe(process.stdout);
  await finished(report, { writable: false });
}

/** Beforehand, since a slow network is no fault of the file that needs them. */
function fetchNodesTests() {
  try {
    sourcePackage(NODE_TESTS);
  } catch (error) {
    // Such as no apt, no network, or a newer release, with a list that has to be made again by
    // hand.
    process.stderr.write(`run.js: node's own tests could not be fetched: ${error.message}\n`);
  }
}

function chosen(parts) {
  return readdirSync(__dirname, { recursive: true })
    .filter((file) => file.endsWith('.test.js'))
    .filter((file) => isSealane || OF_NODE_TOO.test(file))
    .filter((file) => parts.length === 0 || parts.some((part) => file.includes(part)))
    .map((file) => join(relative('', __dirname), file))
    .sort();
}
