import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';
import { build } from 'esbuild';

import { APPLICATION, INSTALLED, ROOT, run } from './application.js';

const files = readdirSync(INSTALLED, { recursive: true, encoding: 'utf8' })
  .filter((name) => !name.startsWith('node_modules'))
  .map((name) => join(INSTALLED, name));
const manifest = JSON.parse(readFileSync(join(INSTALLED, 'package.json'), 'utf8'));
/** Packages that users of an entry install. */
const PEERS: Record<string, RegExp> = {
  './react': /^react(\/|$)/,
  './signed': /^@noble\//,
  './soc': /^@noble\//,
  './vue': /^vue$/,
};
const entries = Object.keys(manifest.exports).filter((name) => name !== './package.json');

function ending(...endings: string[]): string[] {
  const found = files.filter((name) => endings.some((each) => name.endsWith(each)));
  assert.ok(found.length, endings.join());
  return found;
}

test('the package has no dependencies, and its modules have no side effects', () => {
  assert.equal(manifest.sideEffects, false);
  assert.deepEqual(manifest.dependencies ?? {}, {});
  const peers = Object.keys(manifest.peerDependencies ?? {});
  assert.deepEqual(
    peers.filter((name) => !manifest.peerDependenciesMeta?.[name]?.optional),
    [],
  );
});

test('an entry is bundled for browsers, with neither a module of Node nor a package', async () => {
  for (const entry of entries) {
    const name = join('@hanzoai/pubsub', entry);
    const { metafile } = await build({
      stdin: { contents: `export * from '${name}'`, resolveDir: APPLICATION },
      absWorkingDir: APPLICATION,
      bundle: true,
      splitting: true,
      format: 'esm',
      outdir: 'out',
      platform: 'browser',
      external: [...Object.keys(manifest.peerDependencies ?? {}), ...builtinModules, 'node:*'],
      metafile: true,
      write: false,
      logLevel: 'silent',
    });
    const outside = Object.values(metafile.outputs)
      .flatMap(({ imports }) => imports)
      .filter(({ external }) => external)
      .map(({ path }) => path);
    assert.deepEqual(
      outside.filter((path) => !PEERS[entry]?.test(path)),
      [],
      entry,
    );
  }
});

test('an unused import leaves nothing in a bundle', async () => {
  for (const entry of entries) {
    const { outputFiles } = await build({
      stdin: { contents: `import '${join('@hanzoai/pubsub', entry)}'`, resolveDir: APPLICATION },
      external: Object.keys(manifest.peerDependencies ?? {}),
      format: 'esm',
      bundle: true,
      minify: true,
      write: false,
      logLevel: 'silent',
    });
    assert.equal(outputFiles[0]?.text.trim(), '', entry);
  }
});

test('ES modules use neither modules of Node nor CommonJS', () => {
  for (const file of ending('.js')) {
    assert.doesNotMatch(readFileSync(file, 'utf8'), /\bnode:\w|\brequire\(|__dirname/, file);
  }
});

test('the package contains no chunk that none of its modules imports', () => {
  for (const build of ['dist', 'dist/production']) {
    const folder = join(INSTALLED, build);
    const modules = ending('.js', '.cjs').filter((file) => file.startsWith(join(folder, '/')));
    const code = modules.map((file) => readFileSync(file, 'utf8')).join('\n');
    const chunks = readdirSync(join(folder, 'chunks')).filter((name) => /\.c?js$/.test(name));
    assert.deepEqual(
      chunks.filter((name) => !code.includes(`/${name}"`)),
      [],
      build,
    );
  }
});

test('modules have no static blocks, which the default settings of React Native do not bundle', () => {
  for (const file of ending('.js', '.cjs')) {
    assert.doesNotMatch(readFileSync(file, 'utf8'), /\bstatic\s*\{/, file);
  }
});

test('every entry has the builds of the first one under the same conditions', () => {
  const builds = entries.map((entry) => {
    const conditions = manifest.exports[entry];
    const [, name] = conditions.import.default.match(/^\.\/dist\/production\/(.*)\.js$/);
    return JSON.stringify(conditions).replaceAll(`/${name}.`, '/NAME.');
  });
  assert.deepEqual([...new Set(builds)], builds.slice(0, 1));
});

test('both forms of an entry export the same names', async () => {
  for (const entry of entries.filter((name) => !(name in PEERS))) {
    const name = join('@hanzoai/pubsub', entry);
    const program = `
      const common = require.resolve('${name}');
      const forms = [require(common), import('${name}'), import(common)];
      Promise.all(forms).then((all) => {
        process.stdout.write(JSON.stringify(all.map(Object.keys)));
      });`;
    const [required, modules, imported] = (
      JSON.parse(await run(process.execPath, ['--eval', program])) as string[][]
    ).map((names) => names.filter((key) => !/^(default|module.exports|__esModule)$/.test(key)));
    assert.deepEqual(required?.sort(), modules?.sort(), entry);
    assert.deepEqual(imported?.sort(), modules, `${entry} of CommonJS, imported by a module`);
  }
});

test('the version is that of the manifest', async () => {
  const program = "process.stdout.write(require('@hanzoai/pubsub').VERSION)";
  assert.equal(await run(process.execPath, ['--eval', program]), manifest.version);
});

test('private names are short', () => {
  // `_socket`, and the names in `frames.js`, are those of the package `ws`.
  const modules = ending('.js').filter((file) => !file.endsWith('/dist/chunks/frames.js'));
  const code = modules.map((file) => readFileSync(file, 'utf8'));
  const long = code.flatMap((text) => text.match(/(?<!\.)\._(?!socket\b)[A-Za-z]\w+/g) ?? []);
  assert.deepEqual(long, []);
});

test('a source map refers to a source in the package', () => {
  for (const file of ending('.js.map', '.cjs.map', '.d.ts.map', '.d.cts.map')) {
    const { sources } = JSON.parse(readFileSync(file, 'utf8')) as { sources: string[] };
    for (const source of sources) {
      const path = join(dirname(file), source);
      assert.ok(existsSync(path), `${relative(INSTALLED, file)} names ${source}`);
      assert.match(relative(INSTALLED, path), /^(src|dist)\b/, source);
    }
    assert.ok(existsSync(file.replace(/\.map$/, '')), file);
  }
});

test('a trace names the line of the source, in both forms', async () => {
  for (const load of ["import('@hanzoai/pubsub')", "Promise.resolve(require('@hanzoai/pubsub'))"]) {
    const program = `${load}
      .then(({ PubSub }) => new PubSub({ url: 'ftp://example.com', token: 'x' }))
      .catch((error) => process.stdout.write(error.stack));`;
    const reported = await run(process.execPath, ['--enable-source-maps', '--eval', program]);
    const [file, line] = /pubsub\/(src\/settings\/\w+\.ts):(\d+)/.exec(reported)?.slice(1) ?? [];
    assert.ok(file, reported);
    const text = readFileSync(join(INSTALLED, file), 'utf8').split('\n')[Number(line) - 1];
    assert.match(text ?? '', /throw|new |\(/, `${file}:${line}`);
  }
});

test('no file contains a path of the build machine', () => {
  for (const file of ending('.js', '.cjs', '.map', '.ts', '.cts', '.json')) {
    assert.ok(!readFileSync(file, 'utf8').includes(ROOT), file);
  }
});

test('declarations contain nothing internal', () => {
  for (const file of ending('.d.ts', '.d.cts')) {
    const text = readFileSync(file, 'utf8');
    assert.ok(!text.includes('@internal'), file);
  }
  for (const name of ['compact', 'runtime/driver', 'runtime/inbox', 'session/ports']) {
    assert.ok(!existsSync(join(INSTALLED, 'dist', `${name}.d.ts`)), `${name} is reached`);
  }
});
