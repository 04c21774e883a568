/** The TypeScript programs of the docs and of the package's README, run as a new user runs them. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { generateKeyPairSync, verify } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { before, type TestContext, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { createServer as createVite } from 'vite';

import { atEnd } from '../browser/ending.js';
import { BOUND, bounded, deferred, Server } from '../js/runtime/server.js';
import { APPLICATION, ROOT, run } from './application.js';

const NAMES = ['typescript', 'typed', 'quickstart', 'requests', 'operate/webhooks'];
const PAGES = NAMES.map((name) => `docs/${name}.md`);
const BLOCK = /^```(?<language>js|ts)(?: title="(?<title>[^"]+)")?\n(?<text>.*?)^```/gms;
const TYPED = /\.m?ts$/;
const TYPES = join(ROOT, 'node_modules', '@types');

/** A WebSocket for Node versions without one. Node 20 is the oldest supported version. */
const SOCKET = `
  import WebSocket from '${pathToFileURL(join(ROOT, 'node_modules', 'ws', 'wrapper.mjs'))}';
  globalThis.WebSocket ??= WebSocket;
`;

let folder: string;
const programs: string[] = [];

before(() => {
  folder = mkdtempSync(join(APPLICATION, 'docs-'));
  writeFileSync(join(folder, 'socket.mjs'), SOCKET);
  mkdirSync(join(folder, 'node_modules'));
  for (const name of ['@hono', '@types', 'express', 'hono', 'undici', 'valibot', 'vite', 'zod'])
    symlinkSync(join(ROOT, 'node_modules', name), join(folder, 'node_modules', name));
  for (const page of [...PAGES, 'js/README.md']) {
    const text = readFileSync(join(ROOT, page), 'utf8');
    for (const { groups = {} } of text.matchAll(BLOCK)) {
      const title = groups['title'] ?? `untitled_${programs.length}.${groups['language']}`;
      const name = programs.includes(title) ? `${basename(page, '.md')}_${title}` : title;
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), groups['text'] ?? '');
      programs.push(name);
    }
  }
  const streams = readFileSync(join(ROOT, 'docs', 'streams.md'), 'utf8');
  const [, agent] = /^```ts title="agent\.mts"\n(.*?)^```/ms.exec(streams) ?? [];
  writeFileSync(join(folder, 'agent.mts'), agent ?? '');
  programs.push('agent.mts');
});

/**
 * The program itself, or a module of JavaScript if it is TypeScript, because Node 20 does not strip
 * types.
 */
async function runnable(program: string): Promise<string> {
  if (!TYPED.test(program)) return program;
  const outfile = program.replace(TYPED, '.run.mjs');
  await build({
    absWorkingDir: folder,
    entryPoints: [program],
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    outfile,
  });
  return outfile;
}

function start(program: string, environment: Record<string, string>, ...options: string[]) {
  const env = { PATH: process.env['PATH'] ?? '', ...environment };
  return spawn(process.execPath, ['--import', './socket.mjs', ...options, program], {
    cwd: folder,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** A module that makes a program print the port of its server. */
const TELL_PORT = `data:text/javascript,${encodeURIComponent(`
  import { Server } from 'node:net';
  const { listen } = Server.prototype;
  Server.prototype.listen = function (...given) {
    return listen.apply(this, given).once('listening', () => console.log(this.address().port));
  };
`)}`;

/** Start a program that serves HTTP; returns its address, and the lines that it prints. */
async function serve(t: TestContext, program: string, environment: Record<string, string>) {
  const settings = { PORT: '0', ...environment };
  const child = start(await runnable(program), settings, '--import', TELL_PORT);
  const ended = new Promise((resolve) => child.once('close', resolve));
  atEnd(t, async () => {
    child.kill();
    await ended;
  });
  child.stderr.pipe(process.stderr);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async (): Promise<string> => {
    const { value } = await bounded(lines.next(), `a line of ${program}`);
    return `${value}`;
  };
  return { address: `http://127.0.0.1:${Number(await line())}/`, line };
}

/** The output of a program, which must exit by itself with success. */
async function output(child: ReturnType<typeof start>): Promise<string> {
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      printed += chunk;
    });
  }
  const timer = setTimeout(() => child.kill('SIGKILL'), BOUND);
  const code = await new Promise((resolve) => child.once('close', resolve));
  clearTimeout(timer);
  assert.equal(code, 0, printed);
  return printed;
}

test('every program compiles strictly against the package', async () => {
  // A bundler finds files without their extension: `samples.test.ts` compiles these.
  const routes = ['app/pubsub-token/route.ts', 'app/webhooks/route.ts'];
  const bundled = [...routes, 'pubsub.ts', 'vite_pubsub.ts', 'vite.config.ts'];
  const compilerOptions = {
    strict: true,
    noEmit: true,
    target: 'es2022',
    module: 'nodenext',
    skipLibCheck: true,
    lib: ['ES2023', 'DOM', 'DOM.Iterable', 'ESNext.Disposable'],
    types: ['node'],
    typeRoots: [TYPES],
    paths: { ws: [join(TYPES, 'ws')] },
  };
  const scripts = { ...compilerOptions, noImplicitAny: false, allowJs: true, checkJs: true };
  const typed = programs.filter((name) => TYPED.test(name) && !bundled.includes(name));
  const untyped = programs.filter((name) => !TYPED.test(name));
  // The templates of Vite compile its configuration without the types of DOM.
  const onServers = typed.filter((name) => /(?<!^get)_(server|token)\.ts$/.test(name));
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}');
  const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  for (const config of [
    { compilerOptions, files: typed },
    { compilerOptions: { ...compilerOptions, lib: ['ES2023'] }, files: onServers },
    { compilerOptions: scripts, files: untyped },
  ]) {
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    await run(process.execPath, [compiler, '--project', folder, '--pretty', 'false']);
  }
});

test('every program that uses the client works and exits', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const environment = {
    HANZO_PUBSUB_URL: server.ws,
    HANZO_PUBSUB_REST_URL: server.http,
    HANZO_PUBSUB_TOKEN: server.token('--user', 'alice'),
  };
  const expected: Record<string, RegExp> = {
    'subscribe.mjs': /^(1 present\n|demo\.chat\.1 hello\n)*$/,
    'publish.mjs': /^msg_\w+ \d+\n$/,
    'replay.mjs': /^\d+ 1\n\d+ 2\n$/,
    'presence.mjs': /^snapshot 1\n(update 1\n)?\[ 'typing' \]\n(update 1\n)?$/,
    'errors.mjs': /^invalid_topic \S/,
    'orders.mjs': /^\{ sku: 'a-1', count: 1 \}\ndemo\.orders\.typed data\.sku\n$/,
    'hello.mjs': /^demo\.hello \{ text: 'hi' \}\n$/,
    'prices.mts': /^120\nunknown_product There is no moon\.\nrequest_timeout\n$/,
    'readme_hello.mjs': /^demo\.hello hi\n$/,
    'agent.mts': /^Take an umbrella: 0:00 rain in Köln\. .*23:00 rain in Köln\. \n$/,
  };
  const found = programs.filter((name) => {
    const text = readFileSync(join(folder, name), 'utf8');
    return text.includes('await ps.close()');
  });
  assert.deepEqual(found, Object.keys(expected));
  for (const name of found) {
    const printed = await output(start(await runnable(name), environment));
    assert.match(printed, expected[name] as RegExp, `${name} printed ${printed}`);
  }
});

test('the sample of getToken accepts a token, but not an error page', async () => {
  const { getToken } = await bundled("export { getToken } from './get_token';");
  const real = globalThis.fetch;
  const reported: unknown[] = [];
  try {
    for (const [status, body] of [
      [200, '{"token": "ey...", "expiresAt": 5}'],
      [200, '<!doctype html>'],
      [401, '{"token": "ey..."}'],
      [500, '{"token": "ey..."}'],
    ] as const) {
      globalThis.fetch = async () => new Response(body, { status });
      const signal = new AbortController().signal;
      const answer = getToken({ reason: 'connect', attempt: 0 }, { signal });
      reported.push(await answer.catch((error: Error) => error.name));
    }
  } finally {
    globalThis.fetch = real;
  }
  assert.deepEqual(reported, [
    { value: 'ey...', expiresAt: 5 },
    'SyntaxError',
    'AuthRefused',
    'PubSubError',
  ]);
});

test('with the sample of getToken, a production page logs the status of the backend', async () => {
  const { getToken, PubSub } = await bundled(`
    export { getToken } from './get_token';
    export { PubSub } from '@hanzoai/pubsub';
  `);
  const real = globalThis.fetch;
  globalThis.fetch = async () => new Response('', { status: 403 });
  const { promise: logged, resolve: error } = deferred<string>();
  const logger = { warn: () => {}, error };
  const ps = new PubSub({ url: 'wss://pubsub.localhost/ws', getToken, logger });
  try {
    void ps.connect().catch(() => {});
    assert.match(await logged, /^token_unavailable: \/pubsub-token answered 403\. See /);
  } finally {
    await ps.close();
    globalThis.fetch = real;
  }
});

/** Bundle a module beside the samples for the page of an application, and load it. */
async function bundled(contents: string) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: folder },
    bundle: true,
    format: 'esm',
    minify: true,
    splitting: false,
    write: false,
  });
  const program = join(folder, 'bundled.mjs');
  writeFileSync(program, outputFiles[0]?.text ?? '');
  return import(`${pathToFileURL(program).href}?${contents.length}`);
}

/** Whether an endpoint returns a token that the server accepts. */
async function gives(server: Server, answer: Response): Promise<void> {
  assert.equal(answer.status, 200);
  const { token, expiresAt } = (await answer.json()) as { token: string; expiresAt: number };
  assert.ok(expiresAt > Date.now());
  await server.client({ token }).connect();
}

test("the endpoints of Node, Express, Hono, Next and Vite give the user's token", async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  process.env['PUBSUB_HTTP'] = server.http;
  const Cookie = 'user=alice';

  const route = pathToFileURL(join(folder, await runnable('app/pubsub-token/route.ts')));
  const { POST } = await import(route.href);
  const asked = (headers: HeadersInit) => new Request('http://a/', { method: 'POST', headers });
  assert.equal((await POST(asked({}))).status, 401);
  await gives(server, await POST(asked({ Cookie })));

  for (const program of ['node_server.ts', 'express_server.ts', 'hono_server.ts']) {
    const { address } = await serve(t, program, { PUBSUB_HTTP: server.http });
    const ask = (headers: HeadersInit) =>
      fetch(`${address}pubsub-token`, { method: 'POST', headers });
    assert.equal((await ask({})).status, 401, program);
    const answer = await ask({ Cookie });
    assert.equal(answer.headers.get('cache-control'), 'no-store', program);
    await gives(server, answer);
  }

  const vite = await createVite({
    root: folder,
    configFile: join(folder, 'vite.config.ts'),
    logLevel: 'error',
    server: { host: '127.0.0.1', port: 0 },
  });
  await vite.listen();
  atEnd(t, () => vite.close());
  const local = new URL('pubsub-token', vite.resolvedUrls?.local[0]);
  await gives(server, await fetch(local, { method: 'POST' }));
});

test('the receivers of Node, Express, Hono and Next take large webhooks, and no forged ones', async (t) => {
  const received: string[] = [];
  const next = pathToFileURL(join(folder, await runnable('app/webhooks/route.ts')));
  const { POST } = await import(next.href);
  const forged = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' };
  assert.equal((await POST(new Request('http://a/', forged))).status, 401);

  const receivers = ['node_webhooks.ts', 'express_webhooks.ts', 'hono_webhooks.ts'];
  const running = await Promise.all(receivers.map((program) => serve(t, program, {})));
  const secret = 'whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ=';
  const hooks = running.map(({ address: url }) => ({
    url,
    secret,
    topics: ['demo.*'],
    events: ['publish'],
  }));
  const server = await Server.start('--webhooks', JSON.stringify(hooks));
  atEnd(t, () => server.stop());
  for (const { address } of running) assert.equal((await fetch(address, forged)).status, 401);
  const ps = server.client({ token: server.token('--user', 'alice') });
  // Longer than the bodies that Express accepts by default.
  await ps.publish('demo.large', { data: { text: 'x'.repeat(200_000) } });
  for (const { line } of running) received.push((await line()).slice(0, 20));
  assert.deepEqual(received, Array(3).fill('publish demo.large {'));
});

test('the key that signs as the page shows is read with the first token', async () => {
  const { tokenFor, serviceToken } = await import(
    pathToFileURL(join(folder, await runnable('signed_token.ts'))).href
  );
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  process.env['PUBSUB_SIGNING_KEY'] = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;
  const { token, expiresAt } = await tokenFor('alice');
  assert.ok(expiresAt > Date.now());
  const own = await serviceToken();
  for (const [text, kind, user] of [
    [token, 'user', 'alice'],
    [own.value, 'service', 'shop'],
  ]) {
    const [header, claims, signature] = text.split('.');
    const key = { key: publicKey, dsaEncoding: 'ieee-p1363' } as const;
    const signed = Buffer.from(`${header}.${claims}`);
    assert.ok(verify('sha256', signed, key, Buffer.from(signature, 'base64url')));
    const known = JSON.parse(Buffer.from(claims, 'base64url').toString());
    assert.deepEqual([known.kind, known.sub], [kind, user]);
    assert.ok(known.exp * 1000 > Date.now());
  }
});
