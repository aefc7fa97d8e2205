'use strict';

// The effect of loading the addon on the process's table of open files.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { test } = require('node:test');
const { native } = require('../../lib/native.js');

const tableSize = () => {
  const status = fs.readFileSync('/proc/self/status', 'latin1');
  return Number(/^FDSize:\s*(\d+)$/m.exec(status)[1]);
};

const allowed = () => {
  const limits = fs.readFileSync('/proc/self/limits', 'latin1');
  const soft = /^Max open files\s+(\d+)/m.exec(limits);
  return soft === null ? Infinity : Number(soft[1]);
};

test('the table of open files is grown when the addon is loaded', () => {
  const before = tableSize();
  native();
  const wanted = Math.min(65_536, allowed());
  assert.ok(tableSize() >= wanted, `${before} before, ${tableSize()} now, ${wanted} wanted`);
});
