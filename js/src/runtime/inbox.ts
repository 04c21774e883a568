/**
 * The bounded queue of one subscription: the driver puts in, one reader takes out.
 *
 * Three kinds of events wait in one order: messages, gaps, presence changes. Only messages are given
 * up when the queue is full, oldest first; what else was in front of them moves up and is told before
 * the next message.
 */

import { fromCode, type PubSubError, SlowConsumer } from '../errors.js';
import type { Denial } from '../generated/wire.js';
import type { Joined } from '../session/effects.js';
import type { ReceiveQueue } from '../settings/options.js';
import type { Gap, Message, SubscriptionEvent, SubscriptionStats } from '../values.js';
import { Stream } from './stream.js';

/** Bytes of a decoded message beside its payload. */
const OVERHEAD = 400;

/** Topics whose gaps are told one by one while nobody reads; further ones are told together. */
const TOPICS = 1_000;

/** Topics whose position is kept; the one not heard of for longest is forgotten. */
const POSITIONS = 100_000;

/** Events that were taken, after which the space they held is given back. */
const SPENT = 1_024;

/** What one subscription has got and not yet handed to the program. */
export class Inbox extends Stream<SubscriptionEvent> {
  denied: readonly Denial[] = [];
  /** Set when the last event reached a bound; the reader of the transport then gives way. */
  full = false;
  /** Where presence changes go: here, if nobody else takes them. */
  presence: Inbox = this;
  /** True when the server has answered, or the subscription has ended before. */
  readonly answered: Promise<true>;
  readonly positions: Map<string, number>;
  private _answer: (answered: true) => void = () => {};
  private _events: [event: SubscriptionEvent, size: number][] = [];
  private _next = 0;
  private _bytes = 0;
  /** What was overtaken by the loss of a message before it, one of a kind and topic. */
  private readonly _front = new Map<string, SubscriptionEvent>();
  /** What the queue may hold at the moment: a replay may exceed the bound. */
  private _most: number;
  private _received = 0;
  private _handled = 0;
  private _dropped = 0;
  private _gaps = 0;

  /**
   * @param topics The patterns asked for.
   * @param _bounds Messages, bytes and policy.
   * @param after Positions to begin with.
   */
  constructor(
    readonly topics: readonly string[],
    private readonly _bounds: ReceiveQueue,
    after: ReadonlyMap<string, number> = new Map(),
  ) {
    super();
    this._most = _bounds.messages;
    this.positions = new Map(after);
    this.answered = new Promise((resolve) => {
      this._answer = resolve;
    });
  }

  // ---------------------------------------------------------------- the driver's side

  /**
   * Add messages. Of live ones, what is over the bound is dealt with by the policy.
   *
   * Several at once are a replay and may exceed it: they were asked for and are in memory already;
   * giving up some of them would make a gap that the program could do nothing about.
   */
  put(messages: readonly Message[]): void {
    if (this.finished) return;
    this._received += messages.length;
    for (const message of messages) {
      this._push({ kind: 'message', message }, measure(message.data));
    }
    if (messages.length > 1) {
      this._most = Math.max(this._most, this._length);
      this.full = !this._hasRoom;
    } else {
      this._bound();
    }
    this.wake();
  }

  /** Add a gap or a presence change, in its place. */
  putOther(event: SubscriptionEvent): void {
    if (this.finished) return;
    if (event.kind === 'gap') this._gaps += 1;
    this._push(event, 0);
    this._bound();
    this.wake();
  }

  /** The server has answered; where it granted nothing, that is the end. */
  join({ topics, denied }: Joined): void {
    this.denied = denied;
    if (!topics.length) this.finish(denialError(denied, this.topics));
    this._answer(true);
  }

  override finish(error?: Error): void {
    super.finish(error);
    this._answer(true);
    if (this.presence !== this) this.presence.finish();
  }

  clear(): void {
    this._dropped = this._received - this._handled;
    this._events = [];
    this._next = this._bytes = 0;
    this._front.clear();
  }

  // ---------------------------------------------------------------- the program's side

  take(): SubscriptionEvent | undefined {
    const event = this._front.size ? this._takeFront() : this._shift();
    if (event?.kind === 'message') {
      this._handled += 1;
      this._stand(event.message.topic, event.message.seq);
    } else if (event?.kind === 'gap') {
      this._stand(event.gap.topic, event.gap.to);
    }
    this._most = Math.max(this._bounds.messages, Math.min(this._most, this._length));
    this.full = this.full && !this._hasRoom;
    return event;
  }

  /** The counters at this moment. */
  get stats(): SubscriptionStats {
    const { _received: received, _handled: handled, _dropped: dropped } = this;
    const queued = received - handled - dropped;
    return { received, handled, dropped, queued, queuedBytes: this._bytes, gaps: this._gaps };
  }

  // ---------------------------------------------------------------- inside

  private get _length(): number {
    return this._events.length - this._next;
  }

  private get _hasRoom(): boolean {
    return this._length < this._bounds.messages && this._bytes < this._bounds.bytes;
  }

  private _push(event: SubscriptionEvent, size: number): void {
    this._events.push([event, size + OVERHEAD]);
    this._bytes += size + OVERHEAD;
  }

  private _shift(): SubscriptionEvent | undefined {
    const first = this._events[this._next];
    if (!first) return undefined;
    this._next += 1;
    this._bytes -= first[1];
    if (!this._length || this._next > SPENT) {
      this._events = this._events.slice(this._next);
      this._next = 0;
    }
    return first[0];
  }

  private _takeFront(): SubscriptionEvent | undefined {
    const [first] = this._front;
    this._front.delete(first?.[0] ?? '');
    return first?.[1];
  }

  private _bound(): void {
    const { bytes, policy } = this._bounds;
    const isOver = (): boolean => this._length > this._most || this._bytes > bytes;
    this.full = !this._hasRoom;
    if (policy === 'error' && isOver()) {
      this.finish(
        new SlowConsumer('The queue of this subscription is full: the program reads too slowly.', {
          topic: this.topics.length === 1 ? this.topics[0] : undefined,
          remedy: 'Read faster, raise `queue`, or choose the policy `gap`.',
        }),
      );
    } else {
      while (this._length > 1 && isOver()) this._dropOldest();
    }
  }

  private _dropOldest(): void {
    const event = this._shift();
    this._most = Math.max(this._bounds.messages, Math.min(this._most, this._length));
    if (event?.kind === 'message') {
      const { topic, seq } = event.message;
      this._dropped += 1;
      this._gaps += this._tellFirst({
        topic,
        from: seq,
        to: seq,
        missed: 1,
        reason: 'slow_consumer',
      });
    } else if (event?.kind === 'gap') {
      this._tellFirst(event.gap);
    } else if (event) {
      // Everybody present is in it, so a later one of the topic says it all.
      this._front.set(`presence ${event.presence.topic}`, event);
    }
  }

  /** Keep a gap before the oldest message, joined with one of its topic; how many more that makes. */
  private _tellFirst(gap: Gap): number {
    let { topic, from, to, missed, reason } = gap;
    if (!this._front.has(`gap ${topic}`) && this._front.size >= TOPICS) {
      topic = this.topics.join(' ');
      from = to = undefined;
    }
    const key = `gap ${topic}`;
    const before = this._front.get(key);
    if (before?.kind === 'gap') {
      from = before.gap.from;
      missed = add(missed, before.gap.missed);
      reason = 'slow_consumer';
    }
    this._front.set(key, { kind: 'gap', gap: { topic, from, to, missed, reason } });
    return before ? 0 : 1;
  }

  private _stand(topic: string, seq: number | undefined): void {
    const { positions } = this;
    if (seq === undefined) return;
    if (positions.size >= POSITIONS && !positions.has(topic)) {
      for (const oldest of positions.keys()) {
        positions.delete(oldest);
        break;
      }
    }
    positions.set(topic, seq);
  }
}

/** The error of a subscription of which nothing was granted. */
function denialError(denied: readonly Denial[], topics: readonly string[]): PubSubError {
  const [first] = denied;
  if (!first) {
    const message = 'The server granted none of the topics.';
    return fromCode('forbidden', message, { topic: topics[0] });
  }
  const names = denied.slice(0, 5).map(({ topic }) => topic);
  const { code, message, topic } = first;
  return fromCode(code, message || `Refused: ${names.join(', ')}.`, { topic });
}

function add(one: number | undefined, other: number | undefined): number | undefined {
  return one === undefined || other === undefined ? undefined : one + other;
}

/** Bytes of a payload as JSON, about: characters of strings, 8 for anything else, 4 an item. */
function measure(value: unknown): number {
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
