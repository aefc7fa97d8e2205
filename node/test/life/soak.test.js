'use strict';

// The soak in short; `node --expose-gc test/soak.js` goes on from there.

const assert = require('node:assert');
const { execFile } = require('node:child_process');
const path = require('node:path');
const { test } = require('node:test');
const { promisify } = require('node:util');

test('two thousand connections with random ends', async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--expose-gc', path.join(__dirname, '../soak.js'), '--connections', '2000', '--at-once', '32'],
    { timeout: 120_000 },
  );
  assert.match(stdout, /soak: [12]\d\d\d connections/);
});
