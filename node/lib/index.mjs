// The same for `import`: by name, or all of it as the default.

import sealane from './index.js';

export const {
  SecureContext,
  Server,
  TLSServer,
  TLSSocket,
  attach,
  createSecureContext,
  createSecureContextAsync,
  createServer,
  createTLSServer,
} = sealane;
export default sealane;
