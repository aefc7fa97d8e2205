'use strict';

/**
 * Runs node's own tests of tls, https and http2's secure servers as they are, with Sealane's
 * servers in them. See README.md, and --help.
 */

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const { availableParallelism, tmpdir } = require('node:os');
const { join } = require('node:path');
const { parseArgs } = require('node:util');
const { FAILING } = require('./failing.js');
const { judge, tested } = require('./judge.js');
const { runOne } = require('./one.js');
const { NODE_TESTS, sourcePackage } = require('./source.js');

/** Those in the first may run at the same time. */
const FOLDERS = ['parallel', 'sequential', 'pummel'];
const OPTIONS = {
  help: { short: 'h', type: 'boolean' },
  json: { type: 'string' },
  node: { type: 'string' },
  source: { type: 'string' },
  verbose: { type: 'boolean' },
};
const USAGE = `Usage: node test/outside/run.js [OPTIONS] [PART-OF-PATH...]

Runs the test files of node ${NODE_TESTS.version} about tls, https and http2's secure
servers, or those whose paths hold one of the arguments, with servers of Sealane. The tests come
from Debian's archive by apt, once.

  --json FILE    what came of each file
  --node PATH    run them by this node (the one that runs this)
  --source DIR   a folder that holds node's folder test/, in place of the archive's
  --verbose      what each file printed that did not pass

Exit code 0: each file passes, but for those that failing.js lists, which fail as it says, and
those that fail with node's own servers too.
`;

async function main() {
  const { positionals, values } = parseArgs({ allowPositionals: true, options: OPTIONS });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const files = chosen(source(values.source), positionals);
  if (files.length === 0) throw new Error('no test file fits these arguments');
  const results = await runAll(files, values);
  if (positionals.length === 0) results.push(...gone(results));
  report(results, values);
  if (results.some((one) => one.wrong)) process.exitCode = 1;
}

/** The folder test/ of node's tests. */
function source(given) {
  const folder = join(given ?? sourcePackage(NODE_TESTS), 'test');
  if (!fs.existsSync(join(folder, 'common', 'index.js'))) {
    throw new Error(`${folder} has none of node's tests: there is no common/index.js`);
  }
  return folder;
}

/**
 * The test files that are about servers of TLS.
 *
 * @param {string} folder
 * @param {string[]} parts a path must hold one of them, if there are any
 * @returns {{ name: string, path: string, alone: boolean }[]}
 */
function chosen(folder, parts) {
  return FOLDERS.flatMap((kind) =>
    fs.readdirSync(join(folder, kind)).map((file) => ({
      alone: kind !== FOLDERS[0],
      name: `${kind}/${file}`,
      path: join(folder, kind, file),
    })),
  )
    .filter(({ name }) => parts.length === 0 || parts.some((part) => name.includes(part)))
    .filter(({ name, path }) => isAboutServers(name, path));
}

function isAboutServers(name, path) {
  if (/\/test-(https|tls)-.*\.m?js$/.test(name)) return true;
  return /\/test-http2-.*\.js$/.test(name) && /createSecureServer/.test(fs.readFileSync(path));
}

async function runAll(files, { node = process.execPath, verbose }) {
  const scratch = fs.mkdtempSync(join(tmpdir(), 'sealane-outside-'));
  try {
    const how = { cwd: scratch, node: besideOpenSSL(node, scratch), scratch };
    const results = [];
    const each = async (file, slot) => {
      const result = await tested(FAILING[file.name], (withSealane) =>
        runOne({ ...how, alone: file.alone, file: file.path, slot, withSealane }),
      );
      results.push({ file: file.name, ...result });
      tell(results.at(-1), verbose);
    };
    await inSlots(
      files.filter(({ alone }) => !alone),
      availableParallelism(),
      each,
    );
    await inSlots(
      files.filter(({ alone }) => alone),
      1,
      each,
    );
    return results;
  } finally {
    fs.rmSync(scratch, { force: true, recursive: true });
  }
}

async function inSlots(files, slots, each) {
  const left = [...files];
  const work = async (_, slot) => {
    while (left.length > 0) await each(left.shift(), slot);
  };
  await Promise.all(Array.from({ length: slots }, work));
}

/** Some tests look for the program openssl under another name in the folder of node itself. */
function besideOpenSSL(node, scratch) {
  const beside = join(scratch, 'node');
  fs.copyFileSync(fs.realpathSync(node), beside);
  const openssl = execFileSync('which', ['openssl'], { encoding: 'utf8' }).trim();
  fs.symlinkSync(openssl, join(scratch, 'openssl-cli'));
  return beside;
}

/** Entries of the list that are no tests any more. */
function gone(results) {
  const known = new Set(results.map(({ file }) => file));
  return Object.keys(FAILING)
    .filter((file) => !known.has(file))
    .map((file) => ({ file, ...judge({ listed: FAILING[file] }) }));
}

function tell({ file, verdict, wrong, output, note }, verbose) {
  const quiet = verdict.startsWith('pass');
  const mark = wrong ? 'WRONG ' : '';
  process.stdout.write(`${mark}${verdict}: ${file}${note ? ` (${note})` : ''}\n`);
  if (!quiet && verbose && output) process.stdout.write(`${output.replace(/^/gm, '    ')}\n`);
}

function report(results, { json, node = process.execPath }) {
  const counts = {};
  for (const { verdict, why } of results) {
    const name = why ? `${verdict}: ${why}` : verdict;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  const names = Object.keys(counts).sort();
  const lines = names.map((name) => `${String(counts[name]).padStart(5)}  ${name}`);
  const wrong = results.filter((one) => one.wrong).map((one) => `  ${one.verdict}: ${one.file}`);
  process.stdout.write(`\n${String(results.length).padStart(5)}  files\n${lines.join('\n')}\n`);
  if (wrong.length > 0) process.stdout.write(`\n${wrong.length} wrong:\n${wrong.join('\n')}\n`);
  if (json === undefined) return;
  const version = execFileSync(node, ['--version'], { encoding: 'utf8' }).trim();
  const all = { counts, node: version, results, tests: NODE_TESTS.version };
  fs.writeFileSync(json, `${JSON.stringify(all, null, 2)}\n`);
}

main().catch((error) => {
  process.stderr.write(`run.js: ${error.message}\n`);
  process.exitCode = 2;
});
