// Code as in programs with modules. `npm run types` compiles it, nothing runs it.

import sealane, { type ServerOptions, createServer, TLSSocket } from 'sealane';

const options: ServerOptions = { certificates: new URL('./certificates', import.meta.url) };
const server = createServer(options, (_request, response) => response.end('hello'));
await using other = sealane.createServer(options);
other.on('connection', (socket) => socket instanceof TLSSocket && socket.authorized);
server.listen('/run/sealane.sock');
await server.reload();
