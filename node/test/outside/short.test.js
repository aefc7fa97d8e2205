'use strict';

// A selection of node's own test files, as they are: some of each kind, and some that are listed.

const assert = require('node:assert');
const { execFile } = require('node:child_process');
const fs = require('node:fs');
const { join } = require('node:path');
const { test } = require('node:test');
const { promisify } = require('node:util');
const { NODE_TESTS, folderOf } = require('./source.js');

const RUN = join(__dirname, 'run.js');
/** test/run.js fetches them, if it can, before this file's time begins. */
const isFetched = fs.existsSync(folderOf(NODE_TESTS));
const SELECTION = [
  'parallel/test-http2-alpn.js',
  'parallel/test-http2-https-fallback.js',
  'parallel/test-http2-socket-close.js',
  'parallel/test-https-agent-keylog.js',
  'parallel/test-https-drain.js',
  'parallel/test-https-server-close-idle.js',
  'parallel/test-https-simple.js',
  'parallel/test-https-strict.js',
  'parallel/test-tls-add-context.js',
  'parallel/test-tls-client-resume.js',
  'parallel/test-tls-destroy-stream.js',
  'parallel/test-tls-finished.js',
  'parallel/test-tls-multi-pfx.js',
  'parallel/test-tls-set-secure-context.js',
  'parallel/test-tls-sni-server-client.js',
  'parallel/test-tls-ticket-invalid-arg.js',
];

test("a selection of node's own tests, with the failures that are listed", {
  skip: isFetched ? false : "node's tests are not here: node test/outside/run.js fetches them",
}, async () => {
  const ran = await promisify(execFile)(process.execPath, [RUN, ...SELECTION]).catch(
    (error) => error,
  );
  assert.strictEqual(ran.code, undefined, `${ran.stdout}\n${ran.stderr}`);
  // Else it would show nothing of Sealane.
  assert.doesNotMatch(ran.stdout, /^fails in plain node too/m);
  assert.match(ran.stdout, new RegExp(`^ *${SELECTION.length}  files$`, 'm'));
});
