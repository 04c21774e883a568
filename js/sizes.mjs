// Measures the bundle sizes of imports from the packed package, as in an application. With --peers
// it also measures the clients of other services, which need an install of their own.
// Usage: node sizes.mjs [--check] [--peers] [--write FILE]. --check fails if a size is above its
// limit. --write puts the tables into a page and implies --peers.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { SourceMap } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const KB = 1024;
/**
 * Goals and limits of the sizes, in KB. Lower a limit when its size falls; raise it only within its
 * goal.
 */
const BOUNDS = {
  core: { title: '`{ PubSub }`, at once', goal: 14, limit: 13.5 },
  chat: { title: 'chat page', goal: 17, limit: 27.7 },
  everything: { title: 'everything', goal: 36, limit: 43.3 },
  development: { title: '`{ PubSub }`, development build', goal: 20, limit: 18.8 },
  streams: { title: 'added by `/streams`', goal: 2.5, limit: 2.2 },
};

const CORE = "export { PubSub } from '@hanzoai/pubsub'";
const EVERYTHING = "export * from '@hanzoai/pubsub'";
const CHAT = `${CORE}; export { PubSubProvider, usePresence, useTopic } from '@hanzoai/pubsub/react'`;

/** What loads beside the first connection. */
const BACKGROUND = 'background';

/**
 * Everything that a chat page loads before its first message, including `import()`: the client,
 * hooks, and the parts loaded beside the first connection. These include resuming and presence.
 */
const CHAT_CHUNKS = [BACKGROUND];

/**
 * Imports of this package: the names, the module, and whether the bundle has chunks. The bundler
 * also creates chunks for code that it leaves out.
 */
const IMPORTS = [
  ['`{ PubSub }`', CORE, true],
  ['`* as all`', EVERYTHING, true],
  [
    'error classes alone',
    "export { PubSubError, ConnectionFailed, PermissionDenied } from '@hanzoai/pubsub'",
    false,
  ],
  [
    'topic helpers alone',
    "export { matches, validateTopic, validatePattern } from '@hanzoai/pubsub'",
    false,
  ],
];

/** What the sources of a client are for. The first expression that matches counts. */
const PURPOSES = [
  ['subscriptions, replay, gaps', /session\/(subscri|routes|cursor)|runtime\/(inbox|subscri)/],
  ['publishes', /\/publi|wire\/(ids|plain)/],
  ['presence', /session\/(own_presence|presence)/],
  ['connection and token life', /session\/|lifecycle|runtime\/tokens/],
  ['errors', /errors|rejected|failures/],
  ['options and URLs', /settings\/|defaults|limits|version/],
  ['checks of topics and of what a server sends', /wire|topics/],
  ['the socket', /transports\//],
  ['the rest of the runtime', /^/],
];

/** Clients of other services: the package, and the first import in its guide. */
const PEERS = [
  ['phoenix', "export { Socket } from 'phoenix'"],
  ['socket.io-client', "export { io } from 'socket.io-client'"],
  ['@supabase/realtime-js', "export { RealtimeClient } from '@supabase/realtime-js'"],
  ['pusher-js', "export { default } from 'pusher-js'"],
  ['centrifuge', "export { Centrifuge } from 'centrifuge'"],
  ['@nats-io/nats-core', "export { wsconnect } from '@nats-io/nats-core'"],
  ['pubnub', "export { default } from 'pubnub'"],
  ['ably', "export { Realtime } from 'ably'"],
];

const root = fileURLToPath(new URL('..', import.meta.url));
const here = join(root, 'js');
const cache = join(root, 'node_modules', '.cache');
const bench = join(root, 'tests', 'bench', 'node');
const withPeers = process.argv.includes('--peers') || process.argv.includes('--write');

function run(command, parameters, cwd) {
  const { status, error } = spawnSync(command, parameters, { cwd, stdio: ['ignore', 2, 2] });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

/** Install the packed package, as an application does. */
function install(folder) {
  run(process.execPath, [join(here, 'build.mjs'), '--pack', folder]);
  const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz'));
  writeFileSync(join(folder, 'package.json'), '{"private":true}\n');
  run('npm', ['install', `./${tarball}`, '--silent', '--offline', '--ignore-scripts'], folder);
}

/** The output files reachable from these files. */
function reach(outputs, from, follows) {
  const reached = new Set(from);
  for (const path of reached) {
    for (const next of outputs[path].imports) {
      if (!next.external && follows(next.kind)) reached.add(next.path);
    }
  }
  return [...reached];
}

/** Settings of the bundler, as an application may have them. */
function bundling(folder, code) {
  return {
    absWorkingDir: folder,
    stdin: { contents: code, resolveDir: folder, sourcefile: 'application.js' },
    outdir: 'out',
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2020',
    external: ['react', 'vue'],
    legalComments: 'none',
    define: { 'process.env.NODE_ENV': '"production"' },
    write: false,
    logLevel: 'error',
  };
}

/**
 * The files by path, with the hash in each name replaced by one of the same length that does not
 * depend on the contents. Otherwise, each change would add or remove some bytes by chance.
 */
function withFixedNames(outputFiles) {
  const hashes = outputFiles
    .toSorted((a, b) => a.contents.length - b.contents.length)
    .flatMap(({ path }) => path.match(/-([A-Z0-9]{8})\.js$/)?.[1] ?? []);
  const fixed = new Map(
    hashes.map((hash, index) => [
      hash,
      createHash('sha256').update(`${index}`).digest('hex').slice(0, 8).toUpperCase(),
    ]),
  );
  const named = new RegExp(`-(${hashes.join('|') || '$^'})(?=\\.js)`, 'g');
  return new Map(
    outputFiles.map(({ path, text }) => [
      path,
      Buffer.from(text.replace(named, (_, hash) => `-${fixed.get(hash)}`)),
    ]),
  );
}

/** Bytes that a module loads at once, and bytes of each chunk that it may load later. */
async function measure(folder, code, { splitting = true, conditions = [], wanted = [] } = {}) {
  const { metafile, outputFiles } = await build({
    ...bundling(folder, code),
    splitting,
    conditions,
    metafile: true,
  });
  const files = withFixedNames(outputFiles);
  const { outputs } = metafile;
  const first = reach(outputs, ['out/stdin.js'], (kind) => kind !== 'dynamic-import');
  const lazy = reach(outputs, [...first], () => true).filter((path) => !first.includes(path));
  const sizeOf = (path) => {
    const bytes = files.get(join(folder, path));
    return { minified: bytes.length, gzip: gzipSync(bytes, { level: 9 }).length };
  };
  const sum = (sizes) =>
    sizes.reduce((a, b) => ({ minified: a.minified + b.minified, gzip: a.gzip + b.gzip }), {
      minified: 0,
      gzip: 0,
    });
  const nameOf = (path) =>
    outputs[path].entryPoint?.replace(/^.*\/(\w+).*\.js$/, '$1') ?? 'shared by several';
  const chunks = lazy.map((path) => ({ name: nameOf(path), ...sizeOf(path) }));
  const atOnce = sum(first.map(sizeOf));
  const soon = lazy.filter((path) => wanted.includes(nameOf(path)));
  const early = reach(outputs, [...first, ...soon], (kind) => kind !== 'dynamic-import');
  return {
    atOnce,
    chunks,
    early: sum(early.map(sizeOf)),
    everything: sum([atOnce, ...chunks]),
  };
}

/**
 * Bytes of the first load by purpose, minified, from its source map, and scaled to gzip; the same of
 * what loads beside the first connection.
 */
async function purposes(folder) {
  const { outputFiles } = await build({
    ...bundling(folder, CORE),
    splitting: true,
    sourcemap: 'external',
  });
  const longest = (files, ending) =>
    files
      .filter(({ path }) => path.endsWith(ending))
      .map(({ text }) => text)
      .reduce((a, b) => (a.length > b.length ? a : b));
  const later = outputFiles.filter(({ path }) => path.includes(BACKGROUND));
  // The longest of the files is the chunk that all others need.
  const [first, beside] = [outputFiles, later].map((files) =>
    byPurpose(longest(files, '.js'), longest(files, '.js.map')),
  );
  return first.map(([name, size], n) => [name, size, beside[n][1]]);
}

function byPurpose(code, map) {
  const sources = new SourceMap(JSON.parse(map));
  const bytes = new Map(PURPOSES.map(([name]) => [name, 0]));
  for (const [line, text] of code.split('\n').entries()) {
    for (let column = 0; column < text.length; column += 1) {
      const { originalSource = '' } = sources.findEntry(line, column);
      const [name] = PURPOSES.find(([, pattern]) => pattern.test(originalSource));
      bytes.set(name, bytes.get(name) + 1);
    }
  }
  const gzip = gzipSync(code, { level: 9 }).length / code.length;
  return [...bytes].map(([name, minified]) => [name, { minified, gzip: minified * gzip }]);
}

const kb = (bytes) => (bytes / KB).toFixed(1);
const line = (...cells) => `| ${cells.join(' | ')} |`;

/** The table of goals and limits. */
function bounds() {
  const rows = Object.values(BOUNDS).map(({ title, goal, limit }) =>
    line(title, goal, limit.toFixed(1)),
  );
  return [line('', 'goal, KB gzip', 'limit'), line('---', '--:', '--:'), ...rows].join('\n');
}

async function tables(folder) {
  const core = await measure(folder, CORE, { wanted: [BACKGROUND] });
  const rows = [];
  let streams = 0;
  for (const [name, code, splitting] of IMPORTS) {
    const { atOnce, everything } = await measure(folder, code, { splitting });
    rows.push([name, atOnce, everything]);
    if (code === CORE) rows.push([`${name}, with the first connection`, core.early, everything]);
  }
  const chat = await measure(folder, CHAT, { wanted: CHAT_CHUNKS });
  rows.push(['chat page: `{ PubSub }`, hooks, presence', chat.early, chat.everything]);
  const development = await measure(folder, CORE, { conditions: ['development'] });
  rows.push(['`{ PubSub }`, development build', development.atOnce, development.everything]);
  const manifest = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
  for (const [entry, conditions] of Object.entries(manifest.exports)) {
    if (entry === '.' || typeof conditions !== 'object') continue;
    const name = `@hanzoai/pubsub${entry.slice(1)}`;
    const both = await measure(folder, `${CORE}; export * as more from '${name}'`);
    const less = ({ minified, gzip }, other) => ({
      minified: minified - other.minified,
      gzip: gzip - other.gzip,
    });
    if (entry === './streams') streams = less(both.atOnce, core.atOnce).gzip;
    rows.push([
      `\`${name}\`, added to \`{ PubSub }\``,
      less(both.atOnce, core.atOnce),
      less(both.everything, core.everything),
    ]);
  }
  const peers = [];
  for (const [name, code] of withPeers ? PEERS : []) {
    const { version } = JSON.parse(
      readFileSync(join(bench, 'node_modules', name, 'package.json'), 'utf8'),
    );
    peers.push([`${name} ${version}`, (await measure(bench, code)).everything]);
  }
  peers.push(
    ['**@hanzoai/pubsub**, at once', core.atOnce],
    ['**@hanzoai/pubsub**, with the first connection', core.early],
    ['**@hanzoai/pubsub**, with everything it may load later', core.everything],
  );
  peers.sort(([, a], [, b]) => a.gzip - b.gzip);
  const text = [
    line('import', 'at once, minified', 'at once, gzip', 'with all it may load later, gzip'),
    line('---', '--:', '--:', '--:'),
    ...rows.map(([name, atOnce, all]) =>
      line(name, kb(atOnce.minified), kb(atOnce.gzip), kb(all.gzip)),
    ),
    '',
    line('chunk that `{ PubSub }` loads when it is needed', 'minified', 'gzip'),
    line('---', '--:', '--:'),
    ...core.chunks.map(({ name, minified, gzip }) => line(`\`${name}\``, kb(minified), kb(gzip))),
    '',
    line('client', 'minified', 'gzip'),
    line('---', '--:', '--:'),
    ...peers.map(([name, { minified, gzip }]) => line(name, kb(minified), kb(gzip))),
  ].join('\n');
  const all = await measure(folder, EVERYTHING);
  const parts = [
    line(
      'what the bytes of `{ PubSub }` are for',
      'at once, gzip',
      'with the first connection, gzip',
    ),
    line('---', '--:', '--:'),
    ...(await purposes(folder)).map(([name, first, beside]) =>
      line(name, kb(first.gzip), kb(first.gzip + beside.gzip)),
    ),
  ].join('\n');
  return {
    text,
    parts,
    core: core.atOnce.gzip,
    everything: all.everything.gzip,
    chat: chat.early.gzip,
    development: development.atOnce.gzip,
    streams,
  };
}

if (withPeers && !PEERS.every(([name]) => existsSync(join(bench, 'node_modules', name)))) {
  process.stderr.write(
    'The other clients are not installed. Run: npm ci --ignore-scripts --prefix tests/bench/node\n',
  );
  process.exit(1);
}
mkdirSync(cache, { recursive: true });
const folder = realpathSync(mkdtempSync(join(cache, 'sizes-')));
let result;
try {
  install(folder);
  result = await tables(folder);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.stdout.write(`${result.text}\n\n${result.parts}\n\n`);
const page = process.argv[process.argv.indexOf('--write') + 1];
if (process.argv.includes('--write')) {
  const text = readFileSync(page, 'utf8');
  const within = (name) => new RegExp(`(<!-- ${name} -->\\n)[^]*(<!-- /${name} -->)`);
  writeFileSync(
    page,
    text
      .replace(within('sizes'), `$1\n${result.text}\n\n$2`)
      .replace(within('parts'), `$1\n${result.parts}\n\n$2`)
      .replace(within('limits'), `$1\n${bounds()}\n\n$2`),
  );
}
let status = 0;
for (const [name, { title, goal, limit }] of Object.entries(BOUNDS)) {
  const size = result[name];
  const left = Math.floor(limit * KB) - size;
  const isWithin = left >= 0;
  const margin = `${Math.abs(left)} bytes ${isWithin ? 'within' : 'ABOVE'}`;
  process.stdout.write(
    `${title}: ${kb(size)} KB gzip, ${margin} the limit of ${limit}; the goal is ${goal}\n`,
  );
  if (!isWithin && process.argv.includes('--check')) status = 1;
}
process.exit(status);
