'use strict';

/**
 * Runs tests that others wrote for their own packages, with Sealane's servers under them: those of
 * ws and Fastify as they are, and the servers of supertest and OpenTelemetry. See README.md.
 *
 *   node test/outside/suites.js [--json FILE] [--node PATH] [NAME...]
 */

const { execFileSync } = require('node:child_process');
const { createHash } = require('node:crypto');
const fs = require('node:fs');
const { homedir, tmpdir } = require('node:os');
const { join } = require('node:path');
const { parseArgs } = require('node:util');
const { FAILING_SUITES } = require('./failing.js');
const { judge } = require('./judge.js');
const { runOne } = require('./one.js');
const { sourcePackage } = require('./source.js');
const { outcomes } = require('./tap.js');

const OPTIONS = { json: { type: 'string' }, node: { type: 'string' } };
const INSTALL_LIMIT_MS = 300_000;
const PACKAGES = join(__dirname, 'suites');
const TAP = '--test-reporter=tap';

/** @type {Record<string, (modules: string) => { args: string[], cwd?: string,
 *   files: string[], preload?: boolean }>} */
const SUITES = {
  fastify: (modules) => {
    const folder = join(modules, 'fastify', 'test');
    const files = ['http2', 'https'].flatMap((part) =>
      fs.readdirSync(join(folder, part)).map((file) => join(folder, part, file)),
    );
    return { args: [TAP], files };
  },
  opentelemetry: () => ours('opentelemetry.js'),
  supertest: () => ours('supertest.js'),
  ws: (modules) => {
    const folder = sourcePackage({ name: 'node-ws', version: '8.18.1' });
    const files = ['websocket', 'websocket-server'].map((name) =>
      join(folder, 'test', `${name}.test.js`),
    );
    return {
      args: [join(modules, 'mocha', 'bin', 'mocha'), '--reporter', 'tap'],
      cwd: folder,
      files,
    };
  },
};

/** A program of this folder, which asks for its servers by name. */
function ours(file) {
  return { args: [TAP], files: [join(PACKAGES, file)], preload: false };
}

async function main() {
  const { positionals, values } = parseArgs({ allowPositionals: true, options: OPTIONS });
  const modules = installed();
  const names = positionals.length > 0 ? positionals : Object.keys(SUITES);
  const scratch = fs.mkdtempSync(join(tmpdir(), 'sealane-suites-'));
  const results = [];
  try {
    for (const name of names) {
      if (!Object.hasOwn(SUITES, name)) {
        throw new Error(`there is no suite ${name}: there are ${Object.keys(SUITES).join(', ')}`);
      }
      const of = await runSuite(SUITES[name](modules), { modules, scratch, ...values });
      report(name, of);
      results.push(...of.map((one) => ({ suite: name, ...one })));
    }
  } finally {
    fs.rmSync(scratch, { force: true, recursive: true });
  }
  if (values.json) fs.writeFileSync(values.json, `${JSON.stringify(results, null, 2)}\n`);
  if (results.some(({ wrong }) => wrong)) process.exitCode = 1;
}

/** The packages that suites.json names, in a folder outside the repository. */
function installed() {
  const lock = fs.readFileSync(join(PACKAGES, 'package-lock.json'));
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'sealane');
  const digest = createHash('sha256').update(lock).digest('hex').slice(0, 16);
  const folder = join(cache, `suites-${digest}`);
  if (!fs.existsSync(folder)) {
    const scratch = `${folder}.${process.pid}`;
    fs.mkdirSync(scratch, { recursive: true });
    for (const file of ['package.json', 'package-lock.json']) {
      fs.copyFileSync(join(PACKAGES, file), join(scratch, file));
    }
    const quiet = ['--no-audit', '--no-fund', '--loglevel=error'];
    execFileSync('npm', ['ci', '--ignore-scripts', ...quiet], {
      cwd: scratch,
      stdio: ['ignore', 'ignore', 'inherit'],
      timeout: INSTALL_LIMIT_MS,
    });
    fs.renameSync(scratch, folder);
  }
  return join(folder, 'node_modules');
}

/** Every test of a suite, with Sealane's servers and with node's. */
async function runSuite({ files, ...suite }, { modules, node = process.execPath, scratch }) {
  const results = [];
  const how = {
    alone: true,
    cwd: scratch,
    ...suite,
    env: { NODE_PATH: modules },
    node,
    scratch,
    slot: 0,
  };
  for (const file of files) {
    const run = (withSealane) => runOne({ ...how, file, withSealane });
    const [ours, nodes] = [await run(true), await run(false)];
    results.push(...compared(ours, nodes, file));
  }
  return results;
}

function compared(ours, nodes, file) {
  const [of, ofNode] = [outcomes(ours), outcomes(nodes)];
  return [...new Set([...of.keys(), ...ofNode.keys()])].map((test) => {
    // A file that ends early has not run its later tests.
    const one = { output: ours.output, outcome: of.get(test) ?? 'fail', servers: ours.servers };
    const other = { outcome: ofNode.get(test) ?? 'fail' };
    const judged = judge({ listed: FAILING_SUITES[test], nodes: other, ours: one });
    // These are chosen, version by version: node itself passes them all.
    return { file, test, ...judged, wrong: judged.wrong || other.outcome === 'fail' };
  });
}

function report(name, results) {
  const counts = {};
  for (const { verdict } of results) counts[verdict] = (counts[verdict] ?? 0) + 1;
  const told = Object.entries(counts).map(([verdict, count]) => `${count} ${verdict}`);
  process.stdout.write(`${name}: ${results.length} tests: ${told.join(', ')}\n`);
  for (const { test, verdict, wrong } of results) {
    if (wrong) process.stdout.write(`  WRONG ${verdict}: ${test}\n`);
  }
}

main().catch((error) => {
  process.stderr.write(`suites.js: ${error.message}\n`);
  process.exitCode = 2;
});
