// Builds the package into dist/: modules, the same as CommonJS, and types for both. The entries are
// those of `exports` in package.json.
// Usage: node build.mjs [--pack FOLDER]; with --pack the package is also packed into that folder.

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = fileURLToPath(new URL('.', import.meta.url));
const manifest = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
const dist = join(here, 'dist');

/** The sources of the entries: `./dist/react/index.js` comes from `src/react/index.ts`. */
const entries = Object.values(manifest.exports)
  .filter((conditions) => typeof conditions === 'object')
  .map(({ import: { default: file } }) => file.replace(/^\.\/dist\/(.*)\.js$/, 'src/$1.ts'));

function files(folder, ending) {
  return readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name));
}

function run(command, parameters, options = {}) {
  const { status, error } = spawnSync(command, parameters, { stdio: 'inherit', ...options });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

const shared = {
  absWorkingDir: here,
  outbase: 'src',
  outdir: 'dist',
  format: 'esm',
  platform: 'neutral',
  target: 'es2022',
  define: { PACKAGE_VERSION: JSON.stringify(manifest.version) },
  // Names that begin with `_` are no part of the public face, and become short.
  mangleProps: /^_[^_]/,
  logLevel: 'warning',
};

/**
 * One module for each source that the entries can reach, so that a bundler takes from them what is
 * used and makes a chunk of what is loaded by import(). A name is shortened in one way everywhere.
 */
async function buildModules() {
  const { metafile, mangleCache } = await build({
    ...shared,
    entryPoints: entries,
    bundle: true,
    splitting: true,
    packages: 'external',
    mangleCache: {},
    metafile: true,
    write: false,
  });
  await build({
    ...shared,
    entryPoints: Object.keys(metafile.inputs),
    mangleCache,
    minifySyntax: true,
    sourcemap: true,
    sourcesContent: false,
  });
}

/** Each module again as CommonJS. */
async function buildCommonJs() {
  await build({
    entryPoints: files(dist, '.js'),
    outbase: dist,
    outdir: dist,
    outExtension: { '.js': '.cjs' },
    format: 'cjs',
    // Names what is exported in the way that Node looks for when a module imports it.
    platform: 'node',
    target: shared.target,
    // By require(): a CommonJS host need not have import().
    supported: { 'dynamic-import': false },
    sourcemap: true,
    sourcesContent: false,
    logLevel: 'warning',
  });
  for (const file of files(dist, '.cjs')) {
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, text.replace(/(require\("\.[^"]*)\.js"\)/g, '$1.cjs")'));
  }
}

const IMPORTED = /((?:from|import\() ?)(['"])(\.[^'"]*)\.js\2/g;

/** Declarations of what the entries can reach, with maps into src/; for CommonJS as .d.cts. */
function buildTypes() {
  const compiler = join(
    dirname(createRequire(import.meta.url).resolve('typescript/package.json')),
    'bin',
    'tsc',
  );
  const options = ['--declaration', '--emitDeclarationOnly', '--declarationMap', '--outDir', dist];
  run(process.execPath, [compiler, '--project', here, ...options]);
  const reached = new Set();
  const visit = (file) => {
    if (reached.has(file)) return;
    reached.add(file);
    for (const [, , , name] of readFileSync(file, 'utf8').matchAll(IMPORTED)) {
      visit(join(dirname(file), `${name}.d.ts`));
    }
  };
  for (const entry of entries) visit(join(dist, relative('src', entry).replace(/\.ts$/, '.d.ts')));
  for (const file of files(dist, '.d.ts')) {
    if (!reached.has(file)) {
      rmSync(file);
      rmSync(`${file}.map`);
      continue;
    }
    const [module, map] = [file, `${file}.map`].map((name) => readFileSync(name, 'utf8'));
    const common = file.replace(/\.d\.ts$/, '.d.cts');
    writeFileSync(
      common,
      module.replace(IMPORTED, '$1$2$3.cjs$2').replace(/\.d\.ts\.map$/m, '.d.cts.map'),
    );
    writeFileSync(`${common}.map`, map.replace(/\.d\.ts"/, '.d.cts"'));
  }
}

rmSync(dist, { recursive: true, force: true });
await buildModules();
await buildCommonJs();
buildTypes();

if (process.argv[2] === '--pack') {
  const folder = resolve(process.argv[3] ?? dist);
  run('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder], { cwd: here });
}
