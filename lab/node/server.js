'use strict';

// The server of `sealane-lab node`, in every mode that is Node's: what differs between them is who
// does TLS, and in how many processes. It takes one argument, its settings as JSON, answers with
// the files of a folder, says `ready` once all of its processes listen, and ends with its standard
// input. On SIGUSR2 it collects its garbage and prints how many sessions were resumed so far, in
// how many handshakes, and then `collected`.

const cluster = require('node:cluster');
const fs = require('node:fs');
const path = require('node:path');

const BACKLOG = 4096;
const BLOCK_EVERY_MS = 100;
const BLOCK_MS = 50;
const IDLE_MS_MAX = 600_000;

const settings = JSON.parse(process.argv[2]);
/** Of this process: a load client that resumes measures no full handshakes. */
const counts = { handshakes: 0, resumed: 0 };

if (settings.processes > 1 && cluster.isPrimary) {
  startProcesses();
} else {
  serve();
}
if (cluster.isPrimary) {
  process.stdin.on('end', () => process.exit(0)).resume();
  process.on('SIGUSR2', async () => {
    global.gc();
    const all = await Promise.all(Object.values(cluster.workers ?? {}).map(countsOf));
    const sum = (name) => all.reduce((total, one) => total + one[name], counts[name]);
    say(`resumed ${sum('resumed')} of ${sum('handshakes')}`);
    say('collected');
  });
}
if (cluster.isWorker) process.on('message', () => process.send(counts));

/** What a worker has counted. */
function countsOf(worker) {
  return new Promise((resolve) => {
    worker.once('message', resolve);
    worker.send('count');
  });
}

function startProcesses() {
  // Cheaper is what the kernel deals out, more even what Node does: whichever suits the load.
  cluster.schedulingPolicy = settings.even ? cluster.SCHED_RR : cluster.SCHED_NONE;
  let listening = 0;
  cluster.on('message', (_worker, message) => {
    if (message === 'listening') listening += 1;
    if (message === 'listening' && listening === settings.processes) say('ready');
  });
  // A process that is gone takes its share of every figure with it.
  cluster.on('exit', (worker, code, signal) => fail(`a process ended: ${signal ?? code}`));
  for (let started = 0; started < settings.processes; started += 1) cluster.fork();
}

function serve() {
  const server = create(answers());
  // An idle connection is there to be measured, not to be closed.
  server.keepAliveTimeout = IDLE_MS_MAX;
  server.on('error', (error) => fail(error.stack));
  server.on('secureConnection', (socket) => {
    counts.handshakes += 1;
    if (socket.isSessionReused()) counts.resumed += 1;
  });
  const where = { host: '127.0.0.1', port: settings.port, backlog: BACKLOG };
  if (settings.tls === 'sealane' && settings.processes > 1) where.reusePort = true;
  server.listen(where, () => {
    if (cluster.isWorker) process.send('listening');
    else say('ready');
  });
  if (settings.blocked) setInterval(block, BLOCK_EVERY_MS);
}

function create(answer) {
  const { tls, h2 } = settings;
  if (tls === 'none') return require('node:http').createServer(answer);
  const options = {
    key: fs.readFileSync(settings.key),
    cert: fs.readFileSync(settings.cert),
    ciphers: settings.ciphers,
    ecdhCurve: settings.group,
    minVersion: 'TLSv1.3',
    ticketKeys: Buffer.from(settings.ticketKeys, 'hex'),
  };
  if (tls === 'node') {
    if (h2) return require('node:http2').createSecureServer(options, answer);
    return require('node:https').createServer(options, answer);
  }
  const sealane = require(path.resolve(settings.package));
  Object.assign(options, { lanes: settings.lanes, handover: settings.handover });
  if (!h2) return sealane.createServer(options, answer);
  options.ALPNProtocols = ['h2'];
  return sealane.attach(require('node:http2').createServer(answer), options);
}

// The body of each path, from memory: a server that reads files would measure that too.
function answers() {
  const bodies = new Map();
  for (const name of fs.readdirSync(path.join(settings.bodies, 'bytes'))) {
    bodies.set(`/bytes/${name}`, fs.readFileSync(path.join(settings.bodies, 'bytes', name)));
  }
  return (request, response) => {
    const body = bodies.get(request.url);
    if (body === undefined) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, {
      'content-type': 'application/octet-stream',
      'content-length': body.length,
    });
    response.end(body);
  };
}

// An application that computes for half of the time.
function block() {
  const end = performance.now() + BLOCK_MS;
  while (performance.now() < end);
}

function say(word) {
  fs.writeSync(1, `${word}\n`);
}

function fail(reason) {
  fs.writeSync(2, `${reason}\n`);
  process.exit(1);
}
