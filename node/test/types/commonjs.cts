// Code as in programs for CommonJS. `npm run types` compiles it, nothing runs it.

import http2 = require('node:http2');
import http = require('node:http');
import https = require('node:https');
import net = require('node:net');
import tls = require('node:tls');
import sealane = require('sealane');

const key = 'PEM';
const cert = Buffer.from('PEM');

const server = sealane.createServer(
  { key, cert, lanes: 2, handover: 'auto' },
  (request, response) => {
    response.setHeader('x-protocol', request.httpVersion);
    response.end('hello');
  },
);
server.listen(0, '127.0.0.1', 511, () => {});
server.listen({ port: 0, host: '::1', ipv6Only: true, signal: new AbortController().signal });
server.on('request', (request) => request.url);
server.close((error) => error?.message);
server.closeAllConnections();

// It takes the place of node's.
const inPlace: http.Server = server;
inPlace.keepAliveTimeout = 1000;
const ofHttps: https.Server = sealane.createServer();
ofHttps.addContext('c.example', { key, cert });
const ofTls: tls.Server = sealane.createTLSServer();
ofTls.setSecureContext({ key, cert });
const either: tls.Server = server;
either.setTicketKeys(either.getTicketKeys());

// Options that were written for node fit.
const forNode: https.ServerOptions = { key, cert, minVersion: 'TLSv1.2', keepAliveTimeout: 1000 };
sealane.createServer(forNode);
const forTls: tls.TlsOptions = { key: [{ pem: key, passphrase: 'x' }], cert, requestCert: true };
sealane.createTLSServer(forTls, (socket) => socket.end());

const named: sealane.SecureContext = sealane.createSecureContext({ key, cert });
server.addContext('*.example', named);
server.addContext('a.example', { certificates: 'certificates/' });
const had: boolean = server.removeContext('a.example');
server.setSecureContext(named);
server.setSecureContext({ key, cert, ticketKeys: [Buffer.alloc(48), Buffer.alloc(48)] });
server.setTicketKeys([Buffer.alloc(48)]);
const keys: Buffer = server.getTicketKeys();
server.setTicketKeys(keys);
const lanes: number = server.stats().lanes.length;
server.reload().then(() => had && lanes);

const raw = new sealane.TLSServer({ ALPNProtocols: ['mqtt'], shutdownTimeout: 1000 });
raw.on('secureConnection', (socket) => {
  const protocol: string | false | null = socket.alpnProtocol;
  const own: sealane.TLSSocket = socket;
  const nodes: tls.TLSSocket = socket;
  const certificate = nodes.getPeerCertificate(true);
  socket.write(`${protocol} ${own.authorized} ${certificate.subject}`);
  if (socket instanceof sealane.TLSSocket) {
    socket.setNoDelay();
  }
});
raw.on('tlsClientError', (error, socket) => `${error.code} ${error.reason} ${socket.remotePort}`);
raw.on('keylog', (line: Buffer) => line.length);
const listener: net.Server = raw;
listener.unref();

sealane.attach(http2.createServer(), { key, cert }).listen(8443);
const attached: https.Server & sealane.LaneServer = sealane.attach(https.createServer(), { key });
attached.addContext('b.example', named);

sealane.createServer({
  SNICallback: (servername, callback) => {
    sealane.createSecureContextAsync({ key, cert, passphrase: servername }).then(
      (context) => callback(null, context),
      (error: Error) => callback(error),
    );
  },
});

// @ts-expect-error: no such hand-over
sealane.createServer({ handover: 'pipe' });
// @ts-expect-error: TLSnappy's word for lanes
sealane.createServer({ threads: 4 });
// @ts-expect-error: a bundle is converted beforehand
sealane.createServer({ pfx: cert });
// @ts-expect-error: made by createSecureContext
new sealane.SecureContext();
// @ts-expect-error: options of HTTP on a server that speaks none
sealane.createTLSServer({ keepAliveTimeout: 1000 });
