'use strict';
const FAILING = {};
const FAILING_SUITES = {};
module.exports = { FAILING, FAILING_SUITES };
