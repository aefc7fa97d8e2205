'use strict';

/** supertest gets a server, and asks `instanceof tls.Server` which protocol to use with it. */

const assert = require('node:assert');
const { test } = require('node:test');
const supertest = require('supertest');
const { createServer } = require('../../implementation.js');
const { own } = require('../../site.js');

test('supertest speaks TLS with a server that does not listen yet', async () => {
  const server = createServer(own, (_request, response) => response.end('over TLS'));
  const answer = await supertest(server).get('/').trustLocalhost();
  assert.strictEqual(answer.status, 200);
  assert.strictEqual(answer.text, 'over TLS');
});
