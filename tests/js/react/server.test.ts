/** Rendering on a server, and in a browser before hydration. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createElement, type ReactNode } from 'react';
import { renderToString } from 'react-dom/server';

import { InvalidTopic, UsageError } from '../../../js/src/index.js';
import {
  PubSubProvider,
  type StreamView,
  useConnectionState,
  usePresence,
  useStream,
  useTopic,
} from '../../../js/src/react/index.js';
import { keyOf, openStore } from '../../../js/src/react/stores.js';
import { bounded, deferred } from '../runtime/server.js';
import { turns, virtualClient } from '../runtime/virtual.js';

function Room({ topic }: { readonly topic: string }): ReactNode {
  const { messages, last, status, error } = useTopic(topic);
  const { members } = usePresence(topic);
  return JSON.stringify([useConnectionState(), status, messages, last, error, members.size]);
}

test('a server renders the initial state, whatever its client knows, and opens no connection', async () => {
  const { ps, peer } = virtualClient();
  const store = openStore(ps, keyOf('a.b'));
  const shown = deferred<void>();
  const stop = store.use({}, () => {
    if (store.state.last) shown.resolve();
  });
  await turns();
  peer.socket.receive(peer.message('a.b', { text: 'known' }));
  await bounded(shown.promise, 'the message is shown');
  assert.equal(ps.state, 'connected');

  const rooms = ['a.b', 'c.d'].map((topic) => createElement(Room, { topic, key: topic }));
  const html = renderToString(createElement(PubSubProvider, { client: ps }, rooms));
  await turns();

  const unknown = JSON.stringify(['initialized', 'idle', [], undefined, undefined, 0]);
  const text = html.replaceAll('&quot;', '"').replaceAll('<!-- -->', '');
  assert.equal(text, unknown + unknown);
  assert.deepEqual(
    peer.socket.frames('subscribe').map(({ topics }) => topics),
    [['a.b']],
  );
  stop();
  await ps.close({ timeout: 0 });
});

test('rendering on a platform without WebSockets logs nothing and throws nothing', async (t) => {
  const { WebSocket } = globalThis;
  Reflect.deleteProperty(globalThis, 'WebSocket');
  t.after(() => {
    if (WebSocket) globalThis.WebSocket = WebSocket;
  });
  const output: unknown[] = [];
  const note = (...words: unknown[]): number => output.push(words);
  for (const transport of ['auto', 'websocket'] as const) {
    const logger = { debug: note, info: note, warn: note, error: note };
    const options = { url: 'wss://pubsub.example.com/ws', token: 'x', transport, logger };
    const room = createElement(Room, { topic: 'a.b' });
    const html = renderToString(createElement(PubSubProvider, { options }, room));
    assert.match(html, /initialized/);
  }
  await turns();
  assert.deepEqual(output, []);
});

/** What a hook returns where it is rendered on a server. */
function rendered<View>(hook: () => View): View {
  const seen: View[] = [];
  const Component = (): ReactNode => {
    seen.push(hook());
    return null;
  };
  const { ps } = virtualClient();
  renderToString(createElement(PubSubProvider, { client: ps }, createElement(Component)));
  return seen[0] as View;
}

test('a provider with both a client and options fails with a usage error', () => {
  const { ps } = virtualClient();
  const options = { url: 'wss://a.test' };
  // @ts-expect-error: the options would have no effect.
  const provider = () => createElement(PubSubProvider, { client: ps, options });
  assert.throws(
    () => renderToString(provider()),
    (error) => {
      assert.ok(error instanceof UsageError);
      assert.match(error.message, /both `client` and `options`/);
      return true;
    },
  );
});

test('a component outside of a provider fails with a usage error', () => {
  const room = createElement(Room, { topic: 'a.b' });
  assert.throws(
    () => renderToString(room),
    (error) => {
      assert.ok(error instanceof UsageError);
      assert.match(error.remedy, /inside <PubSubProvider>.* two copies of the package/);
      return true;
    },
  );
});

test('a stream is idle before anything is known, and cannot be cancelled or steered', async () => {
  const stream: StreamView = rendered(() => useStream('a.b'));
  assert.deepEqual([stream.status, stream.text], ['idle', '']);
  for (const call of [stream.cancel('enough'), stream.steer({ slower: true })]) {
    await assert.rejects(call, UsageError);
  }
});

test('a component that is not mounted cannot send, and one without a topic cannot publish', async () => {
  const view = rendered(() => useTopic('a.b', { reduce: (n: number) => n + 1, initial: 7 }));
  assert.equal(view.value, 7);
  assert.throws(() => view.send({ data: 1 }), UsageError);
  await assert.rejects(rendered(() => useTopic(null)).publish({ data: 1 }), InvalidTopic);
  await assert.rejects(rendered(() => usePresence(null)).update({}), InvalidTopic);
});
