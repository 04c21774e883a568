/** Gaps in a program that does not handle them: logged, or thrown. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  type Gap,
  InvalidOption,
  type Message,
  MessagesMissed,
  type Subscription,
} from '../../../js/src/index.js';
import type { Inbox } from '../../../js/src/runtime/inbox.js';
import { missed } from '../../../js/src/runtime/subscription.js';
import { take } from './server.js';
import { type FakePeer, turns, virtualClient } from './virtual.js';

const queue = { messages: 10 };

function logging(): { readonly warnings: string[]; readonly logger: object } {
  const warnings: string[] = [];
  return { warnings, logger: { warn: (text: string) => warnings.push(text), error: () => {} } };
}

/** Send more than a small queue can hold. */
async function flood(peer: FakePeer, ...topics: string[]): Promise<void> {
  for (let data = 0; data < 100; data += 1) {
    for (const topic of topics) {
      peer.socket.receive(peer.message(topic, data));
      await turns(1);
    }
  }
}

async function drain(sub: Subscription): Promise<Message[]> {
  const found: Message[] = [];
  const messages = sub[Symbol.asyncIterator]();
  while (sub.stats.queued) found.push((await messages.next()).value as Message);
  return found;
}

test('a gap that no handler sees is logged: what was missed, why, and what to do', async () => {
  const { warnings, logger } = logging();
  const { ps, peer } = virtualClient({ logger } as never);
  const sub = await ps.subscribe('a.slow', { queue });
  await flood(peer, 'a.slow');
  assert.equal((await drain(sub)).length, 10);
  assert.equal(warnings.length, 1);
  const [text = ''] = warnings;
  assert.match(text, /^90 messages of topic a\.slow \(positions 1 to 90\) were missed: /);
  assert.match(text, /reads too slowly/);
  for (const advice of ["`onGap` (a function, or 'raise')", '`stateLoader`', '`sub.events()`']) {
    assert.ok(text.includes(advice), text);
  }
  await ps.close();
});

test('gaps are logged once for each topic of each subscription', async () => {
  const { warnings, logger } = logging();
  const { ps, peer } = virtualClient({ logger } as never);
  const subs = [await ps.subscribe('a.*', { queue }), await ps.subscribe('a.*', { queue })];
  for (let round = 0; round < 3; round += 1) {
    await flood(peer, 'a.one', 'a.two');
    for (const sub of subs) await drain(sub);
  }
  const topics = warnings.map((text) => /topic (\S+)/.exec(text)?.[1]);
  assert.deepEqual(topics.sort(), ['a.one', 'a.one', 'a.two', 'a.two']);
  await ps.close();
});

for (const handled of ['onGap', 'stateLoader', 'listener', 'events']) {
  test(`a handled gap is not logged: ${handled}`, async () => {
    const { warnings, logger } = logging();
    const { ps, peer } = virtualClient({ logger } as never);
    const seen: Gap[] = [];
    const note = (gap: Gap): void => void seen.push(gap);
    if (handled === 'listener') ps.on('gap', note);
    const sub = await ps.subscribe('a.slow', {
      queue,
      onGap: handled === 'onGap' ? note : undefined,
      stateLoader: handled === 'stateLoader' ? note : undefined,
    });
    await flood(peer, 'a.slow');
    if (handled === 'events') {
      const { value } = await sub.events().next();
      if (value?.kind === 'gap') note(value.gap);
    }
    await drain(sub);
    await turns();
    assert.deepEqual(
      seen.map(({ missed }) => missed),
      [90],
    );
    assert.deepEqual(warnings, []);
    await ps.close();
  });
}

test('a gap between the messages of a handler is logged', async () => {
  const { warnings, logger } = logging();
  const { ps, peer } = virtualClient({ logger } as never);
  let goOn = (): void => {};
  const gate = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  await ps.subscribe('a.slow', { queue, onMessage: () => gate });
  await flood(peer, 'a.slow');
  goOn();
  await turns();
  assert.equal(warnings.length, 1);
  await ps.close();
});

test('with `raise`, the iteration throws in the place of the gap, and can continue after it', async () => {
  const { warnings, logger } = logging();
  const { ps, peer } = virtualClient({ logger } as never);
  const sub = await ps.subscribe('a.slow', { queue, onGap: 'raise' });
  await flood(peer, 'a.slow');
  await assert.rejects(drain(sub), (error: MessagesMissed) => {
    assert.ok(error instanceof MessagesMissed);
    assert.deepEqual([error.gap.missed, error.gap.reason], [90, 'slow_consumer']);
    assert.deepEqual([error.code, error.topic], ['messages_missed', 'a.slow']);
    return /^90 messages of topic a\.slow/.test(error.message);
  });
  assert.deepEqual(
    (await take(sub, 10)).map(({ data }) => data),
    Array.from({ length: 10 }, (_, n) => 90 + n),
  );
  assert.deepEqual(warnings, []);
  await ps.close();
});

test('`raise` also applies to events', async () => {
  const { ps, peer } = virtualClient();
  const sub = await ps.subscribe('a.slow', { queue, onGap: 'raise' });
  await flood(peer, 'a.slow');
  await assert.rejects(sub.events().next(), MessagesMissed);
  const { value } = await sub.events().next();
  assert.equal(value?.kind === 'message' && value.message.data, 90);
  await ps.close();
});

test('`raise` requires an iteration', async () => {
  const { ps } = virtualClient();
  const both = { onMessage: () => {}, onGap: 'raise' } as const;
  await assert.rejects(ps.subscribe('a.b', both), (error: InvalidOption) => {
    return error instanceof InvalidOption && /leaves no iteration/.test(error.message);
  });
  await assert.rejects(ps.subscribe('a.b', { onGap: 'throw' } as never), InvalidOption);
  await ps.close();
});

for (const [reason, text] of [
  [
    'log_reset',
    'Messages of topic a.b were missed: the server lost its history, or messages of other nodes.',
  ],
  [
    'node_changed',
    'Perhaps messages of topic a.b were missed: the client moved to a node that has its own ' +
      'history.',
  ],
] as const) {
  test(`a gap in words: ${reason}`, () => {
    const unknown = { from: undefined, to: undefined, missed: undefined };
    assert.equal(missed({ topic: 'a.b', reason, ...unknown }).message, text);
  });
}

test('a slow handler of presence beside an iteration gets the newest change', async () => {
  const { ps, peer } = virtualClient();
  const seen: string[] = [];
  const sub = await ps.subscribe('a.slow', {
    queue: { messages: 2, policy: 'error' },
    onPresence: (_, { change }) => seen.push(change),
  });
  const { presence } = (sub as unknown as { readonly _inbox: Inbox })._inbox;
  const member = { client_id: 'c', user_id: 'alice', name: 'alice', joined_at: 1, last_seen: 1 };
  for (const change of ['join', 'update', 'disconnect', 'connect', 'leave'] as const) {
    presence.put(
      { kind: 'presence', presence: { topic: 'a.slow', members: [], change, member } },
      false,
    );
  }
  peer.socket.receive(peer.message('a.slow', 1));
  await turns();
  assert.deepEqual(seen, ['disconnect', 'connect', 'leave']);
  assert.equal(sub.active, true);
  assert.equal(sub.stats.received, 1);
});
