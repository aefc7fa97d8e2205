'use strict';

/** The verdict on a test file's outcome: compared with plain node's, and with the list. */

/**
 * Runs a file with Sealane's servers, and where that does not pass with node's own too.
 *
 * @param {{ why: string, says: RegExp } | undefined} listed
 * @param {(withSealane: boolean) => Promise<{ outcome: string, servers: number, output: string }>}
 *   run
 */
async function tested(listed, run) {
  let ours = await run(true);
  let note;
  if (ours.outcome === 'fail' && listed === undefined) {
    // The machine may have been too full for a test that counts on time. If so, the note has it.
    const again = await run(true);
    if (again.outcome !== 'fail') note = 'only when it was run again';
    ours = again;
  }
  const nodes = ours.outcome === 'pass' ? undefined : await run(false);
  return { note, output: ours.output, servers: ours.servers, ...judge({ listed, nodes, ours }) };
}

/**
 * @param {{ listed?: { why: string, says: RegExp }, nodes?: object, ours?: object }} outcomes
 * @returns {{ verdict: string, why?: string, wrong: boolean }}
 */
function judge({ listed, nodes, ours }) {
  if (ours === undefined) return { verdict: 'listed, and no such test', wrong: true };
  if (nodes?.outcome === 'fail' && ours.outcome === 'fail') {
    return { verdict: 'fails in plain node too', wrong: false };
  }
  switch (ours.outcome) {
    case 'pass':
      if (listed) return { verdict: 'listed, and passes', wrong: true };
      return {
        verdict: ours.servers > 0 ? 'passes with servers of Sealane' : 'passes without a server',
        wrong: false,
      };
    case 'skip':
      if (nodes.outcome === 'skip') return { verdict: 'skipped in plain node too', wrong: false };
      return { verdict: 'skipped with Sealane alone', wrong: true };
    default:
      if (listed === undefined) return { verdict: 'fails, and is not listed', wrong: true };
      if (listed.says.test(ours.output)) {
        return { verdict: 'fails as listed', why: listed.why, wrong: false };
      }
      return { verdict: 'fails otherwise than listed', why: listed.why, wrong: true };
  }
}

module.exports = { judge, tested };
