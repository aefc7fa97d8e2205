'use strict';

// The addon for this machine's target: from the package that was installed for it, or, in a
// checkout, from the file that `node/build` has left next to package.json.

const path = require('node:path');
const { coded } = require('./errors.js');

/**
 * Loads the addon.
 *
 * @param {{ platform: string, arch: string, libc: string, load: (file: string) => unknown }} on
 */
function load(on) {
  const target = `${on.platform}-${on.arch}${on.libc && `-${on.libc}`}`;
  if (!TARGETS.includes(target)) {
    throw coded(
      'ERR_SEALANE_TARGET',
      `sealane does not run on ${target}, but on ${TARGETS.join(', ')}. ` +
        "Use node's own https there, or run the program in a Linux container",
      { target },
    );
  }
  const problems = [];
  for (const from of [beside(target), `@sealane/${target}`]) {
    try {
      return on.load(from);
    } catch (error) {
      problems.push(`${from}: ${error.message.split('\n', 1)[0]}`);
    }
  }
  throw coded(
    'ERR_SEALANE_BINARY',
    `sealane cannot load its binary for ${target}:\n  ${problems.join('\n  ')}\n` +
      `Install the package @sealane/${target} (npm leaves it out with --omit=optional or with a ` +
      'lock file from another platform), or run node/build in a checkout',
    { target },
  );
}

function beside(target) {
  return path.join(__dirname, '..', `sealane.${target}.node`);
}

/** The C library of this process. Empty where there is only one. */
function libc() {
  if (process.platform !== 'linux') {
    return '';
  }
  // The report would otherwise ask the name server for the name of each open connection.
  const { excludeNetwork } = process.report;
  process.report.excludeNetwork = true;
  const { header } = process.report.getReport();
  process.report.excludeNetwork = excludeNetwork;
  return header.glibcVersionRuntime ? 'gnu' : 'musl';
}

const TARGETS = Object.freeze([
  'linux-x64-gnu',
  'linux-x64-musl',
  'linux-arm64-gnu',
  'linux-arm64-musl',
]);

let addon;

module.exports = {
  TARGETS,
  load,
  /** The addon of this process, loaded at the first call. */
  native() {
    const { platform, arch } = process;
    addon ??= load({ platform, arch, libc: libc(), load: require });
    return addon;
  },
};
