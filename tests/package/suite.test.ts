import assert from 'node:assert/strict';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { findNode, INSTALLED, ROOT, run } from './application.js';

let built: string;

before(async () => {
  const compile = [join(ROOT, 'tests', 'js', 'run.mjs'), '--build'];
  built = (await run(process.execPath, compile, { cwd: ROOT })).trim();
});
after(() => rmSync(built, { recursive: true, force: true }));

/**
 * The tests that use only the first entry and replace no internals. Tests of another entry import
 * it from the sources, whose error classes differ from those of the package.
 */
function suites(): string[] {
  const folder = join(built, 'tests', 'js', 'runtime');
  const files = readdirSync(folder)
    .filter((name) => name.endsWith('.test.js'))
    .map((name) => join(folder, name));
  const found = files.filter((file) => {
    const text = readFileSync(file, 'utf8');
    return (
      text.includes('/js/src/index.js"') &&
      !text.includes('"./virtual.js"') &&
      !/\/js\/src\/(history|signed|tokens)\//.test(text)
    );
  });
  // Without a file, `node --test` would run all tests that it finds.
  assert.ok(found.length > 0, 'no test comes by the first entry alone');
  return found;
}

/** On this version of Node, `tests/js/run.mjs` runs the same tests from the sources. */
const others = [20, 22, 24].filter((major) => major !== Number.parseInt(process.versions.node, 10));

for (const [index, major] of others.entries()) {
  const format = index === 0 ? 'cjs' : 'js';
  test(`the tests of the client pass with the package in Node ${major}, index.${format}`, async () => {
    const entry = pathToFileURL(join(INSTALLED, 'dist', `index.${format}`));
    writeFileSync(join(built, 'js', 'src', 'index.js'), `export * from '${entry}';\n`);
    const reported = await run(
      await findNode(major),
      ['--test', '--test-timeout=120000', '--test-reporter=tap', ...suites()],
      { cwd: ROOT, timeout: 280_000 },
    );
    assert.match(reported, /^# fail 0$/m);
    assert.ok(Number(/^# pass (\d+)$/m.exec(reported)?.[1]) > 20, reported.slice(-400));
  });
}
