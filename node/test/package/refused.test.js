'use strict';

// Builds that node/pack does not pack: those for tests, and those that load on this machine alone.

const assert = require('node:assert');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');

const FOLDER = path.join(__dirname, '..', '..');
const GNU = 'linux-x64-gnu';
const MUSL = 'linux-x64-musl';
/** Older than any limit, and newer: glibc names the version of each of its functions. */
const OLD = 'int getpid(void); int f(void) { return getpid(); }';
const NEW = 'int getentropy(void *, long); int f(void *a) { return getentropy(a, 1); }';
/** The text of a build with `--features faults` when a lane panics by order. */
const SAYS = /panic!\("(.*)"\)/.exec(fs.readFileSync(`${FOLDER}/src/service/orders.rs`, 'utf8'))[1];
const FAULTS = `const char *f(void) { return "${SAYS}"; }`;

/** The result of packing a folder with a single binary, compiled from `code`. */
function packed(t, target, code, compile, ...args) {
  const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'sealane-refused-'));
  t.after(() => fs.rmSync(scratch, { recursive: true, force: true }));
  const folder = path.join(scratch, 'node');
  fs.mkdirSync(folder);
  for (const file of ['LICENSE-APACHE', 'LICENSE-MIT']) {
    fs.copyFileSync(path.join(FOLDER, '..', file), path.join(scratch, file));
  }
  for (const file of ['pack', 'package.json', 'lib', 'index.d.ts', 'index.d.mts', 'README.md']) {
    fs.cpSync(path.join(FOLDER, file), path.join(folder, file), { recursive: true });
  }
  const binary = path.join(folder, `sealane.${target}.node`);
  const compiler = ['-shared', '-fPIC', ...compile, '-x', 'c', '-', '-o', binary];
  execFileSync('cc', compiler, { input: code });
  const out = path.join(scratch, 'out');
  const run = spawnSync(path.join(folder, 'pack'), ['--out', out, ...args], { encoding: 'utf8' });
  const made = fs.existsSync(out) ? fs.readdirSync(out).length : 0;
  return { ...run, made, out };
}

test('what loads everywhere is packed', (t) => {
  for (const target of [GNU, MUSL]) {
    const run = packed(t, target, OLD, ['-s']);
    assert.deepStrictEqual([run.status, run.stderr, run.made], [0, '', 2], target);
  }
});

test('a build for tests is refused, and so is one that needs a newer glibc', (t) => {
  for (const [target, code, compile, says] of [
    [GNU, OLD, ['-g'], /is not stripped/],
    [MUSL, OLD, [], /is not stripped/],
    [GNU, FAULTS, ['-s'], /lets a test make a lane panic/],
    [GNU, NEW, ['-s'], /needs glibc 2\.25, and a published package may need no more than 2\.17/],
  ]) {
    const run = packed(t, target, code, compile);
    assert.deepStrictEqual([run.status, run.made], [1, 0], String(says));
    assert.match(run.stderr, says);
    assert.match(run.stderr, new RegExp(`node/build --release --target ${target} && node/pack\n`));
    assert.match(run.stderr, /node\/build --release && node\/pack --private$/m);
  }
});

test('with --private all is packed, and cannot be published', (t) => {
  const run = packed(t, GNU, NEW, ['-g'], '--private');
  assert.deepStrictEqual([run.status, run.made], [0, 2], run.stderr);
  const [binary] = run.stdout.trim().split('\n');
  const manifest = execFileSync('tar', ['-xOzf', binary, 'package/package.json']);
  assert.strictEqual(JSON.parse(manifest).private, true);
});
