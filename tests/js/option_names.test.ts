/** Every function with options reports a name that it does not know, as `new PubSub` does. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fromAISDK, HanzoChatTransport } from '../../js/src/ai-sdk/index.js';
import { respond } from '../../js/src/requests/index.js';
import { sse } from '../../js/src/sse.js';
import { readStream, type StreamReader, writeStream } from '../../js/src/streams/index.js';
import { verify } from '../../js/src/webhooks/index.js';
import { virtualClient } from './runtime/virtual.js';

const { ps } = virtualClient();
const wrong = { colour: 1 } as object;
const nothing = async function* (): AsyncGenerator<never> {};
const calls: Record<string, () => unknown> = {
  readStream: () => readStream(ps, 'a', wrong),
  writeStream: () => writeStream(ps, 'a', wrong),
  sse: () => sse(nothing() as unknown as StreamReader, wrong),
  verify: () => verify('', {}, 'secret', wrong),
  respond: () => respond(ps, 'a', () => 1, wrong),
  fromAISDK: () => fromAISDK(nothing(), wrong),
  HanzoChatTransport: () => new HanzoChatTransport({ client: ps, topic: () => 'a', ...wrong }),
};

for (const [name, call] of Object.entries(calls)) {
  test(`${name} reports an option that it does not know`, async () => {
    await assert.rejects(async () => call(), {
      code: 'invalid_option',
      field: 'colour',
      message: 'There is no option `colour`.',
    });
  });
}

test('every option of a writer and of a reader is known', async () => {
  const { ps: client } = virtualClient();
  const writer = await writeStream(client, 'a.b', {
    id: 's1',
    epoch: 1,
    takeOver: false,
    sender: 'u1',
    meta: {},
    window: 40,
    listen: false,
    allow: () => true,
    onSteer: () => {},
  });
  const signal = AbortSignal.abort();
  const reader = readStream(client, 'a.b', { id: 's1', sender: 'u1', onCancel: () => {}, signal });
  await Promise.all([reader.close(), writer.abort('over')]);
  await client.close({ timeout: 0 });
});
