'use strict';

/** OpenTelemetry sees requests by its replacement of https.Server.prototype.emit. */

const assert = require('node:assert');
const { test } = require('node:test');
const { SpanKind } = require('@opentelemetry/api');
const { HttpInstrumentation } = require('@opentelemetry/instrumentation-http');
const {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} = require('@opentelemetry/sdk-trace-base');

const exporter = new InMemorySpanExporter();
const instrumentation = new HttpInstrumentation();
instrumentation.setTracerProvider(
  new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
);
instrumentation.enable();

const { httpsSite, request } = require('../../site.js');
const { until } = require('../../within.js');

test('OpenTelemetry sees one request of a server of https, once', async (t) => {
  const server = await httpsSite(t, {}, (_incoming, response) => response.end('seen'));
  const answer = await request(server, { path: '/seen' });
  assert.strictEqual(answer.text, 'seen');
  const served = () => exporter.getFinishedSpans().filter(({ kind }) => kind === SpanKind.SERVER);
  await until(() => served().length > 0, 'a span');
  assert.strictEqual(served().length, 1);
  assert.strictEqual(served()[0].attributes['http.scheme'], 'https');
  assert.strictEqual(served()[0].attributes['http.target'], '/seen');
});
