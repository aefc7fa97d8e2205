// `import` gives the same as `require`: by name, and as the default.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import sealane, * as names from 'sealane';

const require = createRequire(import.meta.url);

test('import and require give the same', () => {
  const required = require('sealane');
  assert.equal(sealane, required);
  const { default: _default, ...named } = names;
  assert.deepEqual({ ...named }, required);
  for (const name of ['createServer', 'createTLSServer', 'Server', 'TLSServer', 'TLSSocket']) {
    assert.equal(typeof named[name], 'function', name);
  }
});
