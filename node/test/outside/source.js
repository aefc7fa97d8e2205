'use strict';

/**
 * Source packages of Debian: fetched by apt from the mirror that this machine is configured for,
 * and kept outside the repository. The machine's own lists of packages stay as they are.
 */

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const { homedir } = require('node:os');
const { dirname, join } = require('node:path');

/** Node's own tests. */
const NODE_TESTS = Object.freeze({
  name: 'nodejs',
  version: '24.21.0',
  part: 'test',
  release: 'forky',
});
/** The release with the archive of the other packages. It is stable: only patches change in it. */
const RELEASE = 'trixie';
const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';
const COMMAND_LIMIT_MS = 300_000;

/**
 * The folder of a source package as its authors published it, without Debian's patches.
 *
 * @param {{ name: string, version: string, part?: string, release?: string }} wanted the authors'
 *   version, the folder of the tarball that is kept, by default all of it, and Debian's release
 * @returns {string}
 */
function sourcePackage({ name, version, part, release = RELEASE }) {
  const folder = folderOf({ name, version });
  if (fs.existsSync(folder)) return folder;
  const cache = dirname(folder);
  fs.mkdirSync(cache, { recursive: true });
  const scratch = fs.mkdtempSync(join(cache, 'fetching-'));
  try {
    const tarball = download({ name, version, release }, scratch);
    const unpacked = join(scratch, 'unpacked');
    fs.mkdirSync(unpacked);
    const members = part === undefined ? [] : ['--wildcards', `*/${part}/*`];
    run('tar', ['-C', unpacked, '--strip-components=1', '-xf', tarball, ...members], scratch);
    fs.renameSync(unpacked, folder);
  } finally {
    fs.rmSync(scratch, { force: true, recursive: true });
  }
  return folder;
}

/** The folder of a source package, once it has been fetched. */
function folderOf({ name, version }) {
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'sealane');
  return join(cache, `${name}-${version}`);
}

/** @returns {string} the path of the tarball, with a hash that Debian has signed */
function download({ name, version, release }, scratch) {
  const apt = aptOf(scratch, release);
  run('apt-get', [...apt, '-qq', 'update'], scratch);
  const offered = run('apt-cache', [...apt, 'showsrc', name], scratch)
    .match(/^Version: .*$/gm)
    .map((line) => line.slice('Version: '.length));
  const exact = offered.find((one) => /^[\d.]+/.exec(one)?.[0] === version);
  if (exact === undefined) {
    throw new Error(
      `${release} has ${name} ${offered.join(', ')}, and not ${version}: give the folder of this ` +
        'version as an argument, or make the list fit the newer one',
    );
  }
  const files = run('apt-get', [...apt, 'source', '--print-uris', `${name}=${exact}`], scratch);
  const [, address, file, hash] = TARBALL.exec(files);
  const tarball = join(scratch, file);
  // Not every mirror knows a name by its escaped form.
  const uri = decodeURIComponent(address);
  run('/usr/lib/apt/apt-helper', [...apt, 'download-file', uri, tarball, hash], scratch);
  return tarball;
}

/** Options that make apt use a separate list in `scratch`, and write only there. */
function aptOf(scratch, release) {
  const list = join(scratch, 'list.sources');
  const lines = ['Types: deb-src', `URIs: ${mirror()}`, `Suites: ${release}`, 'Components: main'];
  if (fs.existsSync(KEYRING)) lines.push(`Signed-By: ${KEYRING}`);
  fs.writeFileSync(list, `${lines.join('\n')}\n`);
  for (const folder of ['lists/partial', 'archives/partial']) {
    fs.mkdirSync(join(scratch, folder), { recursive: true });
  }
  const settings = {
    'APT::Sandbox::User': '',
    'Dir::Cache': scratch,
    'Dir::Etc::sourcelist': list,
    'Dir::Etc::sourceparts': '-',
    'Dir::State::lists': join(scratch, 'lists'),
  };
  return Object.entries(settings).flatMap(([key, value]) => ['-o', `${key}=${value}`]);
}

/** The mirror from which this machine gets Debian's packages. */
function mirror() {
  const format = ['--format', '$(ORIGIN) $(CODENAME) $(REPO_URI)', 'Created-By: Packages'];
  const lines = run('apt-get', ['indextargets', ...format]).split('\n');
  // Names with a hyphen are those of updates and of security.
  const found = lines.map((line) => /^Debian [a-z]+ (\S+)$/.exec(line)).find((match) => match);
  if (!found) throw new Error("no mirror of Debian is among this machine's sources of packages");
  return found[1];
}

function run(program, args, cwd) {
  const options = { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] };
  return execFileSync(program, args, { ...options, timeout: COMMAND_LIMIT_MS });
}

/** The line of `--print-uris` for the authors' own archive, and not for a part next to it. */
const TARBALL = /^'(\S+)' (\S+\.orig\.tar\.\w+) \d+ (\w+:\w+)$/m;

module.exports = { NODE_TESTS, folderOf, sourcePackage };
