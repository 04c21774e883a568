/** Rendering on a server, and in a browser before hydration. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createElement, type ReactNode } from 'react';
import { renderToString } from 'react-dom/server';

import {
  PubSubProvider,
  useConnectionState,
  usePresence,
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
  const said: unknown[] = [];
  const note = (...words: unknown[]): number => said.push(words);
  for (const transport of ['auto', 'websocket'] as const) {
    const logger = { debug: note, info: note, warn: note, error: note };
    const options = { url: 'wss://pubsub.example.com/ws', token: 'x', transport, logger };
    const room = createElement(Room, { topic: 'a.b' });
    const html = renderToString(createElement(PubSubProvider, { options }, room));
    assert.match(html, /initialized/);
  }
  await turns();
  assert.deepEqual(said, []);
});
