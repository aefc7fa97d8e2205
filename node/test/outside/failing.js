'use strict';
const FAILING = {};
module.exports = { FAILING };
