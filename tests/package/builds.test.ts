import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type BuildOptions, build as bundle, type Plugin } from 'esbuild';
import { build as buildByVite } from 'vite';

import { APPLICATION, run } from './application.js';

/**
 * Tries three invalid options: a value out of range, an unknown name, and an unencrypted URL with a
 * token.
 */
const PROGRAM = `
import { PubSub } from '@hanzoai/pubsub';

const tried = [
  { url: 'wss://example.com', token: 'x', pingInterval: -1 },
  { url: 'wss://example.com', token: 'x y' },
  { url: 'ws://example.com', token: 'x' },
].map((options) => {
  try {
    new PubSub(options);
    return 'taken';
  } catch ({ code, field, message }) {
    return [code, field, message.length > 25].join();
  }
});
globalThis.process?.stdout.write(JSON.stringify(tried));
`;

const DEVELOPMENT = ['invalid_option,pingInterval,true', 'invalid_option,token,true'];
const PRODUCTION = ['taken', 'invalid_option,token,false'];

/** Calls `subscribe` with a handler that a gap would end. */
const MUTE = `
import { PubSub } from '@hanzoai/pubsub';

const ps = new PubSub({ url: 'wss://example.com', token: 'x' });
const both = { onMessage: () => {}, onGap: 'raise', timeout: 1000 };
const { code } = await ps.subscribe('demo.both', both).catch((error) => error);
globalThis.process?.stdout.write(JSON.stringify([code]));
await ps.close();
`;

/** Receives two frames without the `message` that HIP-56 requires, from sockets of its own. */
const WITHOUT_MESSAGE = `
import { PubSub } from '@hanzoai/pubsub';

function client(answer) {
  class Socket extends EventTarget {
    readyState = 0;
    bufferedAmount = 0;
    constructor() {
      super();
      queueMicrotask(() => this.tell('open', { readyState: 1 }));
    }
    tell(type, fields) {
      Object.assign(this, fields);
      this.dispatchEvent(Object.assign(new Event(type), fields));
    }
    send(text) {
      const frame = answer(JSON.parse(text));
      if (frame) queueMicrotask(() => this.tell('message', { data: JSON.stringify(frame) }));
    }
    close(code = 1000) {
      queueMicrotask(() => this.tell('close', { readyState: 3, code, reason: '' }));
    }
  }
  const options = { token: 'x', transport: 'websocket', reconnect: { maxAttempts: 1 } };
  return new PubSub({ url: 'wss://example.com/ws', WebSocket: Socket, ...options });
}

const told = ({ name, code }) => [name, code].join();
const rejected = client(() => ({ type: 'auth.error', code: 'token_invalid' }));
const refused = client(({ type, ref }) => {
  if (type === 'auth') return { type: 'auth.ok', client_id: 'c' };
  return type === 'subscribe' && { type: 'error', code: 'forbidden', ref };
});
const both = [
  await rejected.connect({ timeout: 5_000 }).catch(told),
  await refused.subscribe('demo.a', { timeout: 5_000 }).catch(told),
];
globalThis.process?.stdout.write(JSON.stringify(both));
await Promise.all([rejected.close({ timeout: 0 }), refused.close({ timeout: 0 })]);
`;

/** Reads history with `before: null`, and prints the query of the request. */
const NO_END = `
import { PubSub } from '@hanzoai/pubsub';

const fetch = async (url) => {
  globalThis.process?.stdout.write(JSON.stringify([new URL(url).search]));
  return new Response('{"messages":[]}', { headers: { 'content-type': 'application/json' } });
};
const ps = new PubSub({ url: 'wss://example.com', token: 'x', fetch });
await ps.history('demo.a', { before: null, limit: 5 }).next();
await ps.close();
`;

/** Prints what a client says of a frame without a required field, and stops. */
const MALFORMED = `
import { PubSub } from '@hanzoai/pubsub';

class Socket extends EventTarget {
  readyState = 0;
  bufferedAmount = 0;
  constructor() {
    super();
    queueMicrotask(() => this.tell('open', {}));
  }
  tell(type, fields) {
    this.readyState = 1;
    this.dispatchEvent(Object.assign(new Event(type), fields));
  }
  send() {
    const data = '{"type":"presence.snapshot","members":[]}';
    queueMicrotask(() => this.tell('message', { data }));
  }
  close() {}
}
const options = { token: 'x', transport: 'websocket', WebSocket: Socket };
const ps = new PubSub({ url: 'wss://example.com/ws', ...options });
ps.on('error', ({ code, message }) => {
  process.stdout.write(JSON.stringify([code, message]), () => process.exit());
});
await ps.connect();
`;

async function bundled(options: BuildOptions, contents = PROGRAM): Promise<unknown[]> {
  const folder = mkdtempSync(join(APPLICATION, 'bundle-'));
  const outfile = join(folder, 'program.mjs');
  await bundle({
    stdin: { contents, resolveDir: APPLICATION },
    bundle: true,
    format: 'esm',
    outfile,
    ...options,
  });
  return JSON.parse(await run(process.execPath, [outfile]));
}

test('Node loads the build with every word and option check', async () => {
  const file = join(APPLICATION, 'program.mjs');
  writeFileSync(file, PROGRAM);
  const [range, token, clear] = JSON.parse(await run(process.execPath, [file]));
  assert.deepEqual([range, token], DEVELOPMENT);
  assert.match(clear, /^insecure_url,/);
});

test('esbuild takes the production build for browsers, which keeps the checks that protect', async () => {
  const [range, token, clear] = await bundled({ platform: 'browser', minify: true });
  assert.deepEqual([range, token], PRODUCTION);
  assert.match(String(clear), /^insecure_url,/);
});

test('the production build rejects a handler that a gap would end', async () => {
  assert.deepEqual(await bundled({ platform: 'browser' }, MUTE), ['invalid_option']);
});

test('the production build reads the errors of a peer that omits their text', async () => {
  assert.deepEqual(await bundled({ platform: 'browser' }, WITHOUT_MESSAGE), [
    'AuthError,token_invalid',
    'PermissionDenied,forbidden',
  ]);
});

test('the production build reads the newest history before null', async () => {
  assert.deepEqual(await bundled({ platform: 'browser' }, NO_END), ['?limit=5']);
});

test('the production build names the bad field of a frame', async () => {
  assert.deepEqual(await bundled({ platform: 'browser' }, MALFORMED), [
    'invalid_frame',
    'bad presence.snapshot.topic',
  ]);
});

test('esbuild uses the development build under the condition `development`', async () => {
  const reported = await bundled({ platform: 'browser', conditions: ['development'] });
  assert.deepEqual(reported.slice(0, 2), DEVELOPMENT);
});

for (const [platform, conditions] of [
  ['a worker of Cloudflare', ['workerd', 'worker', 'browser']],
  ['an edge function', ['edge-light', 'worker', 'browser']],
  ['React Native', ['react-native']],
] as const) {
  test(`the bundle of ${platform} has every word and option check`, async () => {
    const reported = await bundled({ platform: 'neutral', conditions: [...conditions] });
    assert.deepEqual(reported.slice(0, 2), DEVELOPMENT);
  });
}

test('Vite takes the production build for a production page', async () => {
  const folder = mkdtempSync(join(APPLICATION, 'vite-'));
  const entry = join(folder, 'program.mjs');
  writeFileSync(entry, PROGRAM);
  await buildByVite({
    root: folder,
    configFile: false,
    logLevel: 'error',
    build: { lib: { entry, formats: ['es'], fileName: () => 'built.mjs' } },
  });
  const [range, token] = JSON.parse(
    await run(process.execPath, [join(folder, 'dist', 'built.mjs')]),
  );
  assert.deepEqual([range, token], PRODUCTION);
});

test('the production build has no remedies in words, and its errors lead to their pages', async () => {
  const folder = mkdtempSync(join(APPLICATION, 'words-'));
  const outfile = join(folder, 'program.mjs');
  await bundle({
    stdin: {
      contents: `
import { PubSub } from '@hanzoai/pubsub';
try {
  new PubSub({ url: 'wss://example.com' });
} catch ({ name, code, field, message, remedy }) {
  process.stdout.write(JSON.stringify([name, code, field, message, remedy]));
}
`,
      resolveDir: APPLICATION,
    },
    bundle: true,
    format: 'esm',
    platform: 'browser',
    // A comment may contain the same words.
    minifyWhitespace: true,
    splitting: false,
    outfile,
  });
  assert.deepEqual(JSON.parse(await run(process.execPath, [outfile])), [
    'InvalidOption',
    'invalid_option',
    'token',
    '`token` is not valid.',
    'See https://pubsub.hanzo.ai/docs/errors/#invalid_option',
  ]);
  const text = readFileSync(outfile, 'utf8');
  const absent = [
    'Publish { type, data }',
    'Write `',
    'Pass one of them',
    'The client is closed.',
    'It could not be sent in time.',
    'would send the token',
    'which JSON does not support',
    'has an empty segment',
  ];
  for (const sentence of absent) assert.ok(!text.includes(sentence), sentence);
});

test('a page whose chunks were replaced gets an error that says so', async () => {
  const folder = mkdtempSync(join(APPLICATION, 'chunks-'));
  const outfile = join(folder, 'program.mjs');
  const gone: Plugin = {
    name: 'the chunks are gone',
    setup({ onResolve }) {
      onResolve({ filter: /./ }, ({ kind }) =>
        kind === 'dynamic-import' ? { path: './gone.mjs', external: true } : undefined,
      );
    },
  };
  await bundle({
    stdin: {
      contents: `
import { PubSub } from '@hanzoai/pubsub';
import { readStream, writeStream } from '@hanzoai/pubsub/streams';
const ps = new PubSub({ url: 'ws://127.0.0.1:9/ws', token: 'x' });
const failed = [];
const read = () => readStream(ps, 'a.b').final();
for (const call of [() => ps.connect(), () => writeStream(ps, 'a.b'), read])
  await call().catch(({ name, message, cause }) =>
    failed.push([name, message, /gone/.test(cause.message)]));
process.stdout.write(JSON.stringify(failed));
process.exit();
`,
      resolveDir: APPLICATION,
    },
    bundle: true,
    format: 'esm',
    platform: 'browser',
    plugins: [gone],
    outfile,
  });
  const failure = ['ConnectionFailed', 'A part of the client did not load.', true];
  assert.deepEqual(JSON.parse(await run(process.execPath, [outfile])), [failure, failure, failure]);
});
