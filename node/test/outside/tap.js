'use strict';

/** The results of tests in a program's TAP. */

/**
 * @param {{ output: string, outcome: string }} ran
 * @returns {Map<string, 'fail' | 'pass' | 'skip'>} by name; a name that comes again has a number
 */
function outcomes({ output, outcome }) {
  const found = new Map();
  for (const [, not, name, directive] of output.matchAll(POINT)) {
    let unique = name;
    for (let number = 2; found.has(unique); number += 1) unique = `${name} (${number})`;
    found.set(unique, directive ? 'skip' : not ? 'fail' : 'pass');
  }
  const failed = [...found.values()].includes('fail');
  // Without a test that failed, it is the program that did.
  if (outcome === 'fail' && !failed) found.set('the whole program', 'fail');
  return found;
}

/** A test, at any depth. */
const POINT = /^ *(not )?ok \d+(?: -)? (.*?)(?: # (SKIP)\b.*)?$/gim;

module.exports = { outcomes };
