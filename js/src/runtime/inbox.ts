/**
 * The bounded queue of one subscription: the driver puts in, one reader takes out.
 *
 * Three kinds of events wait in one order: messages, gaps, presence changes. A full queue
 * drops only messages, oldest first; gaps and presence changes before them move up and are delivered
 * before the next message.
 */

import { DEVELOPMENT } from '../build.js';
import { fromCode, type PubSubError, SlowConsumer } from '../errors.js';
import type { Denial } from '../generated/wire.js';
import type { ReceiveQueue } from '../settings/options.js';
import type { Gap, Message, SubscriptionEvent, SubscriptionStats } from '../values.js';
import type { JsonObject } from '../wire/guard.js';
import { Stream } from './stream.js';

/** Bytes of a decoded message beside its payload. */
const OVERHEAD = 400;

/** Topics whose gaps are reported one by one while no one reads; further gaps are combined. */
const TOPICS = 1_000;

/** Topics whose position is kept; the one not heard of for longest is forgotten. */
const POSITIONS = 100_000;

/** Refused topics that an error names beside the first. */
const NAMED = 5;

/** Events that were taken, after which the space they held is given back. */
const SPENT = 1_024;

/** Which messages of a subscription the program does not want. */
export interface Filter {
  /** Whether the inbox leaves the message out. */
  skips(message: Message): boolean;
  /** An event was taken. */
  taken(): void;
}

/** What one subscription has got and not yet handed to the program. */
export class Inbox extends Stream {
  denied: readonly Denial[] = [];
  /** Set while a bound is reached; the reader of the transport then gives way. */
  full = false;
  /** Lets some messages pass by; undefined: none. */
  filter: Filter | undefined;
  /** Where presence changes go: here, unless another inbox takes them. */
  presence: Inbox = this;
  /** True when the server has answered, or the subscription has ended before. */
  readonly answered: Promise<true>;
  readonly positions: Map<string, number>;
  private _answer: (answered: true) => void = () => {};
  /** The first `_next` places are spent. */
  private _events: (SubscriptionEvent | undefined)[] = [];
  /** Bytes of each of them. */
  private _sizes: number[] = [];
  private _next = 0;
  private _bytes = 0;
  /** What was overtaken by the loss of a message before it, one of a kind and topic. */
  private readonly _front = new Map<string, SubscriptionEvent>();
  /** What the queue may hold now: a replay may exceed the bound. */
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
    after?: ReadonlyMap<string, number>,
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
   * Add an event; what is over the bound is dealt with by the policy.
   *
   * @param many It is one of several of a replay, which may exceed the bound: they were asked for and
   *   are in memory already; giving up some of them would make a gap that the program could do
   *   nothing about.
   */
  put(event: SubscriptionEvent, many: boolean): void {
    if (this.finished) return;
    const isMessage = event.kind === 'message';
    if (isMessage && this.filter?.skips(event.message)) return;
    const size = OVERHEAD + (isMessage ? measure(event.message.data) : 0);
    if (isMessage) this._received += 1;
    if (event.kind === 'gap') this._gaps += 1;
    this._events.push(event);
    this._sizes.push(size);
    this._bytes += size;
    const { messages, bytes } = this._bounds;
    const length = this._events.length - this._next;
    this.full = length >= messages || this._bytes >= bytes;
    if (many) this._most = Math.max(this._most, length);
    else if (this.full && this._isOver) this._shed();
    this.wake();
  }

  /** The server has answered; where it granted nothing, that is the end. */
  join(topics: readonly string[], denied: readonly Denial[]): void {
    this.denied = denied;
    if (!topics.length) this.finish(denialError(denied, this.topics));
    this._answer(true);
  }

  override finish(error?: Error): void {
    super.finish(error);
    this._answer(true);
    if (this.presence !== this) this.presence.finish();
  }

  /** Give up what waits. */
  clear(): void {
    this._dropped = this._received - this._handled;
    this._events = [];
    this._sizes = [];
    this._next = this._bytes = 0;
    this._front.clear();
  }

  // ---------------------------------------------------------------- the program's side

  /** The next event, or undefined where none waits. */
  take(): SubscriptionEvent | undefined {
    const event = this._front.size ? this._takeFront() : this._shift();
    if (event?.kind === 'message') {
      this._handled += 1;
      this.stand(event.message.topic, event.message.seq);
    } else if (event?.kind === 'gap') {
      this.stand(event.gap.topic, event.gap.to);
    }
    this.filter?.taken();
    return event;
  }

  /** What the program has not taken yet, in order. */
  get waiting(): readonly SubscriptionEvent[] {
    const left = this._events.slice(this._next) as SubscriptionEvent[];
    return [...this._front.values(), ...left];
  }

  /** The counters now. */
  get stats(): SubscriptionStats {
    const { _received: received, _handled: handled, _dropped: dropped } = this;
    const queued = received - handled - dropped;
    return { received, handled, dropped, queued, queuedBytes: this._bytes, gaps: this._gaps };
  }

  // ---------------------------------------------------------------- inside

  private get _length(): number {
    return this._events.length - this._next;
  }

  /** Whether nothing waits. */
  get empty(): boolean {
    return !this._length && !this._front.size;
  }

  private get _isOver(): boolean {
    return this._length > this._most || this._bytes > this._bounds.bytes;
  }

  /** More waits than may. */
  private _shed(): void {
    if (this._bounds.policy === 'error') {
      this.finish(
        new SlowConsumer(
          DEVELOPMENT
            ? 'The queue of this subscription is full: the program reads too slowly.'
            : undefined,
          {
            topic: this.topics.length === 1 ? this.topics[0] : undefined,
            remedy: DEVELOPMENT
              ? 'Read faster, raise `queue`, or choose the policy `gap`.'
              : undefined,
          },
        ),
      );
    } else {
      while (this._length > 1 && this._isOver) this._dropOldest();
    }
  }

  private _shift(): SubscriptionEvent | undefined {
    const event = this._events[this._next];
    if (!event) return undefined;
    this._bytes -= this._sizes[this._next] as number;
    this._events[this._next] = undefined;
    this._next += 1;
    if (this._next > SPENT) {
      this._events.splice(0, this._next);
      this._sizes.splice(0, this._next);
      this._next = 0;
    }
    // What a replay held beyond the bound shrinks as it is taken.
    const { messages, bytes } = this._bounds;
    const length = this._events.length - this._next;
    this._most = Math.max(messages, Math.min(this._most, length));
    this.full = length >= messages || this._bytes >= bytes;
    return event;
  }

  private _takeFront(): SubscriptionEvent | undefined {
    const [first] = this._front;
    if (first) this._front.delete(first[0]);
    return first?.[1];
  }

  private _dropOldest(): void {
    const event = this._shift();
    if (event?.kind === 'presence') {
      // Everybody present is in it, so a later one of the topic says it all.
      this._front.set(`presence ${event.presence.topic}`, event);
    } else if (event) {
      const isMessage = event.kind === 'message';
      if (isMessage) this._dropped += 1;
      const isAnother = this._tellFirst(isMessage ? lossOf(event.message) : event.gap);
      if (isMessage && isAnother) this._gaps += 1;
    }
  }

  /** Keep a gap before the oldest message, joined with one of its topic; whether there was none. */
  private _tellFirst(gap: Gap): boolean {
    let { topic, from, to, missed, reason } = gap;
    if (!this._front.has(`gap ${topic}`) && this._front.size >= TOPICS) {
      topic = this.topics.join(' ');
      from = to = undefined;
    }
    const before = this._front.get(`gap ${topic}`);
    if (before?.kind === 'gap') {
      const more = before.gap.missed;
      from = before.gap.from;
      missed = missed === undefined || more === undefined ? undefined : missed + more;
      reason = 'slow_consumer';
    }
    this._front.set(`gap ${topic}`, { kind: 'gap', gap: { topic, from, to, missed, reason } });
    return !before;
  }

  /** Note the position of a message that was taken or passed over. */
  stand(topic: string, seq: number | undefined): void {
    const { positions } = this;
    if (seq === undefined) return;
    positions.set(topic, seq);
    if (positions.size > POSITIONS) positions.delete(positions.keys().next().value as string);
  }
}

/** The gap that one message leaves. */
function lossOf({ topic, seq }: Message): Gap {
  return { topic, from: seq, to: seq, missed: 1, reason: 'slow_consumer' };
}

/** The error of a subscription of which nothing was granted. */
function denialError(denied: readonly Denial[], topics: readonly string[]): PubSubError {
  const { code, message, topic } = denied[0] ?? {
    code: 'forbidden',
    message: DEVELOPMENT ? 'The server granted none of the topics.' : '',
    topic: topics[0],
  };
  const told = fromCode(code, message || (DEVELOPMENT ? `Refused: ${topic}.` : ''), { topic });
  if (!DEVELOPMENT) return told;
  const others = denied.slice(1).map((one) => one.topic);
  if (!others.length) return told;
  const more = others.length > NAMED ? ` and ${others.length - NAMED} more` : '';
  const stop = /[.!?]$/.test(told.message) ? '' : '.';
  const names = others.slice(0, NAMED).join(', ') + more;
  return fromCode(code, `${told.message}${stop} Also refused: ${names}.`, { topic });
}

/** Bytes of a payload as JSON, about: characters of strings, 8 for anything else, 4 an item. */
function measure(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 8;
  let total = 0;
  if (Array.isArray(value)) {
    for (const item of value) total += 4 + measure(item);
  } else {
    for (const key in value) total += key.length + 4 + measure((value as JsonObject)[key]);
  }
  return total;
}
