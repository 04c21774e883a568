import assert from 'node:assert/strict';
import { test } from 'node:test';

import { InvalidTopic, PermissionDenied } from '../../js/src/index.js';
import { MemoryServer } from '../../js/src/testing/index.js';

test('a topic handle publishes, reads and shows presence on its own topic only', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client({ token: server.token('alice', { kind: 'service' }) });
  const room = ps.topic('chat.1');
  const other = ps.topic('chat.2');
  const sub = await room.subscribe();
  await room.publish({ data: 'one' });
  await other.publish({ data: 'elsewhere' });
  await room.publish({ data: 'two' });

  const read = async (options = {}): Promise<unknown[]> => {
    const found: unknown[] = [];
    for await (const { topic, data } of room.history(options)) found.push([topic, data]);
    return found;
  };
  assert.deepEqual(await read(), [
    ['chat.1', 'one'],
    ['chat.1', 'two'],
  ]);
  assert.deepEqual(await read({ limit: 1 }), [['chat.1', 'two']]);

  await room.updatePresence({ status: 'typing' });
  assert.deepEqual(
    (await room.presence()).map(({ user_id, status }) => [user_id, status]),
    [['alice', 'typing']],
  );
  assert.deepEqual(await room.occupancy(), { members: 1, users: 1 });
  assert.deepEqual(await other.presence(), []);
  assert.deepEqual(await other.occupancy(), { members: 0, users: 0 });
  await sub.unsubscribe();
});

test('a topic handle rejects what its topic does not allow', async () => {
  const rules = { maySubscribe: (_: unknown, topic: string) => topic !== 'chat.secret' };
  await using server = await new MemoryServer({ rules }).start();
  const ps = server.client();
  await assert.rejects(ps.topic('chat.secret').presence(), PermissionDenied);
  await assert.rejects(ps.topic('chat.secret').occupancy(), PermissionDenied);
  await assert.rejects(ps.topic('chat.*').updatePresence({}), InvalidTopic);
});
