// For Vitest.

import { it } from 'vitest';
import program from './program.js';

it('serves a request', program.servesOneRequest);
