/**
 * The bounded queue of one subscription: the driver puts in, one reader takes out.
 *
 * Three kinds of entries wait in one order: messages, gaps, presence changes. Only messages are
 * given up when the queue is full, oldest first; what else was in front of them moves up and is told
 * before the next message.
 */

import { fromCode, type PubSubError, SlowConsumer } from '../errors.js';
import type { Denial } from '../generated/wire.js';
import type { ReceivePolicy, ReceiveQueue } from '../settings/options.js';
import type { Gap, Message, SubscriptionEvent, SubscriptionStats } from '../values.js';

/** Bytes of a decoded message beside its payload. */
const OVERHEAD = 400;

/** Topics whose gaps are told one by one while nobody reads; further ones are told together. */
const TOPICS = 1_000;

/** Topics whose position is kept; the one not heard of for longest is forgotten. */
const POSITIONS = 100_000;

type Front = Exclude<SubscriptionEvent, { kind: 'message' }>;
interface Waiting {
  readonly event: SubscriptionEvent;
  readonly size: number;
}

/** What one subscription has got and not yet handed to the program. */
export class Inbox {
  granted: readonly string[] = [];
  denied: readonly Denial[] = [];
  joined = false;
  finished = false;
  error: PubSubError | undefined;
  /** Set when the last entry reached a bound; the reader of the transport then gives way. */
  full = false;
  readonly positions: Map<string, number> = new Map<string, number>();
  private readonly _most: number;
  private readonly _mostBytes: number;
  private readonly _policy: ReceivePolicy;
  private _allowed: number;
  private _entries: Waiting[] = [];
  private _head = 0;
  private _bytes = 0;
  private readonly _front = new Map<string, Front>();
  private _received = 0;
  private _handled = 0;
  private _dropped = 0;
  private _gaps = 0;
  private _others = 0;
  private _waiters: (() => void)[] = [];

  /**
   * @param topics The patterns asked for.
   * @param bounds Messages, bytes and policy.
   * @param _overflowed Called once, when the policy `error` ends the subscription.
   */
  constructor(
    readonly topics: readonly string[],
    bounds: ReceiveQueue,
    private readonly _overflowed: () => void,
  ) {
    this._most = this._allowed = bounds.messages;
    this._mostBytes = bounds.bytes;
    this._policy = bounds.policy;
  }

  // ---------------------------------------------------------------- the driver's side

  /** Add a live message; what is over the bound is dealt with by the policy. */
  put(message: Message): void {
    if (this.finished) return;
    this._received += 1;
    this._push({ kind: 'message', message });
    this._check();
    this._wake();
  }

  /**
   * Add messages that came at once, from the log: these may exceed the bound.
   *
   * They were asked for and are in memory already; giving up some of them would make a gap that the
   * program could do nothing about.
   */
  putReplay(messages: readonly Message[]): void {
    if (this.finished) return;
    this._received += messages.length;
    for (const message of messages) this._push({ kind: 'message', message });
    this._allowed = Math.max(this._allowed, this._length);
    this.full = !this._hasRoom();
    this._wake();
  }

  /** Add a gap or a presence change, in its place. */
  putOther(entry: Front): void {
    if (this.finished) return;
    if (entry.kind === 'gap') this._gaps += 1;
    this._others += 1;
    this._push(entry);
    this._check();
    this._wake();
  }

  /** The server has answered. */
  join(granted: readonly string[], denied: readonly Denial[]): void {
    this.granted = granted;
    this.denied = denied;
    this.joined = true;
    this._wake();
  }

  /** Nothing comes any more; what waits can still be taken. */
  finish(error?: PubSubError): void {
    if (this.finished) return;
    this.finished = true;
    this.error = error;
    this._wake();
  }

  /** Give up what waits: the program has ended the subscription. */
  clear(): void {
    this._dropped += this._length - this._others;
    this._entries = [];
    this._head = this._bytes = this._others = 0;
    this._front.clear();
    this._wake();
  }

  // ---------------------------------------------------------------- the program's side

  /** The next entry, or undefined where nothing waits. */
  take(): SubscriptionEvent | undefined {
    for (const [key, entry] of this._front) {
      this._front.delete(key);
      this._passed(entry);
      return entry;
    }
    const entry = this._shift();
    if (!entry) return undefined;
    if (entry.kind === 'message') {
      this._handled += 1;
      const { topic, seq } = entry.message;
      if (seq !== undefined) this._stand(topic, seq);
    } else {
      this._others -= 1;
      this._passed(entry);
    }
    if (this._allowed > this._most) this._allowed = Math.max(this._most, this._length);
    if (this.full && this._hasRoom()) this.full = false;
    return entry;
  }

  /** Wait for an entry, an answer or the end. */
  wait(): Promise<void> {
    return new Promise((resolve) => this._waiters.push(resolve));
  }

  /** Whether nothing waits. */
  get empty(): boolean {
    return !this._length && !this._front.size;
  }

  /** The counters at this moment. */
  stats(): SubscriptionStats {
    return {
      received: this._received,
      handled: this._handled,
      dropped: this._dropped,
      queued: this._length - this._others,
      queuedBytes: this._bytes,
      gaps: this._gaps,
    };
  }

  // ---------------------------------------------------------------- inside

  private get _length(): number {
    return this._entries.length - this._head;
  }

  private _push(event: SubscriptionEvent): void {
    const size = OVERHEAD + (event.kind === 'message' ? measure(event.message.data) : 0);
    this._entries.push({ event, size });
    this._bytes += size;
  }

  private _shift(): SubscriptionEvent | undefined {
    const first = this._entries[this._head];
    if (!first) return undefined;
    this._head += 1;
    this._bytes -= first.size;
    if (this._head === this._entries.length || this._head > 1_024) {
      this._entries = this._entries.slice(this._head);
      this._head = 0;
    }
    return first.event;
  }

  private _hasRoom(): boolean {
    return this._length < this._most && this._bytes < this._mostBytes;
  }

  private _check(): void {
    if (this._hasRoom()) return;
    this.full = true;
    if (this._length <= this._allowed && this._bytes <= this._mostBytes) return;
    if (this._policy === 'error') {
      this.finish(
        new SlowConsumer('The queue of this subscription is full: the program reads too slowly.', {
          topic: this.topics.length === 1 ? this.topics[0] : undefined,
          remedy: 'Read faster, raise `queue`, or choose the policy `gap`.',
        }),
      );
      this._overflowed();
      return;
    }
    while (
      this._length > Math.max(1, this._allowed) ||
      (this._bytes > this._mostBytes && this._length > 1)
    ) {
      this._dropOldest();
    }
  }

  private _dropOldest(): void {
    const entry = this._shift();
    if (!entry) return;
    this._allowed = Math.max(this._most, Math.min(this._allowed, this._length));
    if (entry.kind === 'message') {
      this._dropped += 1;
      const { topic, seq } = entry.message;
      if (this._toFront({ topic, from: seq, to: seq, missed: 1, reason: 'slow_consumer' })) {
        this._gaps += 1;
      }
      return;
    }
    this._others -= 1;
    if (entry.kind === 'gap') this._toFront(entry.gap);
    // Everybody present is in it, so a later one of the topic says it all.
    else this._front.set(`presence ${entry.presence.topic}`, entry);
  }

  /** Keep a gap before the oldest message, one a topic; say whether it is another one. */
  private _toFront(gap: Gap): boolean {
    let key = `gap ${gap.topic}`;
    let told = gap;
    if (!this._front.has(key) && this._front.size >= TOPICS) {
      const topic = this.topics.join(' ');
      key = `gap ${topic}`;
      told = { ...gap, topic, from: undefined, to: undefined };
    }
    const before = this._front.get(key);
    if (before?.kind === 'gap') {
      const { from, missed } = before.gap;
      const more = told.missed;
      told = {
        topic: told.topic,
        from,
        to: told.to,
        missed: missed === undefined || more === undefined ? undefined : missed + more,
        reason: 'slow_consumer',
      };
    }
    this._front.set(key, { kind: 'gap', gap: told });
    return before === undefined;
  }

  private _passed(entry: Front): void {
    if (entry.kind === 'gap' && entry.gap.to !== undefined) {
      this._stand(entry.gap.topic, entry.gap.to);
    }
  }

  private _stand(topic: string, seq: number): void {
    const { positions } = this;
    if (positions.size >= POSITIONS && !positions.has(topic)) {
      for (const oldest of positions.keys()) {
        positions.delete(oldest);
        break;
      }
    }
    positions.set(topic, seq);
  }

  private _wake(): void {
    if (!this._waiters.length) return;
    const waiters = this._waiters;
    this._waiters = [];
    for (const wake of waiters) wake();
  }
}

/** The error of a subscription of which nothing was granted. */
export function denialError(denials: readonly Denial[], topics: readonly string[]): PubSubError {
  const first = denials[0];
  if (!first) {
    const message = 'The server granted none of the topics.';
    return fromCode('forbidden', message, { topic: topics[0] });
  }
  const names = denials.slice(0, 5).map(({ topic }) => topic);
  return fromCode(first.code, first.message || `Refused: ${names.join(', ')}.`, {
    topic: first.topic,
  });
}

/** Bytes of a payload as JSON, about: characters of strings, 8 for anything else, 4 an item. */
export function measure(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 8;
  let total = 0;
  if (Array.isArray(value)) {
    for (const item of value) total += 4 + measure(item);
  } else {
    for (const [key, item] of Object.entries(value)) total += key.length + 4 + measure(item);
  }
  return total;
}
