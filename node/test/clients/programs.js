'use strict';

/** Programs that tests drive: found or missed loudly, run within bounds. */

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

/** Of a program that hangs. Go first builds its library, while other builds may run. */
const LIMIT_MS = 300_000;
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

/**
 * For node:test's `skip`: the reason why a test cannot run here, or `false`. `./check` brings all
 * programs and sets CI, where none may be missing.
 * @param {string} name
 */
function missing(name) {
  if (find(name) !== undefined) return false;
  if (process.env.CI) throw new Error(`${name} is missing; ./check --only install brings it`);
  return `${name} is missing; ./check --only install brings it`;
}

function find(name) {
  return (process.env.PATH ?? '')
    .split(':')
    .concat('/usr/sbin', '/usr/local/go/bin')
    .map((folder) => path.join(folder, name))
    .find((file) => fs.existsSync(file));
}

/**
 * Runs a program to its end.
 * @param {string} name
 * @param {string[]} given
 * @param {{ input?: string|Buffer, env?: object, cwd?: string, succeeds?: boolean }} [options]
 * @returns {Promise<{ code: number|null, out: Buffer, text: string, err: string }>}
 */
function run(name, given, { input = '', env = {}, cwd, succeeds = true } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(find(name), given, { cwd, env: { ...process.env, ...env } });
    const [out, err] = [[], []];
    let bytes = 0;
    const keep = (list) => (chunk) => {
      bytes += chunk.length;
      if (bytes > OUTPUT_BYTES_MAX) child.kill('SIGKILL');
      list.push(chunk);
    };
    child.stdout.on('data', keep(out));
    child.stderr.on('data', keep(err));
    child.stdin.on('error', () => {});
    child.stdin.end(input);
    const timer = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS);
    child.on('error', reject);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      const all = Buffer.concat(out);
      const said = { code, out: all, text: String(all), err: String(Buffer.concat(err)) };
      if (succeeds && code !== 0) {
        const end = signal ?? `code ${code}`;
        reject(new Error(`${name} ${given.join(' ')}: ${end}\n${said.text}\n${said.err}`));
      } else {
        resolve(said);
      }
    });
  });
}

/** A folder for the length of a test. */
function folder(t) {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), 'sealane-'));
  t.after(() => fs.rmSync(made, { recursive: true, force: true, maxRetries: 5 }));
  return made;
}

/** Writes texts into a folder; gives their paths by the same names. */
function files(where, texts) {
  return Object.fromEntries(
    Object.entries(texts).map(([name, text]) => {
      const file = path.join(where, `${name}.pem`);
      fs.writeFileSync(file, text);
      return [name, file];
    }),
  );
}

module.exports = { files, folder, missing, run };
