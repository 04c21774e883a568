// Builds the console page into the server's package. Usage: node server-mock/console/build.mjs
// [--check]. With --check it writes nothing, lists the files that differ from their sources, and
// exits with 1 if there are any.

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('../..', import.meta.url));
const here = join(root, 'server-mock', 'console');
const target = join(root, 'server-mock', 'pubsub_server', 'generated', 'console');

const { version } = JSON.parse(readFileSync(join(root, 'js', 'package.json'), 'utf8'));

const common = {
  absWorkingDir: root,
  bundle: true,
  minify: true,
  charset: 'utf8',
  // As in the package: names that begin with `_` are private and are shortened.
  mangleProps: /^_[^_]/,
  define: { PACKAGE_VERSION: JSON.stringify(version) },
  legalComments: 'none',
  target: ['chrome123', 'firefox125', 'safari17.5'],
  write: false,
  logLevel: 'warning',
};
// A single file without a hash in its name: an ETag identifies the version.
const results = await Promise.all([
  build({
    ...common,
    entryPoints: { console: join(here, 'src', 'main.ts') },
    outdir: target,
    format: 'esm',
    alias: {
      '@hanzoai/pubsub': join(root, 'js', 'src', 'index.ts'),
      '@hanzoai/pubsub/svelte': join(root, 'js', 'src', 'svelte', 'index.ts'),
    },
  }),
  build({
    ...common,
    entryPoints: { theme: join(here, 'src', 'theme_first.ts') },
    outdir: target,
    format: 'iife',
  }),
  build({
    ...common,
    entryPoints: { console: join(here, 'styles', 'index.css') },
    outdir: target,
  }),
]);

const wanted = new Map();
for (const { path, contents } of results.flatMap(({ outputFiles }) => outputFiles)) {
  const name = basename(path);
  wanted.set(name, Buffer.from(contents));
}
for (const name of ['index.html', 'icon.svg']) wanted.set(name, readFileSync(join(here, name)));

mkdirSync(target, { recursive: true });
const present = new Set(readdirSync(target));
const drifted = [...wanted].filter(
  ([name, contents]) => !present.has(name) || !readFileSync(join(target, name)).equals(contents),
);
const left = [...present].filter((name) => !wanted.has(name));
if (process.argv[2] === '--check') {
  for (const name of [...drifted.map(([name]) => name), ...left]) {
    process.stderr.write(`generated/console/${name} differs from its sources\n`);
  }
  if (drifted.length || left.length) {
    process.stderr.write('run `make generate`\n');
    process.exit(1);
  }
} else {
  for (const name of left) rmSync(join(target, name), { recursive: true });
  for (const [name, contents] of drifted) {
    writeFileSync(join(target, name), contents);
    process.stdout.write(`written: server-mock/pubsub_server/generated/console/${name}\n`);
  }
}
