/**
 * TLS off Node's main thread. Servers by the names and meanings of node's `https` and `tls`.
 * Handshakes and records run on Rust threads, called lanes.
 *
 * Each difference from node is documented at its option or method. An option that is not offered
 * throws, with the reason and the alternative. Ignored values, such as suites that do not exist, or
 * unknown options, cause one warning of the process.
 */

/// <reference types="node" />

import type { KeyObject } from 'node:crypto';
import * as http from 'node:http';
import * as https from 'node:https';
import * as net from 'node:net';
import * as nodeTls from 'node:tls';

type Pem = string | Buffer | NodeJS.ArrayBufferView;

/** A private key with a separate passphrase. */
export interface EncryptedKey {
  pem: Pem;
  passphrase?: string | undefined;
}

/** The parts of a server that a client sees: certificates, keys, versions, suites. */
export interface SecureContextOptions {
  /**
   * PEM of the authorities that may issue client certificates. Default, where `requestCert` is set:
   * the roots that this node trusts. Clients get no list of their names. As in node, issuers found
   * here complete the chain of a `cert` that is given without them. An intermediate need not be
   * sent by clients, but is not trusted without its own issuer here.
   */
  ca?: Pem | Pem[] | undefined;
  /** PEM certificate chains, the server's own certificate first. Several for several keys. */
  cert?: Pem | Pem[] | undefined;
  /**
   * Ours: files and directories with certificates and keys, found by their content. A client gets
   * the one for the name it asks for. `server.reload()` reads them again.
   */
  certificates?: string | URL | Array<string | URL> | undefined;
  /**
   * Suites in OpenSSL's language, or by IANA's names. Offered are the three of TLS 1.3, and ECDHE
   * with AES-GCM or ChaCha20-Poly1305 of TLS 1.2; others are passed over, unless nothing is left.
   * Unlike in node, a security level above 2 throws. Default: `tls.DEFAULT_CIPHERS`.
   */
  ciphers?: string | undefined;
  /** PEM revocation lists for client certificates. */
  crl?: Pem | Pem[] | undefined;
  /**
   * Groups between colons, such as `X25519:P-256`, or `auto`. Those of OpenSSL that are not offered
   * are passed over, unless nothing is left. Default: `auto`.
   */
  ecdhCurve?: string | undefined;
  /** Ours: the same as `ecdhCurve`, by the name that TLS 1.3 has for it. */
  groups?: string | undefined;
  /** The server's order of suites decides, not the client's. Default: true. */
  honorCipherOrder?: boolean | undefined;
  /** PEM private keys, in any order: each is found for its certificate. */
  key?: Pem | KeyObject | Array<Pem | KeyObject | EncryptedKey> | undefined;
  /** `TLSv1.2` or `TLSv1.3`. Default: `tls.DEFAULT_MAX_VERSION`. */
  maxVersion?: nodeTls.SecureVersion | undefined;
  /** `TLSv1.2` or `TLSv1.3`; lower ones throw. Default: `tls.DEFAULT_MIN_VERSION`, if not lower. */
  minVersion?: nodeTls.SecureVersion | undefined;
  /** Of those private keys that are encrypted. */
  passphrase?: string | undefined;
  /** Bits `SSL_OP_*` of `crypto.constants`, for settings that always hold here or can be chosen. */
  secureOptions?: number | undefined;
  /** `TLS_method`, `TLSv1_2_method` and their like; older ones throw. */
  secureProtocol?: string | undefined;
  /** Signature schemes between colons, by OpenSSL's or IANA's names. Default: all. */
  sigalgs?: string | undefined;
}

/** Sessions: how clients resume them. */
export interface TicketOptions {
  /** Sessions of one id do not resume under another. Default: none. */
  sessionIdContext?: string | undefined;
  /**
   * Seconds for which a session can be resumed, 1 to 604,800, the nearest of which is taken; it may
   * be up to twice as long. Default: 300.
   */
  sessionTimeout?: number | undefined;
  /**
   * 48 random bytes; the same for every process that serves the same names. Unlike in node, an
   * array is taken too: tickets are sealed with the first, and opened with any of up to 8. Default:
   * random.
   */
  ticketKeys?: Buffer | Buffer[] | undefined;
}

/** Settings of lanes, which node does not have. */
export interface LaneOptions {
  /**
   * The way of bytes to JavaScript. `ring`: shared memory, the fastest for HTTP/1 and for raw TLS.
   * `socket`: a socket pair, the fastest for HTTP/2. `auto`: chosen by the protocol of each
   * connection. Default: `auto`.
   */
  handover?: 'auto' | 'ring' | 'socket' | undefined;
  /**
   * Threads that do TLS. Default: one less than there are cores, at least 1; in a worker of
   * `node:cluster` 1.
   */
  lanes?: number | undefined;
  /** The most connections of each lane that wait until JavaScript takes them. Default: 1024. */
  maxPending?: number | undefined;
  /** Keeps each lane on a separate core. Default: false. */
  pinLanes?: boolean | undefined;
  /** Milliseconds that a client has to answer the end of a connection. Default: 5000. */
  shutdownTimeout?: number | undefined;
}

/**
 * Answers a client's name with a context; without one the server's own is taken. A `SecureContext`
 * of node's own `tls` is in the type so that options written for node fit; it fails the handshake.
 */
export type SNICallback = (
  servername: string,
  callback: (
    error: Error | null,
    context?: SecureContext | SecureContextOptions | nodeTls.SecureContext,
  ) => void,
) => void;

/** Options of {@link createTLSServer}: those of `tls.createServer`, and ours. */
export interface TLSServerOptions
  extends SecureContextOptions,
    TicketOptions,
    LaneOptions,
    net.ServerOpts {
  /**
   * Protocols in order of preference, or the same in their wire format. Default: `http/1.1` for
   * {@link createServer}, the protocols of an attached server for {@link attach}, none for
   * {@link createTLSServer}.
   */
  ALPNProtocols?: readonly string[] | readonly Uint8Array[] | NodeJS.ArrayBufferView | undefined;
  /**
   * Asked for each client that names a server, before the names of `addContext` are looked at,
   * which serve where it gives no context. While it is not answered, only that client waits.
   */
  SNICallback?: SNICallback | undefined;
  /** Connections from these addresses are closed. */
  blockList?: net.BlockList | undefined;
  /** Milliseconds in which a handshake must be done. Default: 120000. */
  handshakeTimeout?: number | undefined;
  /**
   * Clients without a certificate that `ca` verifies are refused. Unlike in node, so are those that
   * resume a session with a certificate which has expired since. Default: true.
   */
  rejectUnauthorized?: boolean | undefined;
  /** Clients are asked for a certificate. Default: false. */
  requestCert?: boolean | undefined;
}

/** Options of {@link createServer}: those of `https.createServer`, and ours. */
export interface ServerOptions<
  Request extends typeof http.IncomingMessage = typeof http.IncomingMessage,
  Response extends typeof http.ServerResponse<InstanceType<Request>> = typeof http.ServerResponse,
> extends TLSServerOptions,
    Omit<http.ServerOptions<Request, Response>, keyof TLSServerOptions> {}

/** Certificates, keys and versions, parsed and validated. Immutable. */
export class SecureContext {
  private constructor();
  /** Chains as DER, each from the server's own certificate upwards. */
  readonly certificates: Buffer[][];
  /** Names that the certificates are for. */
  readonly names: string[];
  /** Oddities of the certificates, which are served all the same. */
  readonly warnings: string[];
}

/** Parses and validates at once, which blocks this thread. Throws all errors. */
export function createSecureContext(options?: SecureContextOptions): SecureContext;

/** The same off the thread. */
export function createSecureContextAsync(options?: SecureContextOptions): Promise<SecureContext>;

/**
 * The counts of one lane since its start. A property with `now` in its description is a value of
 * this moment.
 */
export interface LaneStats {
  /** Times that a connection could not be taken, for example for want of descriptors. */
  acceptErrors: number;
  /** Connections taken from the listening socket. */
  accepted: number;
  /** Bytes of clients' plaintext. */
  bytesRead: number;
  /** Bytes of plaintext for clients. */
  bytesWritten: number;
  /** Bytes that wait in the ring towards the lane, now. */
  commandsDepth: number;
  /** Connections, now, those in their handshake included. */
  connections: number;
  /** Failed handshakes and key log lines that did not reach JavaScript, for want of room. */
  dropped: number;
  /** Connections that ended, by cause; a cause that has not come is not there. */
  ended: Record<string, number>;
  /** Bytes that wait in the ring towards JavaScript, now. */
  eventsDepth: number;
  /** Handshakes that failed, by cause. */
  failed: Record<string, number>;
  /** The count of publications of contexts. */
  generation: number;
  /** Microseconds of all handshakes, each from its first byte to its last. */
  handshakeTimeUs: number;
  /** Handshakes done. */
  handshakes: number;
  /** Handshakes under way, now. */
  handshaking: number;
  keysDecoded: number;
  keysEvicted: number;
  keysFailed: number;
  /** Connections handed to JavaScript. */
  opened: number;
  /** Faults of sealane's own, each of which cost one connection. */
  panics: number;
  /** Connections that JavaScript has not taken, now; see `maxPending`. */
  pending: number;
  /** Handshakes that resumed a session. */
  resumed: number;
  /** Times that a connection waited for room in the ring towards JavaScript. */
  stalls: number;
  /** Turns of the lane's loop. */
  turns: number;
  /** Times that JavaScript was woken. */
  wakeups: number;
}

/**
 * A context, or the options of one. Node's own forms are in the type so that its servers' methods
 * are ours too. A `SecureContext` of node's `tls`, which does not give its keys out, throws.
 */
export type AnyContext =
  | SecureContext
  | SecureContextOptions
  | nodeTls.SecureContext
  | nodeTls.SecureContextOptions;

/** The properties of our servers in addition to node's. */
export interface LaneServer {
  /**
   * Clients that ask for this name, or match it if it begins with `*.`, get this context. Unlike in
   * node, a name that is there is replaced, and an exact name goes before a wildcard.
   */
  addContext(servername: string, context: AnyContext): void;
  /** The key that seals tickets now. */
  getTicketKeys(): ReturnType<nodeTls.Server['getTicketKeys']>;
  /**
   * Reads the files of `certificates` again, off the thread. On an error all stays as it was. No
   * connection is lost.
   */
  reload(): Promise<void>;
  /** Takes back a context of `addContext`. Returns false if there was no such name. */
  removeContext(servername: string): boolean;
  /**
   * From now on new connections, on all lanes, get this context. Unlike in node, a
   * {@link SecureContext} is taken too.
   */
  setSecureContext(options: AnyContext & TicketOptions): void;
  /**
   * Tickets are sealed with the first key and opened with any: give `[new, ...old]` to rotate.
   */
  setTicketKeys(keys: Buffer | Buffer[]): void;
  /** The counts of the lanes. There are no lanes while the server does not listen. */
  stats(): { lanes: LaneStats[] };
}

/**
 * An `https.Server` of node's with TLS by lanes. 'connection' and 'secureConnection' both come
 * after the handshake, with the same socket. A socket that the program hands over itself, by
 * `emit('connection', socket)`, is served by node's own TLS. Events and options of sessions
 * (`newSession`, `resumeSession`, `OCSPRequest`) throw.
 */
export class Server<
  Request extends typeof http.IncomingMessage = typeof http.IncomingMessage,
  Response extends typeof http.ServerResponse<InstanceType<Request>> = typeof http.ServerResponse,
> extends https.Server<Request, Response> {
  constructor(onRequest?: http.RequestListener<Request, Response>);
  constructor(
    options: ServerOptions<Request, Response>,
    onRequest?: http.RequestListener<Request, Response>,
  );
}

export interface Server<
  Request extends typeof http.IncomingMessage = typeof http.IncomingMessage,
  Response extends typeof http.ServerResponse<InstanceType<Request>> = typeof http.ServerResponse,
> extends LaneServer {
  addContext(servername: string, context: AnyContext): void;
  setSecureContext(options: AnyContext & TicketOptions): void;
  setTicketKeys(keys: Buffer | Buffer[]): void;
}

/** A `tls.Server` of node's, for any protocol, with TLS by lanes. */
export class TLSServer extends nodeTls.Server {
  constructor(onSecureConnection?: (socket: TLSSocket) => void);
  constructor(options: TLSServerOptions, onSecureConnection?: (socket: TLSSocket) => void);

  addListener<E extends keyof TLSServerEvents>(event: E, listener: TLSServerEvents[E]): this;
  addListener(event: string, listener: (...args: any[]) => void): this;
  on<E extends keyof TLSServerEvents>(event: E, listener: TLSServerEvents[E]): this;
  on(event: string, listener: (...args: any[]) => void): this;
  once<E extends keyof TLSServerEvents>(event: E, listener: TLSServerEvents[E]): this;
  once(event: string, listener: (...args: any[]) => void): this;
  prependListener<E extends keyof TLSServerEvents>(event: E, listener: TLSServerEvents[E]): this;
  prependListener(event: string, listener: (...args: any[]) => void): this;
  prependOnceListener<E extends keyof TLSServerEvents>(
    event: E,
    listener: TLSServerEvents[E],
  ): this;
  prependOnceListener(event: string, listener: (...args: any[]) => void): this;
}

// Properties of both parents are declared again, as ours.
export interface TLSServer extends LaneServer {
  addContext(servername: string, context: AnyContext): void;
  setSecureContext(options: AnyContext & TicketOptions): void;
  setTicketKeys(keys: Buffer | Buffer[]): void;
}

/** Events of {@link TLSServer}. {@link Server} has them in addition to those of `http.Server`. */
export interface TLSServerEvents {
  close: () => void;
  connection: (socket: TLSSocket) => void;
  drop: (dropped?: net.DropArgument) => void;
  error: (error: Error) => void;
  /** One line in the NSS key log format. Lanes keep such lines only while somebody listens. */
  keylog: (line: Buffer, socket: TLSSocket) => void;
  listening: () => void;
  secureConnection: (socket: TLSSocket) => void;
  /** A handshake failed. The socket is destroyed, and has only the data of its peer. */
  tlsClientError: (error: HandshakeError, socket: TLSSocket) => void;
}

/** The reason why a handshake failed. */
export interface HandshakeError extends Error {
  /** Node's code where it has one, such as `ERR_SSL_NO_SHARED_CIPHER`, else ours. */
  code: string;
  /** Ours: the name under which `stats()` counts it. */
  reason: string;
  remoteAddress?: string | undefined;
  remotePort?: number | undefined;
}

/**
 * A connection: an instance of node's `tls.TLSSocket`, without a handle of node's. Servers make
 * them. Not offered are `renegotiate`, `getFinished`, `getPeerFinished` and `enableTrace`, which
 * throw.
 */
export class TLSSocket extends nodeTls.TLSSocket {
  private constructor();
}

/** A server like `https.createServer`, with TLS by lanes. */
export function createServer<
  Request extends typeof http.IncomingMessage = typeof http.IncomingMessage,
  Response extends typeof http.ServerResponse<InstanceType<Request>> = typeof http.ServerResponse,
>(onRequest?: http.RequestListener<Request, Response>): Server<Request, Response>;
export function createServer<
  Request extends typeof http.IncomingMessage = typeof http.IncomingMessage,
  Response extends typeof http.ServerResponse<InstanceType<Request>> = typeof http.ServerResponse,
>(
  options: ServerOptions<Request, Response>,
  onRequest?: http.RequestListener<Request, Response>,
): Server<Request, Response>;

/** A server like `tls.createServer`, with TLS by lanes. */
export function createTLSServer(onSecureConnection?: (socket: TLSSocket) => void): TLSServer;
export function createTLSServer(
  options: TLSServerOptions,
  onSecureConnection?: (socket: TLSSocket) => void,
): TLSServer;

/**
 * Lets a server of node's `http`, `http2`, `https`, `tls` or `net` listen through lanes, and
 * returns it: `attach(http2.createServer(onRequest), { key, cert }).listen(8443)`. Lanes get their
 * TLS from these options alone. TLS options that were given to the server itself throw, unless they
 * are given here too.
 */
export function attach<S extends net.Server>(server: S, options?: TLSServerOptions): S & LaneServer;
