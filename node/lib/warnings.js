'use strict';

// Warnings of the process that programs should know and need not stop for, each once.

/**
 * Warns once in a process for each kind.
 *
 * @param {string} text
 * @param {string} [kind] if one warning is enough for several texts. Default: the text
 */
function warnOnce(text, kind = text) {
  if (told.has(kind) || told.size === KINDS_MAX) {
    return;
  }
  told.add(kind);
  process.emitWarning(text, { type: 'SealaneWarning', code: 'SEALANE_NOT_OFFERED' });
}

/**
 * Warns of those names that had no warning before, all at once.
 *
 * @param {string[]} names
 * @param {(names: string) => string} text
 */
function warnOfNames(names, text) {
  const fresh = names.filter((name) => !told.has(name)).slice(0, KINDS_MAX - told.size);
  for (const name of fresh) {
    told.add(name);
  }
  if (fresh.length > 0) {
    process.emitWarning(text(fresh.join(', ')), {
      type: 'SealaneWarning',
      code: 'SEALANE_NOT_OFFERED',
    });
  }
}

const told = new Set();
/** A program that makes names up gets no more warnings, and no more memory. */
const KINDS_MAX = 256;

module.exports = { warnOfNames, warnOnce };
