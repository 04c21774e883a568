import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type InspectOptions, inspect } from 'node:util';

import { readStream, writeStream } from '../../../js/src/streams/index.js';
import { MemoryServer } from '../../../js/src/testing/index.js';

/** What `console.log` prints, on one line. */
const printed = (value: object, options: InspectOptions = {}): string =>
  inspect(value, { ...options, breakLength: Number.POSITIVE_INFINITY, compact: 9 });

test('Node prints a client with its URL and state', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  assert.equal(
    printed(ps),
    "PubSub { url: 'ws://memory.localhost/ws', state: 'initialized', transport: undefined }",
  );
  await ps.connect();
  assert.match(printed(ps), /state: 'connected', transport: 'websocket'/);
  assert.equal(printed(ps.topic('chat.1')), "TopicHandle { name: 'chat.1' }");
  assert.match(printed(server), /^MemoryServer \{ url: 'ws:.*', connections: 1,/);
});

test('Node prints a subscription without the payloads that wait', async () => {
  await using server = await new MemoryServer().start();
  const sub = await server.client().subscribe('chat.1');
  await server.publish('chat.1', { data: 'a payload' });
  await server.clock.settle();
  const shown = printed(sub, { depth: 9, showHidden: true });
  assert.match(shown, /^Subscription \{ topics: \[ 'chat.1', .*\], active: true,/);
  assert.match(shown, /queued: 1/);
  assert.doesNotMatch(shown, /payload/);
});

test('Node prints a stream without its text', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  await using reader = readStream(ps, 'chat.1', { id: 'answer' });
  await using writer = await writeStream(ps, 'chat.1', { id: 'answer' });
  await writer.write('a payload');
  await server.clock.advanceUntil(() => reader.text === 'a payload');
  for (const stream of [reader, writer]) {
    const shown = printed(stream, { depth: 9 });
    assert.match(shown, /^Stream(Reader|Writer) \{ id: 'answer'/);
    assert.doesNotMatch(shown, /payload/);
  }
});
