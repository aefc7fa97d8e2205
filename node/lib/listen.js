'use strict';

// `listen` in all the forms that node's net.Server has, read into one object. Then the rest: a name
// is looked up, an address bound, events emitted.

const cluster = require('node:cluster');
const dns = require('node:dns');
const fs = require('node:fs');
const net = require('node:net');
const { coded, invalidType, invalidValue } = require('./errors.js');

/**
 * @param {import('node:net').Server} server
 * @param {import('./core').LaneServer} core
 * @param {unknown[]} args those of `server.listen`
 */
function listen(server, core, args) {
  const { where, callback, signal } = readListen(args);
  refuseWithoutPermission(where);
  if (server._handle) {
    throw coded(
      'ERR_SERVER_ALREADY_LISTEN',
      'Listen method has been called more than once without closing.',
    );
  }
  if (callback) {
    server.once('listening', callback);
  }
  if (signal) {
    closeOnAbort(server, signal);
  }
  // As in node: a look-up for an earlier call is void.
  server._listeningId += 1;
  if (where.host === undefined || net.isIP(where.host)) {
    bind(server, core, where);
  } else {
    lookUp(server, core, where);
  }
  return server;
}

/**
 * As node: a process without `--allow-net` opens no socket. A lane would, because it asks no
 * permission.
 */
function refuseWithoutPermission({ fd, path, port }) {
  const isRestricted = process.permission && process.allowedNodeEnvironmentFlags.has(ALLOW_NET);
  if (isRestricted && fd === undefined && !process.permission.has('net')) {
    throw coded(
      'ERR_ACCESS_DENIED',
      `Access to this API has been restricted. Use ${ALLOW_NET} to manage permissions.`,
      { permission: 'Net', resource: path ?? `${port ?? ''}` },
    );
  }
}

/**
 * @param {unknown[]} args
 * @returns {{ where: object, callback?: Function, signal?: AbortSignal }}
 */
function readListen(args) {
  const last = args.at(-1);
  const callback = typeof last === 'function' ? last : undefined;
  const [first, second, third] = args;
  const backlog = toCount(second) || toCount(third) || undefined;
  if (first !== null && typeof first === 'object') {
    return { ...readObject(first, backlog), callback };
  }
  if (isPath(first)) {
    return { where: { path: first, backlog }, callback };
  }
  const port = first == null || typeof first === 'function' ? 0 : readPort(first, 'options.port');
  const host = typeof second === 'string' && second !== '' ? second : undefined;
  return { where: { port, host, backlog }, callback };
}

/** `listen(options)`. Options without a meaning to node are ignored, as node does. */
function readObject(options, backlog) {
  if (options.handle || options._handle) {
    throw invalidValue(
      'options.handle',
      undefined,
      'is not offered: lanes accept on descriptors of their own',
      'give its descriptor as { fd }, or the address as { port, host }',
    );
  }
  const { signal } = options;
  if (signal !== undefined && typeof signal?.aborted !== 'boolean') {
    throw invalidType('options.signal', 'an instance of AbortSignal', signal);
  }
  const common = { backlog: toCount(options.backlog) || backlog, exclusive: !!options.exclusive };
  if (typeof options.fd === 'number' && options.fd >= 0) {
    return { where: { ...common, fd: options.fd }, signal };
  }
  if (('port' in options && options.port == null) || options.port != null) {
    const host = options.host || undefined;
    if (host !== undefined && typeof host !== 'string') {
      throw invalidType('options.host', 'of type string', host);
    }
    const { ipv6Only, reusePort } = options;
    const port = options.port == null ? 0 : readPort(options.port, 'options.port');
    return {
      where: { ...common, port, host, ipv6Only: !!ipv6Only, reusePort: !!reusePort },
      signal,
    };
  }
  if (isPath(options.path)) {
    return { where: readPath(options, common), signal };
  }
  throw invalidValue('options', options, 'must have a port, a path or an fd');
}

function readPath({ path, readableAll, writableAll }, common) {
  if (path[0] === '\0' && (readableAll || writableAll)) {
    const reason = 'cannot be set for an abstract socket, which has no mode';
    throw invalidValue('options.readableAll or options.writableAll', true, reason);
  }
  return { ...common, path, mode: (readableAll ? 0o444 : 0) | (writableAll ? 0o222 : 0) };
}

function readPort(port, option) {
  const number = typeof port === 'string' && port.trim() !== '' ? Number(port) : port;
  if (typeof number !== 'number' || !Number.isInteger(number) || number < 0 || number > 65_535) {
    const received = typeof port === 'object' ? '' : ` Received type ${typeof port} (${port}).`;
    const message = `${option} should be >= 0 and < 65536.${received}`;
    throw Object.assign(new RangeError(message), { code: 'ERR_SOCKET_BAD_PORT' });
  }
  return number;
}

/** A string that is no number, by which node distinguishes paths from ports. */
function isPath(value) {
  return typeof value === 'string' && toCount(value) === false;
}

function toCount(value) {
  const number = typeof value === 'function' || value == null ? Number.NaN : Number(value);
  return number >= 0 ? number : false;
}

function closeOnAbort(server, signal) {
  const close = () => server.close();
  if (signal.aborted) {
    process.nextTick(close);
    return;
  }
  signal.addEventListener('abort', close, { once: true });
  server.once('close', () => signal.removeEventListener('abort', close));
}

function lookUp(server, core, where) {
  const id = server._listeningId;
  dns.lookup(where.host, { all: true }, (error, addresses) => {
    if (id !== server._listeningId) {
      return;
    }
    if (error) {
      server.emit('error', error);
      return;
    }
    // A link-local address cannot be bound without its interface.
    const found = addresses.find(({ address }) => !isLinkLocal(address)) ?? addresses[0];
    bind(server, core, { ...where, host: found.address });
  });
}

function isLinkLocal(address) {
  return /^fe[89ab][0-9a-f]:/i.test(address);
}

function bind(server, core, { mode, exclusive, ...where }) {
  // Workers share a port by binding it each, where node's would ask the primary for its socket.
  const reusePort = where.reusePort || (where.port !== undefined && cluster.isWorker && !exclusive);
  // Those that a worker shares with others, by the system or by asking for it.
  const sharesTickets = cluster.isWorker && (reusePort || !exclusive);
  server._pipeName = where.path;
  try {
    core.bind(defined({ ...where, reusePort: reusePort || undefined }), sharesTickets, () => {
      tellPrimary(server);
      server.emit('listening');
    });
  } catch (error) {
    process.nextTick(() => server.emit('error', error));
    return;
  }
  if (mode) {
    fs.chmodSync(where.path, (fs.statSync(where.path).mode & 0o777) | mode);
  }
  if (cluster.isWorker) {
    closeWithWorker(server);
  }
}

/** In a worker, cluster's 'listening' event, which node's own listen would have sent. */
function tellPrimary(server) {
  const bound = server.address();
  if (cluster.isWorker && process.connected && bound !== null && typeof bound === 'object') {
    const addressType = bound.family === 'IPv6' ? 6 : 4;
    const { address, port } = bound;
    process.send({ cmd: 'NODE_CLUSTER', act: 'listening', address, port, addressType });
  }
}

/** Closes the server of a worker that is to disconnect. */
function closeWithWorker(server) {
  const close = () => server.listening && server.close();
  process.once('disconnect', close);
  server.once('close', () => process.off('disconnect', close));
}

function defined(object) {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

/** Node has it since 25, and before that processes with permissions may open sockets. */
const ALLOW_NET = '--allow-net';

module.exports = { listen, readListen };
