import assert from 'node:assert/strict';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { before, test } from 'node:test';
import { build } from 'esbuild';

import { APPLICATION, findNode, ROOT, run } from './application.js';

const COMPILER = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');

/** No test opens a socket or waits in real time. */
const ALONE = `
  const net = require('node:net');
  for (const method of ['connect', 'listen']) {
    for (const Kind of [net.Socket, net.Server]) {
      if (Kind.prototype[method]) Kind.prototype[method] = () => process.exit(99);
    }
  }
`;

let folder: string;

/** The tests of docs/testing.md and of the example, run as a user runs them. */
before(() => {
  folder = mkdtempSync(join(APPLICATION, 'testing-'));
  cpSync(join(ROOT, 'examples', 'testing'), folder, { recursive: true });
  const page = readFileSync(join(ROOT, 'docs', 'testing.md'), 'utf8');
  const shown = [...page.matchAll(/^```ts\n(.*?)^```/gms)].map(([, text = '']) => text);
  assert.equal(shown.length, 2);
  for (const [n, text] of shown.entries()) writeFileSync(join(folder, `shown${n}.test.ts`), text);
  writeFileSync(join(folder, 'alone.cjs'), ALONE);
});

const sources = (): string[] => readdirSync(folder).filter((name) => name.endsWith('.ts'));

test('a test of a reconnect with loss has at most fifteen lines', () => {
  const text = readFileSync(join(folder, 'shown0.test.ts'), 'utf8');
  const lines = text.slice(text.indexOf("test('")).trimEnd().split('\n');
  assert.ok(lines.length - 2 <= 15, `${lines.length - 2} lines inside`);
});

test('tests of programs compile against the package with the resolution of Node and of a bundler', async () => {
  for (const [module, moduleResolution] of [
    ['nodenext', 'nodenext'],
    ['esnext', 'bundler'],
  ]) {
    const compilerOptions = {
      module,
      moduleResolution,
      strict: true,
      noEmit: true,
      target: 'es2022',
      lib: ['ES2022', 'DOM', 'ESNext.Disposable'],
      types: ['node'],
      typeRoots: [join(ROOT, 'node_modules', '@types')],
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
    };
    writeFileSync(
      join(folder, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, files: sources() }),
    );
    await run(process.execPath, [COMPILER, '--project', folder, '--pretty', 'false']);
  }
});

test('programs load none of the testing code', async () => {
  for (const entry of ['@hanzoai/pubsub', '@hanzoai/pubsub/react']) {
    const { metafile } = await build({
      stdin: { contents: `export * from '${entry}'`, resolveDir: APPLICATION },
      absWorkingDir: APPLICATION,
      bundle: true,
      splitting: true,
      format: 'esm',
      outdir: 'out',
      external: ['react'],
      metafile: true,
      write: false,
    });
    const modules = Object.keys(metafile.inputs).filter((name) => name.includes('pubsub/dist'));
    assert.ok(modules.length > 3);
    for (const name of modules) {
      const map = JSON.parse(readFileSync(join(APPLICATION, `${name}.map`), 'utf8'));
      assert.ok(!map.sources.some((source: string) => source.includes('/testing/')), name);
    }
  }
});

for (const [major, format] of [
  [20, 'esm'],
  [20, 'cjs'],
  [22, 'esm'],
  [24, 'cjs'],
] as const) {
  test(`tests of programs pass in Node ${major} as ${format}, without a socket`, async () => {
    const names = sources().filter((name) => name.endsWith('.test.ts'));
    const out = join(folder, `${major}-${format}`);
    mkdirSync(out);
    await build({
      absWorkingDir: folder,
      entryPoints: names,
      outdir: out,
      bundle: true,
      packages: 'external',
      platform: 'node',
      format,
      target: 'node20',
      outExtension: { '.js': format === 'esm' ? '.mjs' : '.cjs' },
      logLevel: 'warning',
    });
    const built = readdirSync(out).map((name) => join(out, name));
    const alone = ['--require', join(folder, 'alone.cjs')];
    const options = ['--test', '--test-reporter=tap', '--test-timeout=60000'];
    const reported = await run(await findNode(major), [...alone, ...options, ...built]);
    assert.match(reported, /^# pass 4$/m);
    assert.match(reported, /^# fail 0$/m);
  });
}

for (const major of [20, 24]) {
  test(`\`npm test\` of the example runs its tests in Node ${major}`, async () => {
    const copy = mkdtempSync(join(APPLICATION, 'example-'));
    cpSync(join(ROOT, 'examples', 'testing'), copy, { recursive: true });
    mkdirSync(join(copy, 'node_modules'));
    symlinkSync(join(ROOT, 'node_modules', '@types'), join(copy, 'node_modules', '@types'));
    const { scripts } = JSON.parse(readFileSync(join(copy, 'package.json'), 'utf8'));
    const path = [dirname(await findNode(major)), join(ROOT, 'node_modules', '.bin')].join(':');
    const reported = await run('sh', ['-c', `PATH="${path}:$PATH"; ${scripts.test}`], {
      cwd: copy,
    });
    assert.match(reported, /^(#|ℹ) pass [1-9]/m);
    assert.match(reported, /^(#|ℹ) fail 0$/m);
  });
}
