// Runs the tests of the client in Firefox and WebKitGTK.
// Usage: node tests/browser/engines/run.mjs.

import { chosen, run } from '../../js/bundled.mjs';

const folder = 'browser/engines';
process.exit(await run(folder, chosen(folder, []), { test: 300_000, all: 600_000 }));
