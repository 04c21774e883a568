/** The composable of docs/integrations.md, used from the installed package. */

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import type * as Vue from 'vue';
import type { renderToString } from 'vue/server-renderer';
import WebSocket from 'ws';

import { atEnd } from '../browser/ending.js';
import { bounded, deferred, Server } from '../js/runtime/server.js';
import { APPLICATION, INSTALLED, ROOT } from './application.js';

/** The sample, with Vue and the client of the same program. */
interface Application {
  readonly vue: typeof Vue;
  readonly renderToString: typeof renderToString;
  readonly ps: { close(options: { timeout: number }): Promise<void> };
  useTopic(topic: string): {
    readonly messages: Vue.ShallowRef<readonly { readonly data: unknown }[]>;
    readonly error: Vue.ShallowRef<unknown>;
  };
}

/** The sample, and the files of docs/typescript.md that a reader puts next to it. */
const SAMPLE = /^```ts title="((?:useTopic|pubsub|get_token)\.ts)"\n(.*?)^```/gms;

const EXPORTS = `
export { ps } from './pubsub.ts';
export { useTopic } from './useTopic.ts';
export * as vue from 'vue';
export { renderToString } from 'vue/server-renderer';
`;

/** Build the sample for this server; its tokens belong to the user alice. */
async function open(t: TestContext, server: Server): Promise<Application & { asked(): number }> {
  const folder = mkdtempSync(join(APPLICATION, 'vue-'));
  for (const page of ['integrations', 'typescript']) {
    const text = readFileSync(join(ROOT, 'docs', `${page}.md`), 'utf8');
    for (const [, file = '', shown = ''] of text.matchAll(SAMPLE))
      writeFileSync(join(folder, file), shown.replace('ws://127.0.0.1:8057/ws', server.ws));
  }
  writeFileSync(join(folder, 'program.ts'), EXPORTS);
  const outfile = join(folder, 'program.mjs');
  await build({
    entryPoints: [join(folder, 'program.ts')],
    alias: {
      '@hanzoai/pubsub': join(INSTALLED, 'dist', 'index.js'),
      vue: join(ROOT, 'node_modules', 'vue'),
    },
    // Vue's form for Node is CommonJS.
    banner: {
      js: "import { createRequire } from 'node:module';const require = createRequire('/');",
    },
    bundle: true,
    platform: 'node',
    format: 'esm',
    outfile,
    logLevel: 'error',
  });
  let asked = 0;
  const token = server.token('--user', 'alice');
  t.mock.method(globalThis, 'fetch', async () => {
    asked += 1;
    return Response.json({ token });
  });
  // Node 20 has none.
  const before = globalThis.WebSocket;
  Object.assign(globalThis, { WebSocket });
  atEnd(t, async () => void Object.assign(globalThis, { WebSocket: before }));
  const application = (await import(pathToFileURL(outfile).href)) as Application;
  atEnd(t, () => application.ps.close({ timeout: 0 }));
  return { ...application, asked: () => asked };
}

/** Mount a component that uses the topic, without a page. */
function mount({ vue, useTopic }: Application, topic: string) {
  const nothing = (): void => {};
  const { createApp } = vue.createRenderer<object, object>({
    patchProp: nothing,
    insert: nothing,
    remove: nothing,
    createElement: () => ({}),
    createText: () => ({}),
    createComment: () => ({}),
    setText: nothing,
    setElementText: nothing,
    parentNode: () => null,
    nextSibling: () => null,
  });
  let used: ReturnType<Application['useTopic']> | undefined;
  const app = createApp({
    setup() {
      used = useTopic(topic);
      return () => vue.h('p');
    },
  });
  app.mount({});
  assert.ok(used);
  return { ...used, app };
}

/** Wait for a truthy value. */
async function until({ vue }: Application, condition: () => unknown, what: string): Promise<void> {
  const reached = new Promise<void>((resolve) => {
    const stop = vue.watchEffect(() => {
      if (!condition()) return;
      resolve();
      queueMicrotask(() => stop());
    });
  });
  await bounded(reached, what);
}

test('the composable for Vue subscribes while its component is mounted', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const publisher = server.client({ token: server.token('--user', 'bob') });
  const application = await open(t, server);
  const { vue, renderToString, useTopic, asked } = application;

  const Room = {
    setup() {
      const { messages } = useTopic('demo.vue');
      return () => vue.h('p', messages.value.length);
    },
  };
  assert.equal(await renderToString(vue.createSSRApp(Room)), '<p>0</p>');
  assert.equal(asked(), 0, 'the rendering server opened a connection');

  await publisher.publish('demo.vue', { data: 'hello' });
  const room = mount(application, 'demo.vue');
  await until(application, () => room.messages.value.length, 'the message');
  const left = deferred<void>();
  await publisher.subscribe('demo.vue', {
    onPresence: (_, { change }) => {
      if (change === 'leave') left.resolve();
    },
  });
  room.app.unmount();
  await bounded(left.promise, 'the end of the subscription');
});

test('the composable for Vue shows why it cannot subscribe, and can be left earlier', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const application = await open(t, server);
  const rejected: unknown[] = [];
  const reject = (reason: unknown): void => void rejected.push(reason);
  process.on('unhandledRejection', reject);
  atEnd(t, async () => void process.off('unhandledRejection', reject));

  const brief = mount(application, 'demo.vue');
  brief.app.unmount();
  const room = mount(application, 'private.room');
  await until(application, () => room.error.value, 'the error');
  assert.equal((room.error.value as { code?: string }).code, 'forbidden');
  assert.equal(brief.error.value, undefined);
  room.app.unmount();
  assert.deepEqual(rejected, []);
});
