'use strict';

// What loading the addon does to the process's table of open files.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { test } = require('node:test');

const tableSize = () => {
  const status = fs.readFileSync('/proc/self/status', 'latin1');
  return Number(/^FDSize:\s*(\d+)$/m.exec(status)[1]);
};

const allowed = () => {
  const limits = fs.readFileSync('/proc/self/limits', 'latin1');
  const soft = /^Max open files\s+(\d+)/m.exec(limits);
  return soft === null ? Infinity : Number(soft[1]);
};

test('the table of open files grows when the addon is loaded, and not while lanes serve', () => {
  const before = tableSize();
  require('../../lib/index.js');
  const wanted = Math.min(65_536, allowed());
  assert.ok(tableSize() >= wanted, `${before} before, ${tableSize()} now, ${wanted} wanted`);
});
