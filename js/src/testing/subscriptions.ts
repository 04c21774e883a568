/** Subscribing and unsubscribing: register, replay, then deliver live messages. */

import { compact } from '../compact.js';
import type { ErrorFrame, SubscribedFrame, UnsubscribedFrame } from '../generated/wire.js';
import { isWildcard } from '../topics.js';
import type { Attendance } from './attendance.js';
import type { Connection, Sink } from './connection.js';
import type { Core } from './core.js';
import type { Entry, Replay } from './log.js';
import { Problem } from './problem.js';
import type { Subscribe } from './requests.js';
import type { Identity } from './tokens.js';

/**
 * Maximum characters of history in one `subscribed`; the rest follows in further frames (`more`).
 */
const FRAME_SIZE = 1_048_576;

/** Adds and removes subscriptions. */
export class Subscriptions {
  constructor(
    private readonly _core: Core,
    private readonly _attendance: Attendance,
  ) {}

  /** Register the patterns, then replay. The answer lists accepted and denied topics. */
  subscribe(connection: Connection, identity: Identity, wanted: Subscribe): void {
    const { sink } = connection;
    const granted: string[] = [];
    const denied = [...wanted.invalid];
    const isLoud = wanted.presence !== false;
    for (const pattern of wanted.topics) {
      const problem = this._register(connection, identity, pattern, isLoud);
      if (problem) denied.push(problem);
      else granted.push(pattern);
    }
    const now = this._core.wall();
    const mayRead = (topic: string): boolean => this._core.mayRead(identity, topic);
    const replay = this._core.store.replay(granted, wanted, now, mayRead);
    this._answer(sink, wanted, granted, denied, replay, now);
    for (const problem of denied) {
      this._core.count(problem);
      if (wanted.ref !== undefined) continue;
      sink.write(compact<ErrorFrame>({ type: 'error', ...problem.info }));
    }
    // HIP-56 lets the reader of an event stream watch presence; it becomes a member only if it
    // asks.
    const isMember = !sink.isStream || wanted.presence;
    const named = granted.filter((pattern) => isMember && !isWildcard(pattern));
    for (const topic of named) this._attendance.enter(connection, identity, topic);
    if (isLoud) this._attendance.show(connection, identity, granted);
  }

  /** End the subscriptions with exactly these patterns. */
  unsubscribe(connection: Connection, patterns: readonly string[], ref: string | undefined): void {
    const topics = patterns.filter((pattern) => connection.patterns.has(pattern));
    for (const pattern of topics) this.drop(connection, pattern);
    if (ref === undefined) return;
    const unsubscribed: UnsubscribedFrame = { type: 'unsubscribed', topics, ref };
    connection.sink.write(unsubscribed);
  }

  /** End one subscription. */
  drop(connection: Connection, pattern: string): void {
    connection.patterns.delete(pattern);
    this._core.stats.subscriptions -= 1;
    if (!isWildcard(pattern)) this._attendance.quit(connection, pattern);
  }

  private _register(
    { patterns }: Connection,
    identity: Identity,
    topic: string,
    isLoud: boolean,
  ): Problem | undefined {
    const { maxSubscriptions } = this._core.settings;
    if (!this._core.mayHold(identity, topic)) {
      return new Problem('forbidden', 'the access rules do not allow this subscription', { topic });
    }
    if (!patterns.has(topic)) {
      if (patterns.size >= maxSubscriptions) {
        const detail = `this connection has ${maxSubscriptions} subscriptions, which is the maximum`;
        return new Problem('subscription_limit', detail, { topic });
      }
      this._core.stats.subscriptions += 1;
    }
    patterns.set(topic, isLoud);
    return undefined;
  }

  private _answer(
    sink: Sink,
    { ref }: Subscribe,
    topics: readonly string[],
    denied: readonly Problem[],
    { entries, positions, truncated, reset }: Replay,
    now: number,
  ): void {
    this._core.stats.replayed += entries.length;
    const refused = denied.map(({ info: { topic = '', code, message } }) => {
      return { topic, code, message };
    });
    const parts = split(entries);
    for (const [n, part] of parts.entries()) {
      const isLast = n + 1 === parts.length;
      const frame = compact<SubscribedFrame>({
        type: 'subscribed',
        topics,
        history: part.map(({ message }) => message),
        // Subtract 1, so that messages published in this millisecond count as newer.
        timestamp: now - 1,
        truncated: n ? undefined : some(truncated),
        reset: n ? undefined : some(reset),
        denied: n ? undefined : some(refused),
        more: isLast ? undefined : true,
        positions: isLast ? positions : undefined,
        ref,
      });
      sink.write(frame, isLast ? markOf(positions, now - 1) : undefined);
    }
  }
}

function some<T>(values: readonly T[]): readonly T[] | undefined {
  return values.length ? values : undefined;
}

function split(entries: readonly Entry[]): Entry[][] {
  let part: Entry[] = [];
  const parts = [part];
  let size = 0;
  for (const entry of entries) {
    size += entry.body.length;
    if (size > FRAME_SIZE && part.length) {
      part = [];
      parts.push(part);
      size = entry.body.length;
    }
    part.push(entry);
  }
  return parts;
}

/** The event id from which a stream resumes if it breaks before its first message. */
function markOf(positions: Readonly<Record<string, number>>, timestamp: number): string {
  const [first] = Object.entries(positions);
  return first ? `${timestamp}-${first[0]}@${first[1]}` : String(timestamp);
}
