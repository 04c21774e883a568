import assert from 'node:assert/strict';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { Server } from '../js/runtime/server.js';
import { APPLICATION, EVERYDAY, findNode, given, ROOT, run } from './application.js';

let server: Server;

before(async () => {
  server = await Server.start();
  // Next to the programs and not in node_modules/, because only the package is installed.
  cpSync(join(ROOT, 'node_modules', 'ws'), join(APPLICATION, 'ws'), { recursive: true });
});
after(() => server.stop());

for (const major of [20, 22, 24]) {
  for (const [format, program] of [
    ['modules', 'modules.mjs'],
    ['CommonJS', 'common.cjs'],
  ] as const) {
    test(`the package works in Node ${major} as ${format}`, async () => {
      const node = await findNode(major);
      assert.match(await run(node, ['--version']), new RegExp(`^v${major}\\.`));
      const input = JSON.stringify(given(server, `demo.node.${major}.${format}`));
      const reported = await run(node, ['--throw-deprecation', program], { input });
      assert.deepEqual(JSON.parse(reported), EVERYDAY);
    });
  }
}
