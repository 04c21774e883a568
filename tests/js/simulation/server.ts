/**
 * A server in virtual time: logs with bounded retention, `seq`, resets, denial, limits, tokens.
 *
 * It performs the same steps and draws the same random numbers as `tests/simulation/server.py`.
 */

import { compact } from '../../../js/src/compact.js';
import type {
  AuthFrame,
  AuthOkFrame,
  ClientFrame,
  Denial,
  Envelope,
  ErrorFrame,
  PresenceMember,
  Publication,
  PublishedFrame,
  PublishFrame,
  PublishResult,
  SubscribedFrame,
  SubscribeFrame,
} from '../../../js/src/generated/wire.js';
import { FEATURES, OWN, type Profile, SECRET } from './profile.js';
import { type Connection, covers, type Entry, Log, letGo } from './records.js';
import { type Change, Rooms } from './rooms.js';
import type { World } from './world.js';

/** Grace period of a lost client, in milliseconds. */
const GRACE = 5_000;

interface Replay {
  readonly history: readonly Envelope[];
  readonly truncated: readonly string[];
  readonly reset: readonly string[];
}

/** The server. */
export class Server {
  readonly tokens = new Map<string, number>();
  readonly published = new Map<string, Entry[]>();
  readonly logs = new Map<string, Log>();
  readonly rooms: Rooms;
  /** Called before a log is lost, with its topic and number. */
  onReset: (topic: string, number: number) => void = () => {};
  private readonly _ids = new Map<string, Entry>();
  private readonly _connections = new Set<Connection>();
  /** The connection that made the client a member, by topic. */
  private readonly _own = new Map<string, Connection>();
  private _made = 0;
  private _generations = 0;

  constructor(
    private readonly _world: World,
    readonly profile: Profile,
  ) {
    this.rooms = new Rooms(_world, (...change) => this._tellPresence(...change));
  }

  // ---------------------------------------------------------------- messages

  /**
   * Append a message to its log and send it to connections; returns undefined if it is not
   * retained.
   */
  publish(topic: string, id?: string, ttl?: number): Entry | undefined {
    const { _world: world, profile } = this;
    this._made += 1;
    let at = world.now;
    if (profile.skew) at += world.random.between(-profile.skew, profile.skew);
    const log = this.logs.get(topic) ?? this._begin(topic);
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
    const first = kept && log.next === log.base;
    if (kept) {
      const all = this.published.get(topic) ?? [];
      const until = ttl === undefined ? undefined : world.now + ttl * 1000;
      entry = { message, index: all.length, log: log.number, until, gone: false };
      all.push(entry);
      log.next += 1;
      log.entries.push(entry);
      if (log.entries.length > profile.retained) letGo(log.entries.splice(0, 1));
    }
    for (const connection of [...this._connections]) {
      if (connection.takes(topic)) {
        // A subscriber with a pattern has no position of a topic before its first message.
        const wild = [...connection.patterns].filter((pattern) => pattern.includes('*'));
        const blind = profile.plain || covers(wild, topic);
        if ((first && blind) || !kept || !world.fault(profile.losesLive)) {
          connection.send({ type: 'message', message });
        }
        if (kept && world.fault(profile.doubles)) connection.send({ type: 'message', message });
      }
    }
    return entry;
  }

  private _begin(topic: string): Log {
    this._generations += 1;
    const log = new Log(this._world.now * 1000, this._generations);
    this.logs.set(topic, log);
    if (!this.published.has(topic)) this.published.set(topic, []);
    return log;
  }

  /** Lose the log of a topic. */
  reset(topic: string): void {
    const log = this.logs.get(topic);
    if (!log) return;
    this.onReset(topic, log.number);
    this.logs.delete(topic);
    letGo(log.entries);
  }

  // ---------------------------------------------------------------- connections

  /** A transport has opened. */
  opened(connection: Connection): void {
    this._connections.add(connection);
  }

  /** A transport has ended. */
  closed(connection: Connection): void {
    if (connection.open) {
      for (const [topic, owner] of this._own) {
        if (owner === connection) this._world.after(GRACE, () => this._quit(connection, topic));
      }
    }
    connection.open = false;
    this._connections.delete(connection);
  }

  /** Process one frame. */
  receive(connection: Connection, frame: ClientFrame): void {
    if (frame.type === 'auth') {
      this._authenticate(connection, frame);
    } else if (!connection.authenticated) {
      connection.close(4401, 'no auth');
    } else if (frame.type === 'subscribe') {
      this._subscribe(connection, frame);
    } else if (frame.type === 'unsubscribe') {
      for (const pattern of frame.topics) {
        connection.patterns.delete(pattern);
        connection.watched.delete(pattern);
        this._quit(connection, pattern);
      }
    } else if (frame.type === 'publish') {
      this._publish(connection, frame);
    } else if (frame.type === 'ping') {
      connection.send({ type: 'pong' });
    } else if (frame.type === 'presence.update') {
      const topics = frame.topic === undefined ? this.rooms.occupied() : [frame.topic];
      for (const topic of topics) this.rooms.update(topic, OWN, frame.data);
      if (frame.ref !== undefined) connection.send({ type: 'published', ref: frame.ref });
    }
  }

  // ---------------------------------------------------------------- presence

  private _quit(connection: Connection, topic: string): void {
    if (this._own.get(topic) !== connection) return;
    this._own.delete(topic);
    this.rooms.leave(topic, OWN);
  }

  private _tellPresence(change: Change, topic: string, member: PresenceMember): void {
    this._made += 1;
    const type = `presence.${change}`;
    const timestamp = this._world.now;
    const message: Envelope = { id: `m${this._made}`, topic, type, data: member, timestamp };
    for (const connection of [...this._connections]) {
      if (covers(this.profile.plain ? connection.patterns : connection.watched, topic)) {
        if (connection.stream) this._show(connection, topic);
        else connection.send({ type: 'message', message });
      }
    }
  }

  private _show(connection: Connection, topic: string): void {
    connection.send({ type: 'presence.snapshot', topic, members: this.rooms.members(topic) });
  }

  /** Send snapshots of the named topics, and of those that patterns match. */
  private _showAll(connection: Connection, granted: readonly string[]): void {
    const named = granted.filter((pattern) => !pattern.includes('*'));
    const found = this.rooms.occupied().filter((topic) => covers(granted, topic));
    for (const topic of new Set([...named, ...found])) this._show(connection, topic);
  }

  // ---------------------------------------------------------------- tokens

  private _authenticate(connection: Connection, frame: AuthFrame): void {
    const { _world: world, profile } = this;
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
            (name !== 'idempotency' || profile.idempotent) &&
            (name !== 'batch' || profile.batch) &&
            (name !== 'ack' || profile.acks),
        ),
        server_time: world.now,
        expires_at: profile.warns ? undefined : ends,
        limits: profile.rate ? { publish_rate: profile.rate } : undefined,
      }),
    );
  }

  // ---------------------------------------------------------------- subscribe

  private _subscribe(connection: Connection, frame: SubscribeFrame): void {
    const { _world: world, profile } = this;
    if (world.fault(profile.refusesNow) && !profile.plain) {
      const { ref } = frame;
      const [code, message] = ['unavailable', 'later'];
      const error = { type: 'error', code, message, ref, retry_after_ms: 500 } as const;
      connection.send(compact<ErrorFrame>(error));
      return;
    }
    const granted = frame.topics.filter((pattern) => pattern !== SECRET);
    let denied: Denial[] | undefined = frame.topics.includes(SECRET)
      ? [{ topic: SECRET, code: 'forbidden' }]
      : undefined;
    if (profile.plain && denied) {
      connection.send({ type: 'error', code: 'forbidden', message: 'no', topic: SECRET });
      return;
    }
    if (granted.length && !profile.plain && world.fault(profile.deniesNow)) {
      const [topic = ''] = granted.splice(0, 1);
      denied = [...(denied ?? []), { topic, code: 'unavailable' }];
    }
    for (const pattern of granted) {
      connection.patterns.add(pattern);
      if (frame.presence) connection.watched.add(pattern);
      if (!pattern.includes('*') && !profile.plain) {
        this._own.set(pattern, connection);
        this.rooms.enter(pattern, OWN);
        const known = this.logs.has(pattern) || Object.hasOwn(frame.after ?? {}, pattern);
        if (!known) this._begin(pattern);
      }
    }
    const counts = new Map<string, number>();
    const positions: [string, number][] = [];
    for (const [topic, all] of this.published) {
      if (!covers(granted, topic)) continue;
      counts.set(topic, all.length);
      const log = this.logs.get(topic);
      if (log) positions.push([topic, log.next - 1]);
    }
    const offered = frame.history === undefined ? [] : this._replay(frame, granted, counts).history;
    const start = { counts, granted: [...granted], at: world.now, offered };
    connection.starts.set(frame.ref ?? frame.topics.join(), start);
    const timestamp = world.now;
    const { stream } = connection;
    const answer = (replay: Replay) => {
      if (!connection.open || connection.stream !== stream) return;
      this._answer(connection, frame, granted, denied, positions, timestamp, replay);
    };
    const late = world.fault(profile.laterAnswers);
    if (late || connection.answersAt > world.now) {
      const readLate = world.random.chance(500);
      // The newest messages are those at the time of the subscription.
      const wholeLate = readLate && frame.history === undefined;
      const early = wholeLate ? undefined : this._replay(frame, granted, counts);
      let wait = world.random.between(1, 400);
      if (profile.plain) {
        wait = Math.max(wait, connection.answersAt - world.now);
        connection.answersAt = world.now + wait;
      }
      world.after(wait, () => answer(early ?? this._replay(frame, granted, counts)));
      return;
    }
    answer(this._replay(frame, granted, counts));
  }

  private _replay(
    frame: SubscribeFrame,
    granted: readonly string[],
    counts: ReadonlyMap<string, number>,
  ): Replay {
    const after = new Map(Object.entries(frame.after ?? {}));
    const history: Envelope[] = [];
    const truncated: string[] = [];
    const reset: string[] = [];
    for (const topic of [...new Set([...this.logs.keys(), ...after.keys()])].sort()) {
      if (!covers(granted, topic)) continue;
      const log = this.logs.get(topic);
      if (!log) {
        if (this.profile.tellsResetOfNothing) reset.push(topic);
        continue;
      }
      const over = ({ until }: Entry) => until !== undefined && until <= this._world.now;
      letGo(log.entries.filter(over));
      log.entries = log.entries.filter((entry) => !over(entry));
      let found: readonly Entry[] = log.entries;
      const mark = after.get(topic);
      if (mark !== undefined) {
        if (mark < log.base - 1) reset.push(topic);
        if (this._lost(topic, log, mark, -1)) truncated.push(topic);
        found = found.filter(({ message }) => (message.seq ?? 0) > mark);
      } else if (frame.since !== undefined) {
        const { since } = frame;
        // Messages after the subscription belong to it, whatever their timestamps. A plain peer has
        // only timestamps.
        const begun = this.profile.plain ? Infinity : (counts.get(topic) ?? 0);
        if (this._lost(topic, log, -1, since, begun)) truncated.push(topic);
        found = found.filter(({ message, index }) => message.timestamp > since || index >= begun);
      } else if (frame.history === undefined) {
        continue;
      }
      const some = frame.history === undefined ? found : found.slice(-frame.history);
      history.push(...some.map(({ message }) => message));
    }
    return { history, truncated, reset };
  }

  /** Whether a requested message is older than everything in the log. */
  private _lost(topic: string, log: Log, after: number, since: number, begun = 0): boolean {
    const all = this.published.get(topic) ?? [];
    const oldest = log.entries[0]?.index ?? all.length;
    for (const { message, index, log: number } of all.slice(0, oldest).reverse()) {
      if (number !== log.number) return false;
      const newer = message.timestamp > since || index >= begun;
      if ((message.seq ?? 0) > after && newer) return true;
    }
    return false;
  }

  private _answer(
    connection: Connection,
    { ref, presence }: SubscribeFrame,
    topics: readonly string[],
    denied: readonly Denial[] | undefined,
    positions: readonly [string, number][],
    timestamp: number,
    { history, truncated, reset }: Replay,
  ): void {
    const { _world: world, profile } = this;
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
      world.after(world.random.between(0, 50), () => {
        connection.send(rest);
        if (presence) this._showAll(connection, topics);
      });
    } else if (presence) {
      this._showAll(connection, topics);
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
    const { _world: world, profile } = this;
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
