import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import WebSocket from 'ws';

import type { WebSocketLike } from '../../../js/src/index.js';
import { type Kind, MemoryServer, SystemClock } from '../../../js/src/testing/index.js';
import { Server } from '../runtime/server.js';
import { SCENARIOS } from './scenarios.js';
import { play, type Side } from './stage.js';

const KINDS: Readonly<Record<string, Kind>> = {
  root: 'admin',
  worker: 'service',
  writer: 'service',
};

let server: Server;

before(async () => {
  server = await Server.start(
    ...['--history-max-messages', '5', '--max-payload', '1000', '--publish-rate-user', '60'],
  );
});
after(() => server.stop());

function real(): Side {
  return {
    connect: () => new WebSocket(server.ws) as unknown as WebSocketLike,
    http: server.http,
    fetch,
    token: (user) => {
      const kind = KINDS[user];
      return server.token('--user', user, ...(kind ? [`--${kind}`] : []));
    },
  };
}

/** A server in memory with the settings of the real one. */
async function inMemory(): Promise<{
  readonly side: Side;
  readonly memory: MemoryServer<SystemClock>;
}> {
  const owned = (user: string, topic: string): boolean =>
    topic.startsWith('demo.') || topic.startsWith(`user.${user}.`);
  const memory = await new MemoryServer({
    clock: new SystemClock(),
    historyMaxMessages: 5,
    maxPayload: 1_000,
    publishRateUser: 60,
    publishRateService: 100,
    rules: {
      maySubscribe: ({ userId }, topic) => owned(userId, topic),
      mayPublish: ({ kind }, topic) => kind === 'service' || topic.startsWith('demo.'),
    },
  }).start();
  const { WebSocket: Socket, fetch: ask } = memory.options;
  assert.ok(Socket && ask);
  const side: Side = {
    connect: () => new Socket(memory.url),
    http: 'http://memory.localhost',
    fetch: ask,
    token: (user) => memory.token(user, { kind: KINDS[user] ?? 'user', ttl: 3_600_000 }),
  };
  return { side, memory };
}

for (const [name, steps] of Object.entries(SCENARIOS)) {
  test(`both servers answer alike: ${name}`, async () => {
    await server.fault({ fault: 'evict', log: true });
    const { side, memory } = await inMemory();
    try {
      const [expected, reported] = [await play(real(), steps), await play(side, steps)];
      assert.deepEqual(reported, expected);
    } finally {
      await memory.stop();
    }
  });
}
