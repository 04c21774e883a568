// The TypeScript SDK behind a protocol of JSON lines; `peer.py` is its twin and says how it goes.

import { createInterface } from 'node:readline';
import WebSocket from 'ws';

import {
  AuthRefused,
  type Message,
  PubSub,
  PubSubError,
  type PubSubOptions,
  ReplyError,
  type Subscription,
  type SubscriptionEvent,
  type TokenContext,
  type WebSocketConstructor,
} from '../../../js/src/index.js';
import { type Responder, request, respond } from '../../../js/src/requests/index.js';
import { readStream, type StreamReader, writeStream } from '../../../js/src/streams/index.js';

type Json = Readonly<Record<string, unknown>>;
// biome-ignore lint/suspicious/noExplicitAny: a scenario may pass wrong values on purpose
type Given = Record<string, any>;

const NUMBERS: Readonly<Record<string, number>> = {
  nan: Number.NaN,
  infinity: Infinity,
  '-infinity': -Infinity,
  '-0': -0,
};

/** What JSON cannot say: `{"$number": "nan"}`, `{"$function": true}`. */
function read(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(read);
  if (typeof value !== 'object' || value === null) return value;
  if ('$number' in value) return NUMBERS[String(value.$number)];
  if ('$function' in value) return () => {};
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, read(item)]));
}

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function snake(name: string): string {
  return name.replace(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Names in camel case, of groups of options too. */
function camelled(given: Given): Given {
  return Object.fromEntries(
    Object.entries(given).map(([name, value]) => [
      camel(name),
      name === 'retry' || name.endsWith('queue') ? camelGroup(value) : value,
    ]),
  );
}

function camelGroup(value: unknown): unknown {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? camelled(value)
    : value;
}

function snaked(value: object): Json {
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [snake(name), item]));
}

/** Words of an error with the names of this protocol in their backticks. */
function words(text: string): string {
  return text.replace(/`[^`]*`/g, snake);
}

function problem(error: unknown): Json {
  if (!(error instanceof Error)) return { type: typeof error, message: String(error) };
  if (!(error instanceof PubSubError)) return { type: error.name, message: error.message };
  const { name, code, message, remedy, retryable, topic, field, retryAfter } = error;
  const reported: Record<string, unknown> = { type: name, code, retryable };
  reported['message'] = words(message);
  reported['remedy'] = words(remedy);
  reported['topic'] = topic ?? null;
  reported['field'] = field === undefined ? null : snake(field);
  if (retryAfter !== undefined) reported['retry_after'] = retryAfter;
  for (const extra of ['outcomeUnknown', 'size', 'limit']) {
    const value: unknown = Reflect.get(error, extra);
    if (value !== undefined) reported[snake(extra)] = value;
  }
  return reported;
}

function tell(line: Json): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** One client, and what it reports to a scenario. */
class Client {
  readonly ps: PubSub;
  private readonly _asked: {
    readonly resolve: (token: string) => void;
    readonly reject: (error: Error) => void;
  }[] = [];

  constructor(
    private readonly _name: string,
    given: Given,
  ) {
    const chosen = camelled(given);
    if (chosen['getToken'] === 'ask') {
      chosen['getToken'] = (context: TokenContext) => this._getToken(context);
    }
    this.ps = new PubSub({
      WebSocket: WebSocket as unknown as WebSocketConstructor,
      ...(chosen as PubSubOptions),
    });
    this.ps.on('state', (change) => tell({ see: `${_name}.states`, state: snaked(change) }));
    this.ps.on('error', (error) => tell({ see: `${_name}.errors`, error: problem(error) }));
  }

  giveToken({ call, token, raises }: Given): void {
    const asked = this._asked[call - 1];
    if (token !== undefined) asked?.resolve(token);
    else asked?.reject(raises === 'auth_refused' ? new AuthRefused() : new Error('signed out'));
  }

  private _getToken({ reason, attempt }: TokenContext): Promise<string> {
    return new Promise((resolve, reject) => {
      const call = this._asked.push({ resolve, reject });
      tell({ see: `${this._name}.tokens`, asked: { call, reason, attempt } });
    });
  }
}

const clients = new Map<string, Client>();
const subs = new Map<string, Subscription>();
/** Ends a subscription that may not be answered yet. */
const enders = new Map<string, AbortController>();
const readers = new Set<Promise<void>>();
const responders = new Map<string, Responder>();

function client(name: string): PubSub {
  const found = clients.get(name);
  if (!found) throw new Error(`There is no client ${name}.`);
  return found.ps;
}

function subscription(name: string): Subscription {
  const found = subs.get(name);
  if (!found) throw new Error(`There is no subscription ${name}.`);
  return found;
}

function see(name: string, { kind, ...fields }: SubscriptionEvent): void {
  tell({ see: name, ...fields });
}

async function reading(name: string, sub: Subscription): Promise<void> {
  try {
    for await (const event of sub.events()) see(name, event);
    tell({ see: name, ended: null });
  } catch (error) {
    tell({ see: name, ended: problem(error) });
  }
}

async function act(name: string, handler: Given, message: Message): Promise<void> {
  see(name, { kind: 'message', message });
  if (JSON.stringify(message.data) !== JSON.stringify(handler['at'])) return;
  switch (handler['do']) {
    case 'fail':
      throw new Error('the handler failed');
    case 'unsubscribe':
      return subs.get(name)?.unsubscribe();
    case 'close':
      return client(handler['by']).close();
    default: {
      const again = { data: ['again', message.data] };
      const published = await client(handler['by']).publish(message.topic, again);
      tell({ see: name, published });
    }
  }
}

async function subscribe(by: string, given: Given): Promise<Json> {
  const { sub, topics, mode = 'events', ...options } = given;
  const chosen: Given = options;
  if (mode === 'handlers' || mode === 'presence') {
    chosen['onPresence'] = (_: unknown, presence: never) =>
      see(sub, { kind: 'presence', presence });
  }
  if (mode === 'acting') {
    const { handler } = chosen;
    delete chosen['handler'];
    chosen['onMessage'] = (message: Message) => act(sub, handler, message);
  }
  if (mode === 'handlers') {
    chosen['onMessage'] = (message: Message) => see(sub, { kind: 'message', message });
    chosen['onGap'] = (gap: never) => see(sub, { kind: 'gap', gap });
  }
  const ender = new AbortController();
  enders.set(sub, ender);
  let found: Subscription;
  try {
    found = await client(by).subscribe(topics, { ...camelled(chosen), signal: ender.signal });
  } catch (error) {
    if (ender.signal.aborted) return { topics, denied: [] };
    throw error;
  }
  subs.set(sub, found);
  if (mode === 'events') readers.add(reading(sub, found));
  return {
    topics: found.topics,
    denied: found.denied.map(({ topic, code }) => ({ topic, code })),
  };
}

async function history(by: string, { topic, ...options }: Given): Promise<Message[]> {
  const found: Message[] = [];
  for await (const message of client(by).history(topic, options)) found.push(message);
  return found;
}

async function reset(): Promise<Json> {
  const open = [...clients.values()];
  clients.clear();
  subs.clear();
  enders.clear();
  for (const { ps } of open) await ps.close({ timeout: 0 });
  await Promise.all(readers);
  const count = readers.size;
  readers.clear();
  return { readers: count };
}

async function answerRequests(by: string, given: Given): Promise<void> {
  const { sub, topics, behaviour, ...options } = given;
  const answer = (message: Message): unknown => {
    tell({ see: sub, request: message });
    if ('reply_error' in behaviour) {
      const { message: text, ...details } = behaviour.reply_error;
      throw new ReplyError(text, details);
    }
    if (behaviour.fails) throw new Error('the handler failed');
    return 'gives' in behaviour ? behaviour.gives : { echo: message.data };
  };
  responders.set(sub, await respond(client(by), topics, answer, camelled(options)));
}

async function write(by: string, { topic, pieces, end, ...options }: Given): Promise<unknown> {
  const writer = await writeStream(client(by), topic, camelled(options));
  for (const piece of pieces) await writer.write(piece);
  if ('abort' in end) await writer.abort(end.abort);
  else await writer.complete(camelled(end));
  return { text: writer.text, parts: writer.parts, epoch: writer.epoch };
}

async function readingStream(name: string, reader: StreamReader): Promise<void> {
  try {
    for await (const event of reader) {
      tell({ see: name, event: event.kind });
    }
    const final = await reader.final();
    tell({ see: name, final: final.reason, text: final.text });
  } catch (error) {
    tell({ see: name, ended: problem(error) });
  }
}

/** The next messages, `end`, or the error that ended the subscription. */
async function take(name: string, count: number): Promise<unknown[]> {
  const found: unknown[] = [];
  try {
    const iterator = subscription(name)[Symbol.asyncIterator]();
    while (found.length < count) {
      const next = await iterator.next();
      if (next.done) {
        found.push('end');
        break;
      }
      found.push(next.value);
    }
  } catch (error) {
    found.push({ error: problem(error) });
  }
  return found;
}

async function viaTopic(by: string, { topic, call, args, ...options }: Given): Promise<unknown> {
  const handle = client(by).topic(topic);
  if (call === 'history') {
    const found: Message[] = [];
    for await (const message of handle.history(camelled(options))) found.push(message);
    return found;
  }
  const method: unknown = Reflect.get(handle, camel(call));
  if (typeof method !== 'function') throw new Error(`A topic has no ${call}.`);
  return method.call(handle, ...args, camelled(options));
}

const COMMANDS: Readonly<Record<string, (by: string, given: Given) => unknown>> = {
  new: (by, given) => void clients.set(by, new Client(by, given)),
  reset,
  connect: (by, given) => client(by).connect(given),
  close: (by, given) => client(by).close(given),
  state: (by) => client(by).state,
  give_token: (by, given) => clients.get(by)?.giveToken(given),
  publish: (by, { topic, message, ...options }) => client(by).publish(topic, message, options),
  publish_many: async (by, { messages, ...options }) =>
    (await client(by).publishMany(messages, options)).map((one) =>
      one instanceof PubSubError ? { error: problem(one) } : one,
    ),
  publish_each: async (by, { topic, data }) =>
    (await Promise.all(data.map((one: unknown) => client(by).publish(topic, { data: one }))))
      .length,
  info: (by) => {
    const ps = client(by);
    const failure = ps.lastFailure;
    return {
      state: ps.state,
      transport: ps.transport ?? null,
      last_failure: failure ? snaked(failure) : null,
      has_id: ps.clientId !== undefined,
      limits: ps.limits ?? null,
      slowed: ps.slowed,
    };
  },
  request: (by, { topic, data, ...options }) => request(client(by), topic, data, camelled(options)),
  respond: answerRequests,
  close_responder: (by, options) => responders.get(by)?.close(options),
  write,
  read_stream: (by, { sub, topic, ...options }) =>
    void readers.add(readingStream(sub, readStream(client(by), topic, camelled(options)))),
  take: (by, { count }) => take(by, count),
  topic: viaTopic,
  history,
  history_data: async (by, given) => (await history(by, given)).map(({ data }) => data),
  presence: (by, { topic }) => client(by).presence(topic),
  occupancy: (by, { topic }) => client(by).occupancy(topic),
  update_presence: (by, { topic, data, ...options }) =>
    client(by).updatePresence(topic, data, options),
  topics: (by, { prefix, limit }) => client(by).topics(prefix, { limit }),
  subscribe,
  read: (by) => void readers.add(reading(by, subscription(by))),
  unsubscribe: (by) => subs.get(by)?.unsubscribe() ?? enders.get(by)?.abort(),
  positions: (by) => subscription(by).positions,
  stats: (by) => snaked(subscription(by).stats),
  active: (by) => subs.get(by)?.active ?? false,
};

async function answer(line: string): Promise<void> {
  const { id, do: name, by, with: given } = JSON.parse(line);
  try {
    const perform = COMMANDS[name];
    if (!perform) throw new Error(`There is no command ${name}.`);
    tell({ id, gives: (await perform(by, read(given ?? {}) as Given)) ?? null });
  } catch (error) {
    tell({ id, fails: problem(error) });
  }
}

process.on('unhandledRejection', (error) => {
  tell({ see: 'trouble', trouble: `unhandled rejection: ${error}` });
});
const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => void answer(line));
lines.on('close', () => void reset().then(() => process.exit(0)));
tell({ ready: 'typescript' });
