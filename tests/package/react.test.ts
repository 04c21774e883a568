import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { build } from 'vite';

import { APPLICATION, INSTALLED, ROOT, run } from './application.js';

before(() => {
  for (const name of ['react', 'react-dom', 'scheduler']) {
    const [from, to] = [ROOT, APPLICATION].map((at) => join(at, 'node_modules', name));
    cpSync(from as string, to as string, { recursive: true });
  }
});

for (const program of ['react.mjs', 'react.cjs']) {
  test(`${program}: the hooks have the client of the first entry`, async () => {
    assert.deepEqual(JSON.parse(await run(process.execPath, [program])), [
      'initialized true true',
      'initialized true false',
    ]);
  });
}

test('the example, taken out of the repository, is built with the package that is installed', async () => {
  const root = join(APPLICATION, 'chat');
  cpSync(join(ROOT, 'examples', 'react'), root, { recursive: true });
  const [vite, here] = [ROOT, APPLICATION].map((at) => join(at, 'node_modules', 'vite'));
  symlinkSync(vite as string, here as string);
  await build({ root, logLevel: 'error' });
  const scripts = readdirSync(join(root, 'dist', 'assets')).filter((name) => name.endsWith('.js'));
  const text = scripts.map((name) => readFileSync(join(root, 'dist', 'assets', name), 'utf8'));
  assert.ok(text.some((each) => each.includes('pubsub-token')));
});

test('the hooks are marked as code of the client, and nothing else is', () => {
  for (const [file, marked] of [
    ['react/index.js', true],
    ['react/index.cjs', true],
    ['index.js', false],
    ['index.cjs', false],
  ] as const) {
    const text = readFileSync(join(INSTALLED, 'dist', file), 'utf8');
    assert.equal(/^("use strict";\s*)?"use client";/.test(text), marked, file);
  }
});
