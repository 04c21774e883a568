// Runs the tests that need a browser.
// Usage: node tests/browser/run.mjs [word…]. With words, it runs only files whose names contain one
// of them.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chosen, root, run } from '../js/bundled.mjs';

/**
 * Processes that share the files, each with its own Chromium: starting a process and a browser
 * takes four seconds of a core.
 */
const PARTS = 6;

const names = chosen('browser', process.argv.slice(2));
mkdirSync(join(root, 'tests', 'browser', 'artefacts'), { recursive: true });
process.exit(await run('browser', names, { test: 600_000, all: 900_000 }, {}, PARTS));
