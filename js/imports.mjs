// Checks the imports in src/, as the import rules of pyproject.toml do for the Python sources. The
// layers ignore imports of types, but not import(). Cycles are not allowed with any kind of import.
// Usage: node imports.mjs

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

/**
 * The layers: a folder or file of src/ may import those on the lines below its own, and itself. A
 * file that is listed with its folder counts separately.
 */
const LAYERS = [
  ['ai-sdk', 'index', 'react', 'sse', 'svelte', 'testing', 'tokens', 'vue', 'webhooks'],
  ['models'],
  ['history', 'requests', 'schema', 'signed', 'streams'],
  ['client'],
  ['topic'],
  ['runtime'],
  ['tabs'],
  ['transports'],
  ['http'],
  ['dialects'],
  ['session'],
  ['wire'],
  ['settings'],
  ['generated/http'],
  ['generated/wire'],
  ['wire/guard'],
  ['validate'],
  ['topic_names'],
  ['soc'],
  ['values', 'topics', 'users', 'runtime/waiting'],
  ['log_text'],
  ['errors', 'gap', 'clock', 'version', 'payload_bytes'],
  ['compact', 'error_text', 'prerendering'],
  ['generated'],
  ['build', 'inspection'],
];

/** Pure modules, which receive everything as arguments and load nothing. */
const NEVER_LAZY = ['session', 'dialects', 'topics', 'errors', 'generated'];

/** External packages that a layer may import; users install them. */
const PACKAGES = { react: /^react(\/|$)/, vue: /^vue$/, soc: /^@noble\/(curves|hashes)\// };

const here = fileURLToPath(new URL('.', import.meta.url));
const layerOf = new Map(LAYERS.flatMap((rooms, layer) => rooms.map((room) => [room, layer])));

function roomOf(path) {
  const name = path.slice('src/'.length).replace(/\.tsx?$/, '');
  return layerOf.has(name) ? name : name.split('/')[0];
}

/** Every file of src/ with its imports, as the bundler resolves them. */
async function readImports() {
  const sources = readdirSync(`${here}/src`, { recursive: true }).filter((name) =>
    /\.tsx?$/.test(name),
  );
  const { metafile } = await build({
    absWorkingDir: here,
    entryPoints: sources.map((name) => `src/${name.replaceAll('\\', '/')}`),
    bundle: true,
    splitting: true,
    format: 'esm',
    outdir: '/',
    packages: 'external',
    write: false,
    metafile: true,
    logLevel: 'error',
  });
  return Object.entries(metafile.inputs);
}

const wrong = [];
const modules = await readImports();
for (const [file, { imports }] of modules) {
  const room = roomOf(file);
  const layer = layerOf.get(room);
  if (layer === undefined)
    wrong.push(`${file}: the room \`${room}\` is in no layer of js/imports.mjs`);
  for (const { path, kind, external } of imports) {
    if (external) {
      if (!PACKAGES[room]?.test(path)) wrong.push(`${file} imports the package ${path}`);
      continue;
    }
    const other = roomOf(path);
    if (other !== room && layerOf.get(other) <= layer)
      wrong.push(`${file} imports ${path}, which is not below it`);
    if (kind === 'dynamic-import' && NEVER_LAZY.includes(room))
      wrong.push(`${file} loads ${path} by itself`);
  }
}

/** The modules that a source names with `from` or `import()`, including imports of types. */
function named(file) {
  const text = readFileSync(`${here}/${file}`, 'utf8');
  return [...text.matchAll(/(?:from|import\() ?'(\.[^']*)\.js'/g)]
    .map(([, path]) => posix.join(posix.dirname(file), path))
    .flatMap((path) => [`${path}.ts`, `${path}.tsx`].filter((one) => existsSync(`${here}/${one}`)));
}

/** Finds import cycles. */
const graph = new Map(modules.map(([file]) => [file, named(file)]));
const done = new Set();
function visit(file, path) {
  if (path.includes(file))
    wrong.push(`a cycle: ${[...path.slice(path.indexOf(file)), file].join(' → ')}`);
  if (done.has(file) || path.includes(file)) return;
  for (const next of graph.get(file) ?? []) visit(next, [...path, file]);
  done.add(file);
}
for (const file of graph.keys()) visit(file, []);

for (const line of wrong) process.stderr.write(`${line}\n`);
process.stdout.write(`imports: ${modules.length} files, ${wrong.length} against the rules\n`);
process.exit(wrong.length ? 1 : 0);
