/** A program that is compiled and not run; a line below `@ts-expect-error` must be refused. */

import {
  type Gap,
  type Message,
  type OnlyTopics,
  PermissionDenied,
  PubSub,
  PubSubError,
  type StateChange,
  type Subscription,
} from '@hanzoai/pubsub';
import { MemoryServer } from '@hanzoai/pubsub/testing';
import { verify, type WebhookDelivery } from '@hanzoai/pubsub/webhooks';

interface Word {
  readonly text: string;
}

interface Topics {
  'chat.session.abc': Word;
  [agent: `agent.${string}.events`]: { readonly status: 'thinking' | 'done' };
}

/** A value of a program's own settings, which may be absent, means the default. */
export function absent(given: undefined): PubSub {
  return new PubSub({
    operationTimeout: given,
    sendQueue: { messages: given },
    receiveQueue: { bytes: given },
    retry: { base: given },
  });
}

export function absentInTests(given: undefined): MemoryServer {
  return new MemoryServer({ historyMaxMessages: given });
}

export function absentInWebhooks(given: undefined): Promise<WebhookDelivery> {
  return verify('', {}, 'secret', { tolerance: given, now: given });
}

export async function typed(): Promise<void> {
  await using ps = new PubSub<Topics>({
    url: 'wss://pubsub.example.com/ws',
    getToken: async ({ reason }, { signal }) => {
      const kind: 'connect' | 'expiring' | 'rejected' = reason;
      return (await fetch(`/token?${kind}`, { signal })).text();
    },
  });

  await ps.publish('chat.session.abc', { type: 'word', data: { text: 'hello' } });
  await ps.publish('agent.bot1.events', { data: { status: 'thinking' } });
  // @ts-expect-error The payload of this topic has a text.
  await ps.publish('chat.session.abc', { data: { txt: 'hello' } });
  // @ts-expect-error The payload of these topics is a status.
  await ps.publish('agent.bot1.events', { data: { status: 'sleeping' } });
  await ps.publishMany([
    ['chat.session.abc', { data: { text: 'hello' } }],
    { topic: 'agent.bot1.events', data: { status: 'done' } },
  ]);
  // @ts-expect-error The payload of this topic has a text.
  await ps.publishMany([['chat.session.abc', { data: { txt: 'hello' } }]]);
  // @ts-expect-error A publish has data.
  await ps.publish('chat.session.abc', { type: 'word' });

  const sub: Subscription<Word> = await ps.subscribe('chat.session.abc', {
    onMessage: (message: Message<Word>) => message.data.text.length,
    onGap: (gap: Gap) => gap.missed,
    onPresence: (members, { change, member }) => {
      // @ts-expect-error A list has no changed member.
      member.user_id;
      return change === 'snapshot' ? members.length : member.user_id;
    },
  });
  for await (const message of sub) {
    const text: string = message.data.text;
    // @ts-expect-error Messages are read, not written.
    message.topic = text;
  }
  const free = await ps.subscribe('other.topic');
  for await (const { data } of free) data.anything.at.all;

  for await (const change of ps.states()) {
    const { to, retryIn }: StateChange = change;
    if (to === 'connected') break;
    // @ts-expect-error It may be undefined.
    retryIn.toFixed();
  }
  try {
    await ps.connect({ signal: AbortSignal.timeout(1_000) });
  } catch (error) {
    if (error instanceof PermissionDenied) throw new Error(error.remedy);
    if (error instanceof PubSubError && error.retryable) error.code satisfies string;
  }
  // @ts-expect-error There is no such option.
  new PubSub({ ur: 'wss://pubsub.example.com/ws' });
}

/** A key for all other topics says what is known of them. */
export async function fallback(
  ps: PubSub<{ 'chat.session.abc': Word; [other: string]: unknown }>,
): Promise<void> {
  // @ts-expect-error The payload of this topic has a text.
  await ps.publish('chat.session.abc', { data: { txt: 'hello' } });
  await ps.publish('other.topic', { data: { anything: true } });
  for await (const { data } of await ps.subscribe('other.topic')) {
    // @ts-expect-error Nothing is known of it.
    data.text;
  }
}

/** Topics beyond the map are refused, and patterns have the payloads of what they match. */
export async function strict(ps: PubSub<OnlyTopics<Topics>>): Promise<void> {
  await ps.publish('chat.session.abc', { data: { text: 'hello' } });
  await ps.publish('agent.bot1.events', { data: { status: 'done' } });
  // @ts-expect-error There is no such topic.
  await ps.publish('chat.sesion.abc', { data: { text: 'hello' } });
  // @ts-expect-error There is no such topic.
  await ps.subscribe('chat.sesion.abc');
  // @ts-expect-error There is no such topic.
  await ps.subscribe(['chat.session.abc', 'chat.sesion.abc']);
  // @ts-expect-error There is no such topic.
  await ps.publishMany([['chat.sesion.abc', { data: { text: 'hello' } }]]);
  // @ts-expect-error There is no such topic.
  ps.history('chat.sesion.abc');
  // @ts-expect-error There is no such topic.
  ps.topic('chat.sesion.abc');
  // @ts-expect-error It may be any topic.
  ps.topic('chat.session.abc' as string);

  const words: Subscription<Word> = await ps.subscribe('chat.*.abc', {
    onMessage: ({ data }) => data.text.length,
  });
  const all = await ps.subscribe(['chat.**', 'agent.**']);
  for await (const { data } of all) {
    if ('text' in data) data satisfies Word;
    else data.status satisfies 'thinking' | 'done';
  }
  for await (const { data } of await ps.subscribe('other.*')) {
    // @ts-expect-error Nothing is known of what it matches.
    data.text;
  }
  const { data } = (await ps.topic('chat.session.abc').history().next()).value as Message<Word>;
  await ps.topic('chat.session.abc').publish({ data });
  // @ts-expect-error The payload of this topic has a text.
  await ps.topic('chat.session.abc').publish({ data: { txt: 'hello' } });
  log(ps, words);
}

/** Editors complete the topics of a map, because the type of the parameter lists them. */
type Completed<Client extends PubSub> = Extract<
  Parameters<Client['publish']>[0],
  'chat.session.abc'
>;

export const completed: readonly [
  Completed<PubSub<Topics>>,
  Completed<PubSub<OnlyTopics<Topics>>>,
] = ['chat.session.abc', 'chat.session.abc'];

/** What works for every client takes those of any map. */
function log(ps: PubSub, sub: Subscription): string {
  return `${ps.state} ${sub.topics}`;
}

export function logged(
  mapped: PubSub<Topics>,
  strict: PubSub<OnlyTopics<Topics>>,
  sub: Subscription<Word>,
): string[] {
  return [mapped, strict].map((each) => log(each, sub)).concat(log(mapped, sub), log(strict, sub));
}

export function made(sub: Subscription, options: object, around: object): void {
  // @ts-expect-error What tests put around a client is no part of the package.
  new PubSub(options, around);
  sub satisfies AsyncIterable<Message>;
}
