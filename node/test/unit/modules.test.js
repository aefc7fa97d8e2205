'use strict';

// `import` gives the same as `require`: by name, and as the default.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const required = require('sealane');

test('import and require give the same', async () => {
  const { default: whole, 'module.exports': _same, ...named } = await import('sealane');
  assert.equal(whole, required);
  assert.deepEqual({ ...named }, required);
  for (const name of ['createServer', 'createTLSServer', 'Server', 'TLSServer', 'TLSSocket']) {
    assert.equal(typeof named[name], 'function', name);
  }
});
