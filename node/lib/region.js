'use strict';

// The memory of rings, shared with lane threads.

const { REGION_BYTES } = require('./ring.js');

/** A view's first byte may have to move by this much to be aligned. */
const ALIGNMENT_BYTES = 128;

/** Memory of lanes that have ended, as good as fresh: a collector would leave much of it lying. */
const spareRegions = [];
const SPARE_REGIONS_MAX = 32;

/**
 * An aligned view of shared memory for one ring, all of it zero.
 * @param {object} addon the binding
 * @returns {Uint8Array}
 */
function region(addon) {
  const spare = spareRegions.pop();
  if (spare !== undefined) return spare;
  const bytes = addon.regionBytes;
  if (bytes !== REGION_BYTES) {
    throw new Error(`a ring has ${bytes} bytes, this package knows ${REGION_BYTES}; reinstall it`);
  }
  const memory = new SharedArrayBuffer(bytes + ALIGNMENT_BYTES);
  return new Uint8Array(memory, addon.region(new Uint8Array(memory)), bytes);
}

/**
 * Gives back memory that is not used any more.
 * @param {Uint8Array} view a result of `region`
 */
function giveBack(view) {
  if (spareRegions.length === SPARE_REGIONS_MAX) return;
  view.fill(0);
  spareRegions.push(view);
}

module.exports = { giveBack, region };
