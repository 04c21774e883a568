/**
 * A server in virtual time: logs with bounded retention, `seq`, resets, denial, limits, tokens.
 *
 * It does and draws what `tests/simulation/server.py` does and draws, step by step.
 */

import type {
  AuthFrame,
  AuthOkFrame,
  ClientFrame,
  Denial,
  Envelope,
  ErrorFrame,
  Publication,
  PublishedFrame,
  PublishFrame,
  PublishResult,
  ServerFrame,
  SubscribedFrame,
  SubscribeFrame,
} from '../../../js/src/generated/wire.js';
import { matches } from '../../../js/src/topics.js';
import { compact } from '../../../js/src/wire/compact.js';
import { FEATURES, type Profile, SECRET } from './profile.js';
import type { World } from './world.js';

/** A message that was published. */
export interface Entry {
  readonly message: Envelope;
  /** Its place among all of its topic, over resets of the log. */
  readonly index: number;
  /** Which log of the topic holds it. */
  readonly log: number;
  /** When its retention ends, if it does. */
  readonly until: number | undefined;
}

/** The retained messages of one topic. */
class Log {
  next: number;
  entries: Entry[] = [];

  constructor(
    readonly base: number,
    readonly number: number,
  ) {
    this.next = base;
  }
}

/** The server's side of one connection. */
export class Connection {
  open = true;
  authenticated = false;
  readonly patterns = new Set<string>();
  expiry = 0;
  /** A plain peer answers in the order of the requests. */
  answersAt = 0;
  /** Which event stream; one takes the place of another. */
  stream = 0;

  constructor(
    readonly send: (frame: ServerFrame) => void,
    readonly close: (code: number, reason: string, retryAfter?: number) => void,
  ) {}

  takes(topic: string): boolean {
    return [...this.patterns].some((pattern) => matches(pattern, topic));
  }
}

interface Replay {
  readonly history: readonly Envelope[];
  readonly truncated: readonly string[];
  readonly reset: readonly string[];
}

/** Everything behind the network. */
export class Server {
  readonly tokens = new Map<string, number>();
  private readonly _published = new Map<string, Entry[]>();
  private readonly _logs = new Map<string, Log>();
  private readonly _ids = new Map<string, Entry>();
  private readonly _connections = new Set<Connection>();
  private _made = 0;
  private _generations = 0;

  constructor(
    private readonly _world: World,
    private readonly _profile: Profile,
  ) {}

  // ---------------------------------------------------------------- messages

  /** Take a message into its log and to the connections; undefined for one that is not kept. */
  publish(topic: string, id?: string, ttl?: number): Entry | undefined {
    const { _world: world, _profile: profile } = this;
    this._made += 1;
    let at = world.now;
    if (profile.skew) at += world.random.between(-profile.skew, profile.skew);
    let log = this._logs.get(topic);
    if (!log) {
      this._generations += 1;
      log = new Log(world.now * 1000, this._generations);
      this._logs.set(topic, log);
      if (!this._published.has(topic)) this._published.set(topic, []);
    }
    const kept = ttl !== 0;
    const message = compact<Envelope>({
      id: id ?? `w${this._made}`,
      topic,
      type: 'text',
      data: this._made,
      timestamp: at,
      ttl,
      seq: kept && !profile.plain ? log.next : undefined,
    });
    let entry: Entry | undefined;
    const first = kept && log.next === log.base; // its loss nobody could see
    if (kept) {
      const all = this._published.get(topic) ?? [];
      const until = ttl === undefined ? undefined : world.now + ttl * 1000;
      entry = { message, index: all.length, log: log.number, until };
      all.push(entry);
      log.next += 1;
      log.entries.push(entry);
      if (log.entries.length > profile.retained) log.entries.shift();
    }
    for (const connection of [...this._connections]) {
      if (connection.takes(topic)) {
        if (first || !kept || !world.fault(profile.losesLive)) {
          connection.send({ type: 'message', message });
        }
        if (kept && world.fault(profile.doubles)) connection.send({ type: 'message', message });
      }
    }
    return entry;
  }

  /** Lose the log of a topic. */
  reset(topic: string): void {
    this._logs.delete(topic);
  }

  // ---------------------------------------------------------------- connections

  /** A transport was opened. */
  opened(connection: Connection): void {
    this._connections.add(connection);
  }

  /** A transport is gone. */
  closed(connection: Connection): void {
    connection.open = false;
    this._connections.delete(connection);
  }

  /** Take one frame. */
  receive(connection: Connection, frame: ClientFrame): void {
    if (frame.type === 'auth') {
      this._authenticate(connection, frame);
    } else if (!connection.authenticated) {
      connection.close(4401, 'no auth');
    } else if (frame.type === 'subscribe') {
      this._subscribe(connection, frame);
    } else if (frame.type === 'unsubscribe') {
      for (const pattern of frame.topics) connection.patterns.delete(pattern);
    } else if (frame.type === 'publish') {
      this._publish(connection, frame);
    } else if (frame.type === 'ping') {
      connection.send({ type: 'pong' });
    }
  }

  private _authenticate(connection: Connection, frame: AuthFrame): void {
    const { _world: world, _profile: profile } = this;
    const ends = this.tokens.get(frame.token) ?? 0;
    if (ends <= world.now) {
      connection.send({ type: 'auth.error', code: 'token_expired', message: 'too old' });
      world.after(1, () => connection.close(4401, 'expired'));
      return;
    }
    connection.authenticated = true;
    connection.expiry += 1;
    const number = connection.expiry;
    const still = () => connection.open && connection.expiry === number;
    if (profile.warns && ends - world.now > 6_000) {
      world.after(ends - world.now - 6_000, () => {
        if (still()) connection.send({ type: 'auth.expiring', expires_in: 6_000 });
      });
    }
    world.after(ends - world.now, () => {
      if (still()) connection.close(4401, 'expired');
    });
    if (profile.plain) {
      connection.send({ type: 'auth.ok', client_id: 'c' });
      return;
    }
    connection.send(
      compact<AuthOkFrame>({
        type: 'auth.ok',
        client_id: 'c',
        version: 1,
        features: FEATURES.filter(
          (name) =>
            (name !== 'idempotency' || profile.idempotent) && (name !== 'batch' || profile.batch),
        ),
        server_time: world.now,
        expires_at: profile.warns ? undefined : ends,
        limits: profile.rate ? { publish_rate: profile.rate } : undefined,
      }),
    );
  }

  // ---------------------------------------------------------------- subscribe

  private _subscribe(connection: Connection, frame: SubscribeFrame): void {
    const { _world: world, _profile: profile } = this;
    if (world.fault(profile.refusesNow) && !profile.plain) {
      const { ref } = frame;
      const [code, message] = ['unavailable', 'later'];
      const error = { type: 'error', code, message, ref, retry_after_ms: 500 } as const;
      connection.send(compact<ErrorFrame>(error));
      return;
    }
    const granted = frame.topics.filter((pattern) => pattern !== SECRET);
    const denied: Denial[] | undefined = frame.topics.includes(SECRET)
      ? [{ topic: SECRET, code: 'forbidden' }]
      : undefined;
    if (profile.plain && denied) {
      connection.send({ type: 'error', code: 'forbidden', message: 'no', topic: SECRET });
      return;
    }
    for (const pattern of granted) connection.patterns.add(pattern);
    const positions: [string, number][] = [];
    for (const topic of this._published.keys()) {
      const log = this._logs.get(topic);
      if (log && granted.some((pattern) => matches(pattern, topic))) {
        positions.push([topic, log.next - 1]);
      }
    }
    const timestamp = world.now;
    const { stream } = connection;
    const answer = (replay: Replay) => {
      if (!connection.open || connection.stream !== stream) return;
      this._answer(connection, frame, granted, denied, positions, timestamp, replay);
    };
    const late = world.fault(profile.laterAnswers);
    if (late || connection.answersAt > world.now) {
      const readLate = world.random.chance(500);
      const early = readLate ? undefined : this._replay(frame, granted);
      let wait = world.random.between(1, 400);
      if (profile.plain) {
        wait = Math.max(wait, connection.answersAt - world.now);
        connection.answersAt = world.now + wait;
      }
      world.after(wait, () => answer(early ?? this._replay(frame, granted)));
      return;
    }
    answer(this._replay(frame, granted));
  }

  private _replay(frame: SubscribeFrame, granted: readonly string[]): Replay {
    const after = new Map(Object.entries(frame.after ?? {}));
    const history: Envelope[] = [];
    const truncated: string[] = [];
    const reset: string[] = [];
    for (const topic of [...new Set([...this._logs.keys(), ...after.keys()])].sort()) {
      if (!granted.some((pattern) => matches(pattern, topic))) continue;
      const log = this._logs.get(topic);
      if (!log) {
        if (this._profile.tellsResetOfNothing) reset.push(topic);
        continue;
      }
      log.entries = log.entries.filter(({ until }) => !until || until > this._world.now);
      let found = log.entries.map(({ message }) => message);
      const mark = after.get(topic);
      if (mark !== undefined) {
        if (mark < log.base - 1) reset.push(topic);
        if (this._lost(topic, log, mark, -1)) truncated.push(topic);
        found = found.filter(({ seq }) => (seq ?? 0) > mark);
      } else if (frame.since !== undefined) {
        const { since } = frame;
        if (this._lost(topic, log, -1, since)) truncated.push(topic);
        found = found.filter(({ timestamp }) => timestamp > since);
      } else if (frame.history === undefined) {
        continue;
      }
      history.push(...(frame.history === undefined ? found : found.slice(-frame.history)));
    }
    return { history, truncated, reset };
  }

  /** Whether something that was asked for is older than all that the log still has. */
  private _lost(topic: string, log: Log, after: number, since: number): boolean {
    const all = this._published.get(topic) ?? [];
    const oldest = log.entries[0]?.index ?? all.length;
    for (const { message, log: number } of all.slice(0, oldest).reverse()) {
      if (number !== log.number) return false;
      if ((message.seq ?? 0) > after && message.timestamp > since) return true;
    }
    return false;
  }

  private _answer(
    connection: Connection,
    { ref }: SubscribeFrame,
    topics: readonly string[],
    denied: readonly Denial[] | undefined,
    positions: readonly [string, number][],
    timestamp: number,
    { history, truncated, reset }: Replay,
  ): void {
    const { _world: world, _profile: profile } = this;
    if (profile.plain) {
      connection.send({ type: 'subscribed', topics, history });
      return;
    }
    let cut = history.length;
    if (history.length > 1 && world.fault(profile.inParts)) {
      cut = world.random.between(1, history.length - 1);
    }
    connection.send(
      compact<SubscribedFrame>({
        type: 'subscribed',
        topics,
        history: history.slice(0, cut),
        positions: Object.fromEntries(positions),
        timestamp,
        truncated: truncated.length ? truncated : undefined,
        reset: reset.length ? reset : undefined,
        denied,
        more: cut < history.length || undefined,
        ref,
      }),
    );
    if (cut < history.length) {
      const left = history.slice(cut);
      const rest = compact<SubscribedFrame>({ type: 'subscribed', topics, history: left, ref });
      world.after(world.random.between(0, 50), () => connection.send(rest));
    }
  }

  // ---------------------------------------------------------------- publish

  private _publish(connection: Connection, frame: PublishFrame): void {
    const { ref } = frame;
    if (frame.messages) {
      const results = frame.messages.map((message) => this._one(message));
      if (ref !== undefined) connection.send({ type: 'published', results, ref });
      return;
    }
    if (!frame.message) throw new Error('nothing to publish');
    const { error, ...result } = this._one(frame.message);
    if (error) {
      connection.send(compact<ErrorFrame>({ type: 'error', ...error, ref }));
    } else if (ref !== undefined) {
      connection.send(compact<PublishedFrame>({ type: 'published', ...result, ref }));
    }
  }

  private _one(message: Publication): PublishResult {
    const { _world: world, _profile: profile } = this;
    if (!profile.plain && world.fault(profile.limitsRate)) {
      const wait = world.random.between(50, 500);
      return { error: { code: 'rate_limited', message: 'slow down', retry_after_ms: wait } };
    }
    if (message.topic === SECRET) return { error: { code: 'forbidden', message: 'no' } };
    const { id } = message;
    if (id === undefined) throw new Error('a publication without an id');
    const known = profile.idempotent ? this._ids.get(id) : undefined;
    const entry = known ?? this.publish(message.topic, id);
    if (!entry) throw new Error('a publication that is not kept');
    this._ids.set(id, entry);
    const { timestamp, seq } = entry.message;
    return compact<PublishResult>({ id, timestamp, seq, duplicate: known ? true : undefined });
  }
}
