'use strict';
// The tarballs of node/pack, installed as a user does it, without a network.

const assert = require('node:assert');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');

const FOLDER = path.join(__dirname, '..', '..');
const INSTALL_MS_MAX = 120_000;
/** Serves one request with the installed package, in the import form of its first argument. */
const ROUND_TRIP = `
const { createServer } = await (process.argv[1] === 'import'
  ? import('sealane')
  : Promise.resolve((await import('node:module')).createRequire(process.cwd() + '/')('sealane')));
const fs = await import('node:fs');
const https = await import('node:https');
const [cert, key] = ['cert.pem', 'key.pem'].map((file) => fs.readFileSync(file));
const server = createServer({ cert, key }, (request, response) => response.end('served'));
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  const where = { port, host: '127.0.0.1', servername: 'localhost' };
  https.get({ ...where, ca: cert, agent: false }, (answer) => {
    answer.setEncoding('utf8').on('data', (text) => process.stdout.write(text));
    answer.on('end', () => server.close());
  });
});
`;

describe('the packed packages', { timeout: 2 * INSTALL_MS_MAX }, () => {
  let scratch;
  let tarballs;

  before(() => {
    scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'sealane-package-'));
    const packed = execFileSync(path.join(FOLDER, 'pack'), ['--private', '--out', scratch], {
      encoding: 'utf8',
    });
    tarballs = packed.trim().split('\n');
  });

  after(() => fs.rmSync(scratch, { recursive: true, force: true }));

  /** A project with `chosen` installed in it. */
  function project(name, chosen) {
    const cwd = path.join(scratch, name);
    fs.mkdirSync(cwd);
    fs.writeFileSync(path.join(cwd, 'package.json'), '{ "name": "app", "private": true }');
    const args = ['install', '--offline', '--no-audit', '--no-fund', ...chosen];
    execFileSync('npm', args, { cwd, stdio: 'pipe', timeout: INSTALL_MS_MAX });
    return cwd;
  }

  function writeCertificate(cwd) {
    const request = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2';
    const names = '-subj /CN=localhost -addext subjectAltName=DNS:localhost';
    const files = '-keyout key.pem -out cert.pem';
    const args = `${request} ${names} ${files}`.split(' ');
    execFileSync('openssl', args, { cwd, stdio: 'pipe' });
  }

  it('install offline, and serve by require and by import', () => {
    const cwd = project('whole', tarballs);
    writeCertificate(cwd);
    for (const way of ['require', 'import']) {
      const args = ['--input-type=module', '-e', ROUND_TRIP, way];
      const run = spawnSync(process.execPath, args, { cwd, encoding: 'utf8', timeout: 30_000 });
      assert.deepStrictEqual([run.stdout, run.stderr, run.status], ['served', '', 0], way);
    }
  });

  it('run no script and bring only what is used', () => {
    const binaries = fs.readdirSync(path.join(scratch, 'whole', 'node_modules', '@sealane'));
    assert.strictEqual(binaries.length, 1);
    const installed = path.join(scratch, 'whole', 'node_modules', 'sealane');
    const manifest = JSON.parse(fs.readFileSync(path.join(installed, 'package.json'), 'utf8'));
    assert.strictEqual(manifest.scripts, undefined);
    assert.strictEqual(manifest.dependencies, undefined);
    assert.strictEqual(manifest.private, undefined);
    assert.ok(!fs.existsSync(path.join(installed, 'test')));
  });

  it('name no package but those that were packed, each in our scope, and come last', () => {
    const manifests = tarballs.map((tarball) => {
      const args = ['-xOzf', tarball, 'package/package.json'];
      return JSON.parse(execFileSync('tar', args, { encoding: 'utf8' }));
    });
    const root = manifests.pop();
    assert.strictEqual(root.name, 'sealane');
    const targets = Object.fromEntries(manifests.map(({ name }) => [name, root.version]));
    assert.deepStrictEqual(root.optionalDependencies, targets);
    for (const { name, publishConfig } of manifests) {
      assert.match(name, /^@sealane\/linux-(x64|arm64)-(gnu|musl)$/);
      assert.deepStrictEqual(publishConfig, { access: 'public' });
    }
  });

  it('are made by node/pack alone', () => {
    for (const args of [['pack'], ['publish', '--dry-run']]) {
      const run = spawnSync('npm', [...args, '--offline'], { cwd: FOLDER, encoding: 'utf8' });
      assert.notStrictEqual(run.status, 0, args[0]);
      assert.match(run.stderr, /run node\/pack|marked as private/, args[0]);
    }
    assert.deepStrictEqual(
      fs.readdirSync(FOLDER).filter((name) => name.endsWith('.tgz')),
      [],
    );
  });

  it('name the target and its package where no binary fits', () => {
    const cwd = project('bare', [tarballs.find((file) => /sealane-\d/.test(file))]);
    const args = ['-e', "require('sealane').createServer()"];
    const run = spawnSync(process.execPath, args, { cwd, encoding: 'utf8' });
    assert.notStrictEqual(run.status, 0);
    const target = /linux-(x64|arm64)-(gnu|musl)/.exec(run.stderr)?.[0];
    assert.ok(target, run.stderr);
    assert.ok(run.stderr.includes(`@sealane/${target}`), run.stderr);
  });
});
