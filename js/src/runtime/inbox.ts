/**
 * The bounded queues of subscriptions: the session delivers events, one reader takes them.
 *
 * A queue has three kinds of events in one order: messages, gaps, presence changes. A full queue drops
 * only messages, oldest first; gaps and presence changes before them move up and are delivered
 * before the next message.
 */

import { DEVELOPMENT } from '../build.js';
import { fromCode, type PubSubError, SlowConsumer } from '../errors.js';
import type { Denial, Envelope, Publication } from '../generated/wire.js';
import { Fifo } from '../session/fifo.js';
import type { DeliveryPorts, Subscribe } from '../session/ports.js';
import type { ReceiveQueue } from '../settings/options.js';
import type {
  AnyPayload,
  Gap,
  Message,
  PresenceChange,
  SubscriptionEvent,
  SubscriptionStats,
} from '../values.js';
import type { JsonObject } from '../wire/guard.js';
import type { Client } from './environment.js';
import { Stream } from './handlers.js';

/** Bytes of a decoded message in addition to its payload. */
const OVERHEAD = 400;

/** Maximum topics with separate gaps while the program does not read; others are combined. */
const TOPICS = 1_000;

/** Maximum topics with a position; the one without messages for the longest time is removed. */
const POSITIONS = 100_000;

/** Maximum denied topics in an error, in addition to the first. */
const NAMED = 5;

/**
 * Maximum remembered ids of own messages with `echo: false`, in addition to those without an
 * outcome: they may be in transit.
 */
const OWN_IDS = 10_000;

/** Selects messages of a subscription to leave out. */
export interface Filter {
  /** Whether the inbox leaves the message out. */
  skips(message: Message): boolean;
  /** An event was taken. */
  taken(): void;
}

/** A gap or a presence change. */
export type Other = Exclude<SubscriptionEvent, { readonly kind: 'message' }>;

/** What waits in the queue: a message itself, or an event. */
export type Entry<Data = AnyPayload> = Message<Data> | Other;

/** An entry in the queue, and its approximate bytes. */
interface Queued {
  readonly entry: Entry;
  readonly size: number;
}

/** Entries of one subscription that the program has not taken yet. */
export class Inbox extends Stream {
  /** The patterns that the server granted in its last answer. */
  granted: readonly string[] = [];
  denied: readonly Denial[] = [];
  /** Leaves out some messages; undefined: none. */
  filter: Filter | undefined;
  /** Whether an iteration throws the error. */
  observed = false;
  /** Called at the end; it may be called again. */
  ended: (() => void) | undefined;
  /** The inbox of presence changes: this one, unless another is set. */
  presence: Inbox = this;
  /** True when the server has answered, or the subscription has ended before. */
  readonly answered: Promise<true>;
  readonly positions: Map<string, number>;
  private _answer!: (answered: true) => void;
  private _queue = new Fifo<Queued>();
  private _bytes = 0;
  /** Events moved up by the loss of a message before them, one per kind and topic. */
  private readonly _front = new Map<string, Other>();
  /** Current limit of the queue: a replay may exceed the configured one. */
  private _allowed: number;
  private _received = 0;
  private _handled = 0;
  private _dropped = 0;
  private _gaps = 0;

  /** @param after Positions to begin with. */
  constructor(
    readonly topics: readonly string[],
    private readonly _bounds: ReceiveQueue,
    after?: ReadonlyMap<string, number>,
  ) {
    super();
    this._allowed = _bounds.messages;
    this.positions = new Map(after);
    this.answered = new Promise((resolve) => {
      this._answer = resolve;
    });
  }

  // ---------------------------------------------------------------- the driver's side

  /**
   * Add an entry; the policy applies above the limits.
   *
   * @param many It is one of several of a replay, which may exceed the limits: they were requested
   *   and are already in memory, and dropping some would cause a gap that the program cannot prevent.
   * @returns Whether the program should run before the next entry: a limit is reached, messages were
   *   dropped, or the subscription has ended.
   */
  put(entry: Entry, many: boolean): boolean {
    if (this.finished) return true;
    let size = OVERHEAD;
    if ('id' in entry) {
      if (this.filter?.skips(entry)) return false;
      this._received += 1;
      size += measure(entry.data);
    } else if (entry.kind === 'gap') {
      this._gaps += 1;
    }
    this._queue._add({ entry, size });
    this._bytes += size;
    if (many) this._allowed = Math.max(this._allowed, this._queue._size);
    else if (this._isOver) this._applyPolicy();
    this.wake();
    const { messages, bytes } = this._bounds;
    return (
      this.finished || this._front.size > 0 || this._queue._size >= messages || this._bytes >= bytes
    );
  }

  /** The server has answered; without a granted topic the subscription ends. */
  join(topics: readonly string[], denied: readonly Denial[]): void {
    this.granted = topics;
    this.denied = denied;
    if (!topics.length) this.finish(denialError(denied, this.topics));
    this._answer(true);
  }

  override finish(error?: Error): void {
    super.finish(error);
    this.ended?.();
    this._answer(true);
    if (this.presence !== this) this.presence.finish();
  }

  clear(): void {
    this._dropped = this._received - this._handled;
    this._queue = new Fifo();
    this._bytes = 0;
    this._front.clear();
  }

  // ---------------------------------------------------------------- the program's side

  /** Take the next entry, or undefined if the queue is empty. */
  take(): Entry | undefined {
    const [moved] = this._front;
    if (moved) this._front.delete(moved[0]);
    const entry = moved ? moved[1] : this._takeOldest();
    if (!entry) return undefined;
    if ('id' in entry) {
      this._handled += 1;
      this._setPosition(entry.topic, entry.seq);
    } else if (entry.kind === 'gap') {
      this._setPosition(entry.gap.topic, entry.gap.to);
    }
    this.filter?.taken();
    return entry;
  }

  /** The entries that the program has not taken yet, in order. */
  get waiting(): readonly Entry[] {
    return [...this._front.values(), ...this._queue._all().map(({ entry }) => entry)];
  }

  get stats(): SubscriptionStats {
    const { _received: received, _handled: handled, _dropped: dropped } = this;
    const queued = received - handled - dropped;
    return { received, handled, dropped, queued, queuedBytes: this._bytes, gaps: this._gaps };
  }

  get empty(): boolean {
    return !this._queue._size && !this._front.size;
  }

  // ---------------------------------------------------------------- inside

  private get _isOver(): boolean {
    return this._queue._size > this._allowed || this._bytes > this._bounds.bytes;
  }

  /** Apply the policy to a queue that exceeds its limits. */
  private _applyPolicy(): void {
    if (this._bounds.policy === 'error') {
      this.finish(
        new SlowConsumer('The queue of this subscription is full: the program reads too slowly.', {
          topic: this.topics.length === 1 ? this.topics[0] : undefined,
          remedy: 'Read faster, raise `queue`, or choose the policy `gap`.',
        }),
      );
    } else {
      while (this._queue._size > 1 && this._isOver) this._dropOldest();
    }
  }

  private _takeOldest(): Entry | undefined {
    const oldest = this._queue._shift();
    if (!oldest) return undefined;
    this._bytes -= oldest.size;
    // The excess of a replay shrinks as the program takes events.
    this._allowed = Math.max(this._bounds.messages, Math.min(this._allowed, this._queue._size));
    return oldest.entry;
  }

  private _dropOldest(): void {
    const entry = this._takeOldest() as Entry;
    if ('id' in entry) {
      this._dropped += 1;
      const { topic, seq } = entry;
      const gap: Gap = { topic, from: seq, to: seq, missed: 1, reason: 'slow_consumer' };
      if (this._toFront(gap)) this._gaps += 1;
    } else if (entry.kind === 'gap') {
      this._toFront(entry.gap);
    } else {
      // Each change contains all members, so the latest one of a topic is enough.
      this._front.set(`presence ${entry.presence.topic}`, entry);
    }
  }

  /** Keep a gap before the oldest message, joined with one of its topic; whether there was none. */
  private _toFront(gap: Gap): boolean {
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

  /** Record the position of a message that was taken or left out. */
  _setPosition(topic: string, seq: number | undefined): void {
    const { positions } = this;
    if (seq === undefined) return;
    positions.set(topic, seq);
    if (positions.size > POSITIONS) positions.delete(positions.keys().next().value as string);
  }
}

/** The error of a subscription without a granted topic. */
function denialError(denied: readonly Denial[], topics: readonly string[]): PubSubError {
  const { code, message, topic } = denied[0] ?? {
    code: 'forbidden',
    message: DEVELOPMENT ? 'The server granted none of the topics.' : '',
    topic: topics[0],
  };
  const refusal = fromCode(code, message || (DEVELOPMENT ? `Rejected: ${topic}.` : ''), { topic });
  if (!DEVELOPMENT) return refusal;
  const others = denied.slice(1).map((one) => one.topic);
  if (!others.length) return refusal;
  const more = others.length > NAMED ? ` and ${others.length - NAMED} more` : '';
  const stop = /[.!?]$/.test(refusal.message) ? '' : '.';
  const names = others.slice(0, NAMED).join(', ') + more;
  return fromCode(code, `${refusal.message}${stop} Also rejected: ${names}.`, { topic });
}

/** Approximate JSON bytes of a payload: characters of strings, 8 per other value, 4 per item. */
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

/** What identifies a message of this client. */
type Own = Pick<Publication, 'topic' | 'id'>;

/** Others may use the same id on another topic, and other senders on the same one. */
const keyOf = ({ id, topic }: Own): string => `${id} ${topic}`;

/** The subscriptions of one client. */
export class Deliveries implements DeliveryPorts {
  readonly inboxes: Map<number, Inbox> = new Map();
  private readonly _own = new Set<string>();
  private _reported?: Error;

  constructor(private readonly _client: Client) {}

  /**
   * Begin a subscription.
   *
   * @throws ClosedError The client has ended, while a part of it was loading; if it failed, its error.
   */
  add(request: Subscribe, inbox: Inbox): void {
    if (this._client.over.aborted) this._client.checkOpen();
    this.inboxes.set(request.sub, inbox);
    this._client.perform(({ operations }) => operations.subscribe(request));
  }

  /** End a subscription. Does nothing when it has ended. */
  remove(sub: number): void {
    if (!this.inboxes.delete(sub)) return;
    this._client.perform(({ operations }) => operations.unsubscribe(sub));
  }

  /** Skip messages of this client for its own subscriptions, if `echo` is off. */
  rememberOwn(messages: readonly Own[]): void {
    if (this._client.options.echo) return;
    for (const one of messages) this._own.add(keyOf(one));
    const most = OWN_IDS + this._client.session.operations.publishes.size;
    for (const id of this._own) {
      if (this._own.size <= most) break;
      this._own.delete(id);
    }
  }

  finish(error: PubSubError | undefined): void {
    for (const inbox of this.inboxes.values()) inbox.finish(error);
    this.inboxes.clear();
  }

  /**
   * Report the error of a subscription, once: the subscriptions of a client that failed share one.
   */
  reportEnd({ error }: Inbox): void {
    if (!error || error === this._reported) return;
    this._reported = error;
    this._client.listeners.report(error);
  }

  // ---------------------------------------------------------------- ports of the session

  deliver(sub: number, message: Envelope, many: boolean): void {
    if (this._own.size && this._own.has(keyOf(message))) {
      const { resends, user_id } = this._client.peer ?? {};
      const { sender } = message;
      // Only a server with `idempotency` keeps ids apart by sender.
      if (!(resends && user_id && sender && sender.id !== user_id)) return;
    }
    this._put(sub, message, many);
  }

  gap(sub: number, gap: Gap, many: boolean): void {
    this._put(sub, { kind: 'gap', gap }, many);
  }

  presenceChanged(sub: number, presence: PresenceChange): void {
    const inbox = this.inboxes.get(sub)?.presence;
    this._put(sub, { kind: 'presence', presence }, false, inbox);
  }

  joined(sub: number, topics: readonly string[], denied: readonly Denial[]): void {
    for (const one of denied) this._client.tokens._redact(one);
    this.inboxes.get(sub)?.join(topics, denied);
  }

  /** Add an entry; let the program run if it must read first, and remove a failed subscription. */
  private _put(sub: number, entry: Entry, many: boolean, inbox = this.inboxes.get(sub)): void {
    if (!inbox?.put(entry, many)) return;
    this._client.giveWay = true;
    // Not within the step of the session.
    if (inbox.finished) queueMicrotask(() => this.remove(sub));
  }
}
