// Builds the package into dist/: ES modules, the same as CommonJS, and types for both. The entries
// are those of `exports` in package.json. dist/ has all messages and option checks;
// dist/production/ is for browsers in production.
// Usage: node build.mjs [--pack FOLDER]. With --pack it also packs the package into that folder.

import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { withValues } from './constant_values.mjs';
import { exposedNames, SHORTENED } from './internal_names.mjs';
import { shortNames } from './short_names.mjs';
import { withoutWords } from './words.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const manifest = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
const dist = join(here, 'dist');

/** The source of each entry: `./dist/react/index.js` is built from `src/react/index.ts`. */
const entries = Object.values(manifest.exports)
  .filter((conditions) => typeof conditions === 'object')
  .map(({ import: { default: file } }) =>
    file.replace(/^\.\/dist\/production\/(.*)\.js$/, 'src/$1.ts'),
  );

function files(folder, ending) {
  return readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name));
}

function read(folder, ending) {
  return files(folder, ending).map((file) => readFileSync(file, 'utf8'));
}

function run(command, parameters, options = {}) {
  const { status, error } = spawnSync(command, parameters, { stdio: 'inherit', ...options });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

const TARGET = 'es2022';

const compilerOptions = readFileSync(join(here, 'tsconfig.json'), 'utf8');

/** Defines the constant of src/build.ts, so that the bundler does not even parse excluded code. */
const BUILD = /^import \{ DEVELOPMENT \} from '[^']*';$/m;

/** Sources that the first entry loads at once for the client. */
const CLIENT = './src/client.ts';

/**
 * Modules that the first entry exports. Each is a separate chunk, so that programs load only what
 * they use.
 */
const apart = [
  ...readFileSync(join(here, entries[0]), 'utf8').matchAll(
    /^export (?!type)[^;]* from '\.\/(.*)\.js';$/gm,
  ),
].map(([, name]) => `src/${name}.ts`);

/**
 * Makes each separately loaded source (an entry, or an import()) appear to need everything that the
 * client loads at once. That becomes one chunk, instead of one for each set of sources that share a
 * part of it.
 */
function staysWhole(alone, isProduction) {
  return {
    name: 'what is loaded at once stays whole',
    setup({ onResolve, onLoad }) {
      onLoad({ filter: /\.ts$/, namespace: 'file' }, async ({ path }) => {
        const text = readFileSync(path, 'utf8').replace(BUILD, '');
        const source = isProduction ? withoutWords(text) : text;
        const contents = alone.has(path) ? `${source}\nimport 'all at once';\n` : source;
        return { contents: await withValues(contents, path, compilerOptions), loader: 'js' };
      });
      const whole = { path: 'all at once', namespace: 'whole', sideEffects: true };
      onResolve({ filter: /^all at once$/ }, () => whole);
      onLoad({ filter: /./, namespace: 'whole' }, () => ({
        contents: `export * from '${CLIENT}'`,
        resolveDir: here,
      }));
    },
  };
}

/** Modules: one per entry, and chunks for shared code and for import(). */
async function buildModules(outdir, isProduction) {
  const settings = {
    absWorkingDir: here,
    entryPoints: [...entries, ...apart],
    outbase: 'src',
    outdir,
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    packages: 'external',
    format: 'esm',
    platform: 'neutral',
    target: TARGET,
    define: {
      PACKAGE_VERSION: JSON.stringify(manifest.version),
      DEVELOPMENT: String(!isProduction),
    },
    mangleProps: SHORTENED,
    minifySyntax: true,
    sourcemap: true,
    sourcesContent: false,
    logLevel: 'warning',
  };
  const dry = {
    ...settings,
    metafile: true,
    write: false,
    plugins: [staysWhole(new Set(), isProduction)],
  };
  const inputsOf = async (entryPoints) => (await build({ ...dry, entryPoints })).metafile.inputs;
  const inputs = await inputsOf(settings.entryPoints);
  const lazy = Object.values(inputs)
    .flatMap(({ imports }) => imports)
    .filter(({ kind }) => kind === 'dynamic-import');
  const alone = [...entries.slice(1), ...lazy.map(({ path }) => path)];
  const whole = staysWhole(new Set(alone.map((path) => join(here, path))), isProduction);
  const [all, client] = [inputs, await inputsOf([CLIENT])].map((found) =>
    Object.keys(found)
      .filter((path) => path.startsWith('src/'))
      .map((path) => readFileSync(join(here, path), 'utf8')),
  );
  const mangleCache = shortNames(all, client, SHORTENED);
  await build({ ...settings, mangleCache, plugins: [whole] });
  // These modules are in chunks, and nothing imports their entry files.
  for (const source of apart) {
    remove(join(here, outdir, source.replace(/^src\/(.*)\.ts$/, '$1.js')));
  }
}

/** Remove imports without names. The modules have no side effects, and bundlers would warn. */
function dropBareImports() {
  for (const file of files(dist, '.js')) {
    const text = readFileSync(file, 'utf8').replace(/^import "\.[^"]*";$/gm, '');
    if (/^\s*(\/\/.*)?\s*$/.test(text)) remove(file);
    else writeFileSync(file, text);
  }
}

/** Drop the hashes from the names of lazily loaded chunks: bundlers add their own. */
function renameChunks() {
  const hashed = /\b(?!chunk-)(\w+)-[A-Z0-9]{8}(?=\.js\b)/g;
  for (const file of files(dist, '.js').flatMap((name) => [name, `${name}.map`])) {
    const text = readFileSync(file, 'utf8').replace(hashed, '$1');
    rmSync(file);
    writeFileSync(file.replace(hashed, '$1'), text);
  }
}

function remove(file) {
  rmSync(file);
  rmSync(`${file}.map`);
}

/** Converts each module to CommonJS. */
async function buildCommonJs() {
  await build({
    entryPoints: files(dist, '.js'),
    outbase: dist,
    outdir: dist,
    outExtension: { '.js': '.cjs' },
    format: 'cjs',
    // List the exports in the form that Node looks for when an ES module imports it.
    platform: 'node',
    target: TARGET,
    // Use require(), because a CommonJS host may not have import().
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

/**
 * Declarations of everything that the entries can reach, with source maps to src/; as .d.cts for
 * CommonJS.
 */
function buildTypes() {
  const compiler = join(
    dirname(createRequire(import.meta.url).resolve('typescript/package.json')),
    'bin',
    'tsc',
  );
  const options = [
    ...['--declaration', '--emitDeclarationOnly', '--declarationMap', '--stripInternal'],
    ...['--outDir', dist],
  ];
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
      remove(file);
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

/** Stop if the build shortens a name of the API. */
function checkNames() {
  const exposed = exposedNames(read(dist, '.d.ts'), read(join(here, 'src'), '.ts'));
  if (!exposed.length) return;
  process.stderr.write(
    `internal_names.mjs lists names that are not internal: ${exposed.join(' ')}\n`,
  );
  process.exit(1);
}

rmSync(dist, { recursive: true, force: true });
await buildModules('dist', false);
await buildModules('dist/production', true);
dropBareImports();
renameChunks();
await buildCommonJs();
buildTypes();
checkNames();

if (process.argv[2] === '--pack') {
  const folder = resolve(process.argv[3] ?? dist);
  mkdirSync(folder, { recursive: true });
  run('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder], { cwd: here });
}
