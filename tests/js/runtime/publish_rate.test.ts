import assert from 'node:assert/strict';
import { test } from 'node:test';

import { writeStream } from '../../../js/src/streams/index.js';
import { MemoryServer } from '../../../js/src/testing/index.js';

const TOPIC = 'chat.session.abc';

/** A server, and a client of a user that collects its warnings. */
async function rig(publishRateUser: number) {
  const server = await new MemoryServer({ publishRateUser }).start();
  const warnings: string[] = [];
  const logger = { warn: (text: string) => warnings.push(text), error: () => {} };
  return { server, warnings, ps: server.client({ token: server.token('alice'), logger }) };
}

/** The result of a promise while time advances. */
async function within<T>(server: MemoryServer, promise: Promise<T>): Promise<T> {
  let isSettled = false;
  const settled = promise.finally(() => {
    isSettled = true;
  });
  for (let passed = 0; !isSettled && passed < 60_000; passed += 20) await server.clock.advance(20);
  return settled;
}

test('publishes that wait over a second are counted and logged once', async () => {
  const { server, warnings, ps } = await rig(10);
  assert.equal(ps.slowed, 0);
  const publishes = Array.from({ length: 40 }, (_, n) => ps.publish(TOPIC, { data: n }));
  await within(server, Promise.all(publishes));
  assert.ok(ps.slowed >= 15 && ps.slowed <= 25, `${ps.slowed}`); // sends 9 at once, then 10 per second
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? '', /10 messages per second with this token\. Publish less often, /);
  await server.stop();
});

test('the timeout of a publish that waits for the rate names the rate', async () => {
  const { server, ps } = await rig(10);
  const publishes = Array.from({ length: 60 }, (_, n) =>
    ps.publish(TOPIC, { data: n }, { timeout: 2_000 }),
  );
  const settled = await within(server, Promise.allSettled(publishes));
  const late = settled.find(({ status }) => status === 'rejected') as PromiseRejectedResult;
  assert.match(
    late.reason.message,
    /State: connected\. The client limits publishes to 10 per second/,
  );
  await server.stop();
});

test('a program within its rate is never slowed', async () => {
  const { server, warnings, ps } = await rig(10);
  for (let burst = 0; burst < 4; burst += 1) {
    const publishes = Array.from({ length: 9 }, () => ps.publish(TOPIC, { data: burst }));
    await within(server, Promise.all(publishes));
    await server.clock.advance(1_000);
  }
  assert.deepEqual([ps.slowed, warnings], [0, []]);
  await server.stop();
});

test('streams that are slowed by the rate log it once for the client', async () => {
  const { server, warnings, ps } = await rig(2);
  const answer = async (session: number): Promise<number> => {
    const writer = await writeStream(ps, `chat.session.${session}`, { listen: false });
    for (let n = 0; n < 20; n += 1) {
      await writer.write('word ');
      await new Promise<void>((resolve) => server.clock.callLater(100, resolve));
    }
    await writer.complete();
    return writer.stats.slowed;
  };
  const slowed = await within(server, Promise.all([0, 1, 2, 3].map(answer)));
  assert.ok(slowed.every((count) => count > 0));
  assert.ok(ps.slowed > 0);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? '', /2 messages per second/);
  await server.stop();
});

test('a frame that waits for the rate keeps its place', async () => {
  const { server, ps } = await rig(2);
  const answer = async (session: number): Promise<number> => {
    const writer = await writeStream(ps, `chat.session.${session}`, { listen: false });
    await writer.write('word');
    await writer.complete();
    return writer.stats.retries;
  };
  // Each frame waits for about 15 s, longer than the timeout of other publishes.
  const answers = Array.from({ length: 30 }, (_, session) => answer(session));
  assert.deepEqual(await within(server, Promise.all(answers)), Array(30).fill(0));
  await server.stop();
});

test('streams on a slow server log it once for the client', async () => {
  const { server, warnings, ps } = await rig(100);
  await ps.connect();
  const answer = async (session: number): Promise<number> => {
    const writer = await writeStream(ps, `chat.session.${session}`, { listen: false });
    await writer.complete();
    return writer.stats.slowed;
  };
  const fault = server.frozen();
  const answers = Promise.all([0, 1, 2, 3].map(answer));
  await server.clock.advance(2_000);
  fault.end();
  assert.deepEqual(await within(server, answers), [1, 1, 1, 1]);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? '', /the server was slow/);
  await server.stop();
});
