// Builds the package into dist/: ESM with chunks at every import(), the same as CommonJS, and types
// for both. The entries are those of `exports` in package.json.
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
const TARGET = 'es2022';

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

/** One build for all entries: what they share is one chunk, and a private name is short in one way. */
async function buildModules() {
  await build({
    absWorkingDir: here,
    entryPoints: entries,
    outbase: 'src',
    outdir: 'dist',
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'neutral',
    target: TARGET,
    external: Object.keys(manifest.peerDependencies ?? {}),
    define: { PACKAGE_VERSION: JSON.stringify(manifest.version) },
    mangleProps: /^_[^_]/,
    minifySyntax: true,
    sourcemap: true,
    sourcesContent: false,
    legalComments: 'none',
    logLevel: 'warning',
  });
}

/** Each module again as CommonJS, chunk by chunk: a class exists once there, too. */
async function buildCommonJs() {
  await build({
    entryPoints: files(dist, '.js'),
    outbase: dist,
    outdir: dist,
    outExtension: { '.js': '.cjs' },
    format: 'cjs',
    platform: 'neutral',
    target: TARGET,
    // A lazy chunk comes by require(): import() of a file is not to be had in every CommonJS host.
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
