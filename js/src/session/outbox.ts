/**
 * Publishes that are not settled: their order, bounds, policies and pace.
 *
 * What was sent and not answered stays in flight, bounded like the queue; it goes back to the head
 * of the queue on a drop if the peer publishes an id once, and is unknown otherwise. PUB-1 to PUB-5.
 */

import type {
  ErrorFrame,
  ErrorInfo,
  Publication,
  PublishedFrame,
  PublishFrame,
  PublishResult,
} from '../generated/wire.js';
import { compact } from '../wire/compact.js';
import type { Effect, Outcome, Rejected } from './effects.js';
import type { Publish } from './events.js';
import type { Peer } from './peer.js';

const RATE_LIMITED = 'rate_limited';

/** Milliseconds to pause on `rate_limited` where the server names no time. */
const PAUSE = 1_000;

/** Longest pause that a server may impose, milliseconds. */
const MAX_PAUSE = 60_000;

/** Topics remembered of publishes that have no answer but an `error` without a `ref`. */
const MAX_BLIND = 1_000;

/** One publish; `results` has a slot for each message, undefined until it is answered. */
class Entry {
  readonly results: (PublishResult | undefined)[];
  /** Something of it may be published already. */
  sent = false;
  /** Slots that the server has still to answer. */
  awaited = new Set<number>();

  constructor(
    readonly number: number,
    readonly publish: Publish,
  ) {
    this.results = publish.messages.map(() => undefined);
  }

  /** Slots without an answer, each with its message. */
  open(): [slot: number, message: Publication][] {
    return [...this.publish.messages.entries()].filter(([n]) => this.results[n] === undefined);
  }
}

/** How many messages, and how many bytes. */
class Load {
  messages = 0;
  bytes = 0;

  add(publish: Publish, sign: 1 | -1): void {
    this.messages += sign * publish.messages.length;
    this.bytes += sign * publish.size;
  }
}

/** Unsettled publishes. Methods append effects to `out`. */
export class Outbox {
  private readonly _entries = new Map<number, Entry>(); // by ref
  private _queue: Entry[] = []; // in the order of numbers
  private readonly _flight = new Map<number, Entry>(); // by number
  private readonly _keys = new Map<string, Entry>(); // unsent, by key of the policy `latest`
  private _queued = new Load();
  private _flying = new Load();
  private _number = 0;
  private _blind: string[] = [];
  private _peer: Peer | undefined;
  private _budget = 0;
  private _paused = false;
  private _pacing = false;
  private _pace: number | undefined;

  /**
   * @param _maxMessages At most so many messages wait, and at most so many are in flight.
   * @param _maxBytes Likewise in bytes. One publish may be larger, if it is alone.
   * @param _interval Milliseconds between two refills of the publish budget.
   */
  constructor(
    private readonly _maxMessages: number,
    private readonly _maxBytes: number,
    private readonly _interval: number,
  ) {}

  // ---------------------------------------------------------------- what others may ask

  /** How many publishes have no outcome. */
  get size(): number {
    return this._entries.size;
  }

  /** Messages that wait. */
  get messages(): number {
    return this._queued.messages;
  }

  /** Bytes that wait. */
  get bytes(): number {
    return this._queued.bytes;
  }

  /** Whether one more publish fits; an empty queue takes a publish of any size. */
  hasRoom(messages: number, size: number): boolean {
    return (
      !this._queue.length ||
      (this._queued.messages + messages <= this._maxMessages &&
        this._queued.bytes + size <= this._maxBytes)
    );
  }

  /** Milliseconds after which the timer `pace` is to fire, if it has to be started anew. */
  takePace(): number | undefined {
    const pace = this._pace;
    this._pace = undefined;
    return pace;
  }

  // ---------------------------------------------------------------- from the user

  /** Take a publish into the queue, or settle it by its policy; send what may go. */
  publish(event: Publish, out: Effect[]): void {
    const { ref, messages, size } = event;
    if (this._entries.has(ref)) return;
    if (!messages.length) {
      settle(ref, { kind: 'acked', results: [] }, out);
      return;
    }
    const key = event.policy === 'latest' ? event.key : undefined;
    if (key !== undefined) this._supersede(key, event, out);
    if (event.policy === 'drop_oldest') this._makeRoom(messages.length, size, out);
    if (!this.hasRoom(messages.length, size)) {
      const { messages: waiting, bytes } = this._queued;
      const message = `${waiting} messages of ${bytes} bytes wait to be sent.`;
      settle(ref, reject('queue_full', message), out);
      return;
    }
    this._number += 1;
    this._enqueue(new Entry(this._number, event), key);
    this._pump(out);
  }

  /** Give a publish up: its time has passed. */
  expire(ref: number, out: Effect[]): void {
    const entry = this._entries.get(ref);
    if (!entry) return;
    this._drop(entry);
    const unsent = reject('timeout', 'It could not be sent in time.');
    settle(ref, entry.sent ? { kind: 'unknown' } : unsent, out);
    this._pump(out);
  }

  /** Give up the unsent publish of the same key; `event` goes to the end, so order is kept. */
  private _supersede(key: string, event: Publish, out: Effect[]): void {
    const entry = this._keys.get(key);
    if (entry) {
      this._drop(entry);
      const superseded = reject('superseded', `Publish ${event.ref} took its place.`);
      settle(entry.publish.ref, superseded, out);
    }
  }

  private _enqueue(entry: Entry, key: string | undefined): void {
    this._entries.set(entry.publish.ref, entry);
    this._queue.push(entry);
    if (key !== undefined) this._keys.set(key, entry);
    this._queued.add(entry.publish, 1);
  }

  private _makeRoom(count: number, size: number, out: Effect[]): void {
    while (!this.hasRoom(count, size)) {
      const entry = this._queue.find(({ sent }) => !sent);
      if (!entry) return;
      this._drop(entry);
      const message = 'A newer publish needed its place in the queue.';
      settle(entry.publish.ref, reject('dropped', message), out);
    }
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is there: what is in doubt is unknown now, if the peer cannot tell. */
  connected(peer: Peer, out: Effect[]): void {
    if (!(peer.ack && peer.idempotent)) this._doubt(out);
    this._peer = peer;
    this._blind = [];
    this._budget = peer.burst * 1000;
    this._paused = this._pacing = false;
  }

  /** The peer said again what it allows. */
  renew(peer: Peer): void {
    if (this._peer) this._peer = peer;
  }

  /** Send what may go. */
  flush(out: Effect[]): void {
    this._pump(out);
  }

  /** The connection is gone: what is in flight is sent again later, or is unknown. */
  lost(out: Effect[]): void {
    const peer = this._peer;
    this._peer = undefined;
    this._paused = this._pacing = false;
    this._pace = undefined;
    for (const entry of [...this._flight.values()].reverse()) this._requeue(entry);
    this._flight.clear();
    this._flying = new Load();
    if (peer && !peer.idempotent) this._doubt(out);
  }

  private _doubt(out: Effect[]): void {
    for (const entry of this._queue.filter(({ sent }) => sent)) {
      this._drop(entry);
      settle(entry.publish.ref, { kind: 'unknown' }, out);
    }
  }

  /** The timer `pace` fired: refill the budget. */
  paced(out: Effect[]): void {
    this._paused = this._pacing = false;
    if (this._peer?.rate) {
      const refilled = this._budget + this._peer.rate * this._interval;
      this._budget = Math.min(this._peer.burst * 1000, refilled);
    }
    this._pump(out);
  }

  /** The server answered; false if nothing is known under the `ref`. */
  published(frame: PublishedFrame, out: Effect[]): boolean {
    const found = this._find(frame.ref);
    if (!found) return false;
    const [entry, slots] = found;
    const { id, timestamp, seq, duplicate } = frame;
    const results = frame.results ?? [compact<PublishResult>({ id, timestamp, seq, duplicate })];
    let pause: number | undefined;
    for (const [n, [slot, message]] of slots.entries()) {
      let result = results[n] ?? UNANSWERED;
      entry.awaited.delete(slot);
      if (result.error?.code === RATE_LIMITED) {
        pause = Math.max(pause ?? 0, result.error.retry_after_ms || PAUSE);
        continue;
      }
      if (!result.error && result.id === undefined && message.id !== undefined) {
        result = { ...result, id: message.id };
      }
      entry.results[slot] = result;
    }
    this._advance(entry, pause, out);
    return true;
  }

  /** The server refused; false if nothing is known under the `ref`. */
  failed(frame: ErrorFrame, out: Effect[]): boolean {
    const found = this._find(frame.ref);
    if (!found) return false;
    const [entry, slots, whole] = found;
    for (const [slot] of slots) entry.awaited.delete(slot);
    if (frame.code === RATE_LIMITED) {
      this._advance(entry, frame.retry_after_ms || PAUSE, out);
    } else if (whole) {
      this._drop(entry);
      settle(entry.publish.ref, rejected(frame), out);
      this._pump(out);
    } else {
      const { code, message, remedy } = frame;
      const error = compact<ErrorInfo>({ code, message, remedy });
      for (const [slot] of slots) entry.results[slot] = { error };
      this._advance(entry, undefined, out);
    }
    return true;
  }

  /**
   * Whether an `error` without a `ref` may be about a publish.
   *
   * One that names no topic blames each publish once.
   */
  mayBeAbout(topic: string | undefined): boolean {
    return topic === undefined ? this._blind.shift() !== undefined : this._blind.includes(topic);
  }

  /** Send nothing for so long: the server said `rate_limited`. */
  pause(milliseconds: number | undefined): void {
    this._paused = true;
    // Below nothing by the tenth that is kept back, else the server is at its limit for ever.
    const spare = this._peer ? this._peer.rate - this._peer.burst : 0;
    this._budget = Math.min(this._budget, -spare * 1000);
    this._pacing = true;
    this._pace = Math.min(MAX_PAUSE, milliseconds || PAUSE);
  }

  /** The session has ended: sent is unknown, unsent is refused. */
  settleAll(unsent: Rejected, out: Effect[]): void {
    for (const entry of [...this._flight.values(), ...this._queue]) {
      settle(entry.publish.ref, entry.sent ? { kind: 'unknown' } : unsent, out);
    }
    this._entries.clear();
    this._queue = [];
    this._flight.clear();
    this._keys.clear();
    this._queued = new Load();
    this._flying = new Load();
  }

  // ---------------------------------------------------------------- inside

  private _find(
    ref: string | undefined,
  ): [entry: Entry, slots: [number, Publication][], whole: boolean] | undefined {
    const parts = /^p(\d{1,16})(?:\.(\d{1,16}))?$/.exec(ref ?? '');
    const entry = this._entries.get(Number(parts?.[1]));
    if (!entry || !this._flight.has(entry.number)) return undefined;
    const open = entry.open();
    if (parts?.[2] === undefined) return [entry, open, true];
    const slots = open.filter(([slot]) => slot === Number(parts[2]));
    return slots.length ? [entry, slots, false] : undefined;
  }

  private _advance(entry: Entry, pause: number | undefined, out: Effect[]): void {
    if (pause !== undefined) this.pause(pause);
    // Else the answers of other messages of the same publish are to come.
    if (!entry.awaited.size) {
      const open = entry.open().length;
      this._drop(entry);
      if (open) {
        entry.sent = open < entry.results.length;
        this._requeue(entry);
      } else {
        const results = entry.results.filter((result) => result !== undefined);
        settle(entry.publish.ref, { kind: 'acked', results }, out);
      }
    }
    this._pump(out);
  }

  /** Put an entry back where its number belongs: at the head, before what came later. */
  private _requeue(entry: Entry): void {
    const later = this._queue.findIndex(({ number }) => number > entry.number);
    this._queue.splice(later < 0 ? this._queue.length : later, 0, entry);
    this._entries.set(entry.publish.ref, entry);
    this._queued.add(entry.publish, 1);
  }

  private _drop(entry: Entry): void {
    const { publish } = entry;
    this._entries.delete(publish.ref);
    const at = this._queue.indexOf(entry);
    if (at >= 0) {
      this._queue.splice(at, 1);
      this._queued.add(publish, -1);
    } else if (this._flight.delete(entry.number)) {
      this._flying.add(publish, -1);
    }
    if (publish.key !== undefined && this._keys.get(publish.key) === entry) {
      this._keys.delete(publish.key);
    }
  }

  private _pump(out: Effect[]): void {
    const peer = this._peer;
    if (!peer || this._paused) return;
    const { rate, burst } = peer;
    for (let entry = this._queue[0]; entry; entry = this._queue[0]) {
      const { messages, size } = entry.publish;
      const count = messages.length;
      if (rate && this._budget < Math.min(count, burst) * 1000) break;
      const full =
        this._flying.messages + count > this._maxMessages ||
        this._flying.bytes + size > this._maxBytes;
      if (peer.ack && this._flight.size && full) break;
      if (rate) this._budget -= count * 1000;
      this._drop(entry);
      this._send(entry, peer, out);
    }
    if (rate && this._budget < burst * 1000 && !this._pacing) {
      this._pacing = true;
      this._pace = this._interval;
    }
  }

  private _send(entry: Entry, peer: Peer, out: Effect[]): void {
    const { publish } = entry;
    const open = entry.open();
    const ref = peer.ack ? `p${publish.ref}` : undefined;
    entry.sent = true;
    entry.awaited = new Set(open.map(([slot]) => slot));
    const send = (frame: Omit<PublishFrame, 'type' | 'ref'>, ref: string | undefined) => {
      out.push({ kind: 'send', frame: compact<PublishFrame>({ type: 'publish', ...frame, ref }) });
    };
    if (publish.batch && peer.batch) {
      send({ messages: open.map(([, message]) => message) }, ref);
    } else {
      for (const [slot, message] of open) {
        const one = ref === undefined || entry.results.length === 1 ? ref : `${ref}.${slot}`;
        send({ message }, one);
      }
    }
    if (ref === undefined) {
      for (const { topic } of publish.messages) this._blind.push(topic);
      this._blind.splice(0, this._blind.length - MAX_BLIND);
      const results = publish.messages.map(({ id }) => compact<PublishResult>({ id }));
      settle(publish.ref, { kind: 'acked', results }, out);
    } else {
      this._entries.set(publish.ref, entry);
      this._flight.set(entry.number, entry);
      this._flying.add(publish, 1);
    }
  }
}

/** What an error frame says, as an outcome. */
export function rejected(frame: ErrorFrame): Rejected {
  const { code, message, remedy, topic, retry_after_ms: retryAfter } = frame;
  return { kind: 'rejected', code, message, remedy, topic, retryAfter };
}

function reject(code: string, message: string): Rejected {
  return { kind: 'rejected', code, message };
}

function settle(ref: number, outcome: Outcome, out: Effect[]): void {
  out.push({ kind: 'settle', ref, outcome });
}

const UNANSWERED: PublishResult = {
  error: { code: 'outcome_unknown', message: 'The server sent no result for this message.' },
};
