'use strict';

// Node's permission model: sealane listens only where node's own https may.

const assert = require('node:assert');
const { execFile } = require('node:child_process');
const path = require('node:path');
const { test } = require('node:test');
const { promisify } = require('node:util');

const PROGRAM = path.join(__dirname, 'permitted.js');
const FLAGS = ['--permission', '--allow-addons', '--allow-fs-read=*', '--no-warnings'];
const knowsNet = process.allowedNodeEnvironmentFlags.has('--allow-net');

for (const flags of [[], ...(knowsNet ? [['--allow-net']] : [])]) {
  test(`listens as node does with --permission ${flags}`, async () => {
    const run = (of) => promisify(execFile)(process.execPath, [...FLAGS, ...flags, PROGRAM, of]);
    const [sealane, node] = await Promise.all([run('sealane'), run('node')]);
    assert.strictEqual(sealane.stdout, node.stdout);
    const isRefused = knowsNet && flags.length === 0;
    assert.match(node.stdout, isRefused ? /^port: ERR_ACCESS_DENIED Net/ : /^port: listens/);
  });
}
