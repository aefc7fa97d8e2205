'use strict';

// For Jest and Mocha, which give `it` to each file, and for node:test, which does not.

const { servesOneRequest } = require('./program.js');

const it = globalThis.it ?? require('node:test').it;

it('serves a request', servesOneRequest);
