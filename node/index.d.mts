/** The same for `import`: by name, or all of it as the default. */

import sealane = require('./index.js');

export * from './index.js';
export default sealane;
