/** The HTTP API of a hub as a `fetch` function, without a network. */

import type { ServerFrame } from '../generated/wire.js';
import { occupancyOf } from '../users.js';
import { isObject } from '../wire/guard.js';
import type { Connection } from './connection.js';
import type { Hub } from './hub.js';
import type { End, Link } from './link.js';
import { Problem, problemResponse } from './problem.js';
import { resultOf } from './publishing.js';
import {
  checkTopic,
  parseObject,
  readPublication,
  readSubscribe,
  type Subscribe,
} from './requests.js';
import type { Accept, Refusal } from './socket.js';
import type { Identity } from './tokens.js';

const TOPICS_DEFAULT = 100;

/** One request to the API. */
interface Asked {
  readonly hub: Hub;
  readonly token: string;
  readonly method: string;
  readonly path: readonly string[];
  readonly query: URLSearchParams;
  readonly body: string;
  readonly signal: AbortSignal | undefined;
  readonly accept: Accept;
}

/** Answer a request. */
export async function answer(
  hub: Hub,
  accept: Accept,
  input: RequestInfo | URL,
  init: RequestInit = {},
): Promise<Response> {
  const request = new Request(input, withoutExtras(init));
  const { pathname, searchParams: query } = new URL(request.url);
  const asked: Asked = {
    hub,
    accept,
    token: request.headers.get('Authorization') ?? '',
    method: request.method,
    path: pathname.split('/').slice(1).map(decodeURIComponent),
    query,
    body: await request.text(),
    signal: init.signal ?? undefined,
  };
  asked.signal?.throwIfAborted();
  try {
    return await perform(asked);
  } catch (error) {
    if (error instanceof Problem) return problemResponse(error);
    throw error;
  }
}

function perform(asked: Asked): Response | Promise<Response> {
  const { hub, method, path, query, body, token } = asked;
  if (!token) throw new Problem('unauthenticated', 'send a token in `Authorization`');
  const identity = hub.core.tokens.authenticate(token);
  const [version, noun, name, verb] = path;
  const { maxPayload, maxBatch } = hub.core.settings;
  const route = version === 'v1' ? [method, noun, path.length].join(' ') : '';
  if (route === 'GET session 2') {
    return json(hub.session(identity, query.get('client_id') ?? undefined));
  }
  if (route === 'GET subscribe 2' || route === 'POST subscribe 2') return stream(asked);
  if (route === 'GET topics 2') {
    const limit = whole(query, 'limit') ?? TOPICS_DEFAULT;
    return json(hub.topics(identity, query.get('prefix') ?? '', limit));
  }
  if (route === 'POST messages:batch 2') {
    const { messages } = parseObject(body);
    if (!Array.isArray(messages) || !messages.length || messages.length > maxBatch) {
      const detail = `\`messages\` must be a list of 1 to ${maxBatch} items`;
      throw new Problem('invalid_frame', detail, { field: 'messages' });
    }
    const items = messages.map((item: unknown, n) =>
      caught(() => readPublication(item, maxPayload, undefined, `messages.${n}`)),
    );
    return json({ results: hub.publishing.publish(identity, items).map(resultOf) });
  }
  if (noun === 'topics' && path.length === 4) {
    const topic = checkTopic(name, 'topic');
    if (method === 'POST' && verb === 'messages') {
      const draft = readPublication(parseObject(body), maxPayload, topic);
      const [result] = hub.publishing.publish(identity, [draft]);
      if (!result || result instanceof Problem) throw result;
      return json(resultOf(result), result.duplicate ? 200 : 201);
    }
    if (method === 'GET' && verb === 'history') {
      const names = ['since', 'after', 'limit', 'before_seq'];
      const [since, after, limit, seq] = names.map((one) => whole(query, one));
      const before = seq ?? (query.get('before') || undefined);
      return json(hub.history(identity, topic, { since, before, after }, limit));
    }
    if (method === 'GET' && verb === 'presence') {
      return json({ members: hub.members(identity, topic) });
    }
    if (method === 'GET' && verb === 'occupancy') {
      return json(occupancyOf(hub.members(identity, topic)));
    }
  }
  throw new Problem('not_found', 'this address does not exist');
}

// ---------------------------------------------------------------- event streams

/** The end of an event stream on the side of the client. */
class StreamEnd implements End {
  readonly transport = 'sse';
  readonly body: ReadableStream;
  link: Link | undefined;
  /** Events that follow the last answer. */
  private readonly _waiting: string[] = [];
  private _controller: ReadableStreamDefaultController | undefined;

  /** @param _due Number of answers that are due; only the last one has an event id. */
  constructor(
    signal: AbortSignal | undefined,
    private _due: number,
  ) {
    this.body = new ReadableStream({
      start: (controller: ReadableStreamDefaultController) => {
        this._controller = controller;
      },
      cancel: () => void this._leave(),
    });
    signal?.addEventListener('abort', () => {
      const controller = this._leave();
      controller?.error(signal.reason);
    });
    this._write(': welcome\n\n');
  }

  arrived(frame: ServerFrame, id: string | undefined): void {
    const isAnswer = frame.type === 'subscribed';
    if (isAnswer && !frame.more) this._due -= 1;
    const [name, data] = eventOf(frame);
    const mark = id === undefined || (isAnswer && this._due) ? '' : `id: ${id}\n`;
    const event = `${mark}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
    if (this._due && !isAnswer) this._waiting.push(event);
    else this._write([event, ...this._waiting.splice(0)].join(''));
  }

  pinged(): void {
    this._write(': keepalive\n\n');
  }

  ended(code: number | undefined): void {
    const controller = this._controller;
    this._controller = undefined;
    if (code === undefined) controller?.error(new TypeError('the connection was lost'));
    else controller?.close();
  }

  private _write(text: string): void {
    this._controller?.enqueue(new TextEncoder().encode(text));
  }

  private _leave(): ReadableStreamDefaultController | undefined {
    const controller = this._controller;
    this._controller = undefined;
    this.link?.closed();
    return controller;
  }
}

/** Convert a frame to the name and data of its HIP-56 event. */
function eventOf(frame: ServerFrame): readonly [name: string, data: object] {
  if (frame.type === 'message') return ['message', frame.message];
  const { type, ...fields } = frame;
  if (!('members' in fields)) return [type, fields];
  // In HIP-56, members on an event stream have an `id`.
  const members = fields.members.map((member) => ({ id: member.user_id, ...member }));
  return ['presence', { ...fields, members }];
}

async function stream(asked: Asked): Promise<Response> {
  const { hub, token, accept, signal } = asked;
  const { wanted, clientId } =
    asked.method === 'GET' ? { wanted: [fromQuery(asked.query)] } : fromBody(asked.body);
  const end = new StreamEnd(signal, wanted.length);
  const link = await accept(end).catch(({ reason }: Refusal) => {
    throw new TypeError(`fetch failed: ${reason}`);
  });
  end.link = link;
  const { connection } = link;
  let identity: Identity;
  try {
    hub.admit(connection, token, clientId);
    identity = allowed(hub, connection, wanted);
  } catch (error) {
    link.closed();
    throw error;
  }
  for (const one of wanted) hub.subscriptions.subscribe(connection, identity, one);
  const headers = { 'Content-Type': 'text/event-stream', 'Client-Id': connection.clientId };
  return new Response(end.body, { headers });
}

/** Reject a request of which no topic is allowed: its stream would stay empty. */
function allowed(hub: Hub, connection: Connection, wanted: readonly Subscribe[]): Identity {
  const patterns = wanted.flatMap(({ topics }) => topics);
  const [first] = wanted.flatMap(({ invalid }) => invalid);
  if (!patterns.length && first) throw first;
  const { identity } = connection;
  if (identity && patterns.some((pattern) => hub.core.mayHold(identity, pattern))) return identity;
  const details = { topic: patterns[0], field: 'topics' };
  throw new Problem(
    'forbidden',
    'the access rules do not allow reading any of these topics',
    details,
  );
}

function fromQuery(query: URLSearchParams): Subscribe {
  const topics = query.getAll('topics').flatMap((value) => value.split(','));
  if (!topics.some(Boolean)) {
    throw new Problem('invalid_option', '`topics` is missing', { field: 'topics' });
  }
  const presence = query.has('presence') ? query.get('presence') === 'true' : undefined;
  const [since, history] = [whole(query, 'since'), whole(query, 'history')];
  return readSubscribe({ topics, since, history, presence });
}

function fromBody(body: string): { wanted: Subscribe[]; clientId?: string } {
  const { subscriptions, presence = false, client_id: clientId } = parseObject(body);
  if (!Array.isArray(subscriptions) || !subscriptions.length) {
    const field = 'subscriptions';
    throw new Problem('invalid_frame', '`subscriptions` must be a list of items', { field });
  }
  if (clientId !== undefined && !(typeof clientId === 'string' && [...clientId].length <= 64)) {
    const field = 'client_id';
    throw new Problem('invalid_frame', '`client_id` is a string of up to 64 characters', { field });
  }
  const wanted = subscriptions.map((item: unknown) =>
    readSubscribe({ ...(isObject(item) ? item : {}), presence }),
  );
  return clientId === undefined ? { wanted } : { wanted, clientId };
}

// ---------------------------------------------------------------- help

/**
 * Keep method, headers and body. The caller handles the signal; the other fields concern a network.
 */
function withoutExtras({ method, headers, body }: RequestInit): RequestInit {
  return { ...(method && { method }), ...(headers && { headers }), ...(body && { body }) };
}

function json(body: object, status = 200): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { 'Content-Type': 'application/json' },
  });
}

function whole(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  if (/^\d{1,16}$/.test(text)) return Number(text);
  throw new Problem('invalid_option', `\`${name}\` must be a whole number`, { field: name });
}

function caught<T>(read: () => T): T | Problem {
  try {
    return read();
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
}
