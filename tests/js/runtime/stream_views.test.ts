import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { createRenderer, createSSRApp, effectScope, h, nextTick, onMounted, shallowRef } from 'vue';
import { renderToString } from 'vue/server-renderer';

import { type StreamWriter, writeStream } from '../../../js/src/streams/index.js';
import { type StreamState, streamStore } from '../../../js/src/svelte/index.js';
import { MemoryServer } from '../../../js/src/testing/index.js';
import { type UsedStream, useStream } from '../../../js/src/vue/index.js';

const TOPIC = 'chat.session.abc';

async function until(server: MemoryServer, isSo: () => boolean): Promise<void> {
  // The view loads its reader from disk, and draws when a real timer fires.
  for (let n = 0; !isSo() && n < 4_000; n += 1) {
    await server.clock.advance(5);
    await setTimeout(2);
  }
  assert.ok(isSo(), 'it did not happen in time');
}

/** A writer, and its end while time advances. */
async function begun(server: MemoryServer, id: string): Promise<StreamWriter> {
  const writer = await writeStream(server.client(), TOPIC, { id });
  await writer.write(`${id} begins, `);
  return writer;
}

test('a store of Svelte shows the answer as it grows, and cancels it', async () => {
  const server = await new MemoryServer().start();
  const writer = await begun(server, 'r1');
  const store = streamStore(server.client(), TOPIC);
  await assert.rejects(store.cancel(), /no stream to cancel/);
  const states: StreamState[] = [];
  const leave = store.subscribe((state) => void states.push(state));
  assert.equal(states.at(-1)?.status, 'waiting');
  await until(server, () => states.at(-1)?.text === 'r1 begins, ');
  assert.equal(states.at(-1)?.status, 'streaming');
  void writer.write('and grows.');
  await until(server, () => states.at(-1)?.text === 'r1 begins, and grows.');
  const other: StreamState[] = [];
  store.subscribe((state) => void other.push(state))();
  assert.equal(other[0]?.text, 'r1 begins, and grows.');
  void store.cancel('user');
  await until(server, () => states.at(-1)?.status === 'aborted');
  assert.equal(states.at(-1)?.end?.reason, 'user');
  leave();
  await server.stop();
});

test('a store cancels an answer whose reader is still loading', async () => {
  const server = await new MemoryServer().start();
  const writer = await begun(server, 'r1');
  const store = streamStore(server.client(), TOPIC, { id: 'r1' });
  let status = '';
  const leave = store.subscribe((state) => {
    status = state.status;
  });
  const cancelling = store.cancel('enough');
  await until(server, () => status === 'aborted');
  await cancelling;
  assert.equal(writer.signal.aborted, true);
  leave();
  await server.stop();
});

test('a store without subscribers unsubscribes, and the answer continues', async () => {
  const server = await new MemoryServer().start();
  const writer = await begun(server, 'r1');
  const store = streamStore(server.client(), TOPIC);
  let text = '';
  const leave = store.subscribe((state) => {
    text = state.text;
  });
  await until(server, () => text !== '');
  leave();
  await assert.rejects(store.cancel(), /no stream to cancel/);
  await server.clock.advance(500);
  assert.equal(writer.signal.aborted, false);
  await server.stop();
});

test('useStream of Vue follows the topic that a ref names, and leaves with its scope', async () => {
  const server = await new MemoryServer().start();
  const writer = await begun(server, 'r1');
  const topic = shallowRef<string | null>(null);
  const scope = effectScope();
  const used = scope.run(() => useStream(server.client(), topic));
  assert.ok(used);
  const { state, cancel } = used;
  assert.equal(state.value.status, 'idle');
  await assert.rejects(cancel(), /no stream to cancel/);
  topic.value = TOPIC;
  await until(server, () => state.value.text === 'r1 begins, ');
  void cancel('user');
  await until(server, () => state.value.status === 'aborted');
  assert.equal(writer.signal.aborted, true);
  topic.value = null;
  await until(server, () => state.value.status === 'idle');
  scope.stop();
  await server.stop();
});

test('useStream of Vue follows the answer whose id its options name', async () => {
  const server = await new MemoryServer().start();
  await begun(server, 'r1');
  await begun(server, 'r2');
  const id = shallowRef('r1');
  const scope = effectScope();
  const used = scope.run(() => useStream(server.client(), TOPIC, () => ({ id: id.value })));
  assert.ok(used);
  const { state } = used;
  await until(server, () => state.value.text === 'r1 begins, ');
  id.value = 'r2';
  await nextTick();
  assert.equal(state.value.text, '');
  await until(server, () => state.value.text === 'r2 begins, ');
  scope.stop();
  await server.stop();
});

test('useStream of Vue follows an answer when its options no longer name another sender', async () => {
  const server = await new MemoryServer().start();
  await begun(server, 'r1');
  const sender = shallowRef<string | undefined>('another');
  const scope = effectScope();
  const used = scope.run(() =>
    useStream(server.client(), TOPIC, () => ({ id: 'r1', sender: sender.value })),
  );
  await server.clock.advance(5);
  sender.value = undefined;
  await until(server, () => used?.state.value.text === 'r1 begins, ');
  scope.stop();
  await server.stop();
});

const nothing = (): void => {};
/** Renders elements of a page that nobody sees. */
const { createApp } = createRenderer<object, object>({
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

test('a component of Vue follows from its mount to its unmount', async () => {
  const server = await new MemoryServer().start();
  const writer = await begun(server, 'r1');
  let text = '';
  const app = createApp({
    setup() {
      const { state } = useStream(server.client(), TOPIC);
      return () => {
        text = state.value.text;
        return h('p', text);
      };
    },
  });
  app.mount({});
  await until(server, () => text === 'r1 begins, ');
  app.unmount();
  let other = '';
  const leave = streamStore(server.client(), TOPIC).subscribe((state) => {
    other = state.text;
  });
  void writer.write('and grows.');
  await until(server, () => other === 'r1 begins, and grows.');
  assert.equal(text, 'r1 begins, ');
  leave();
  await server.stop();
});

test('useStream of Vue in a mounted component follows at once', async () => {
  const server = await new MemoryServer().start();
  await begun(server, 'r1');
  const shown: UsedStream[] = [];
  const app = createApp({
    setup() {
      onMounted(() => shown.push(useStream(server.client(), TOPIC)));
      return () => h('p');
    },
  });
  app.mount({});
  await until(server, () => shown[0]?.state.value.text === 'r1 begins, ');
  app.unmount();
  await server.stop();
});

test('useStream of Vue in a scope of its own outlives the component that called it', async () => {
  const server = await new MemoryServer().start();
  await begun(server, 'r1');
  const topic = shallowRef<string | null>(null);
  const scope = effectScope(true);
  const shown: UsedStream[] = [];
  const app = createApp({
    setup() {
      scope.run(() => shown.push(useStream(server.client(), topic)));
      return () => h('p');
    },
  });
  app.mount({});
  app.unmount();
  topic.value = TOPIC;
  await until(server, () => shown[0]?.state.value.text === 'r1 begins, ');
  scope.stop();
  topic.value = null;
  await nextTick();
  assert.equal(shown[0]?.state.value.text, 'r1 begins, ');
  await server.stop();
});

test('a component that a server renders with Vue opens no connection', async () => {
  const server = await new MemoryServer().start();
  const client = server.client();
  const Answer = {
    setup() {
      const { state } = useStream(client, TOPIC);
      return () => h('p', state.value.status);
    },
  };
  const html = await renderToString(createSSRApp(Answer));
  // A reader would connect as soon as this module is loaded.
  await import('../../../js/src/streams/reader.js');
  await server.clock.advance(1_000);
  assert.equal(client.state, 'initialized');
  assert.equal(html, '<p>idle</p>');
  await server.stop();
});
