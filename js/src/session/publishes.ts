/**
 * Publishes that are not settled: their order, bounds and pace.
 *
 * What was sent and not answered stays in flight, bounded like the queue; on a drop it goes back to
 * the head of the queue, to be sent again under the same ids. PUB-1 to PUB-5.
 */

import type { ErrorFrame, Publication, PublishedFrame, PublishResult } from '../generated/wire.js';
import type { Context } from './context.js';
import type { Outcome, Rejected } from './ports.js';
import type { Publish } from './requests.js';

export const RATE_LIMITED = 'rate_limited';

/** Milliseconds to pause on `rate_limited` where the server names no time. */
export const PAUSE = 1_000;

/** Longest pause that a server may impose, milliseconds. */
const MAX_PAUSE = 60_000;

/** What lanes have saved up where none waited. */
const NO_CREDIT: readonly number[] = [];

/** The result of a message that the server left out of its answer. */
export const UNANSWERED: PublishResult = {
  error: { code: 'outcome_unknown', message: 'The server sent no result for this message.' },
};

/** One publish. */
export interface Entry {
  /** Its place in the order. */
  readonly _number: number;
  readonly _publish: Publish;
  readonly _ref: string;
  /** Something of it may be published already. */
  _sent: boolean;
  /** It was in flight when a connection was lost: no refusal tells what became of it. */
  _doubted: boolean;
  /** It was sent, and nothing of it was taken. */
  _tried: boolean;
  /** What became of each message that was answered, by slot. */
  readonly _results: PublishResult[];
  /** How many messages were not. */
  _left: number;
  /** Milliseconds that publishes had been held back for when this one came. */
  _since: number;
}

/** Entries in order, by their `ref`, with what they weigh. */
class Pile {
  _entries: Map<string, Entry> = new Map();
  _messages = 0;
  _bytes = 0;

  _add(entry: Entry): void {
    this._entries.set(entry._ref, entry);
    this._weigh(entry._publish, 1);
  }

  _delete(entry: Entry): void {
    if (this._entries.delete(entry._ref)) this._weigh(entry._publish, -1);
  }

  private _weigh({ messages, size }: Publish, sign: number): void {
    this._messages += sign * messages.length;
    this._bytes += sign * size;
  }
}

/** The part that gives up publishes for others and knows whose turn it is. */
export interface SendPolicies {
  makeRoom(publishes: Publishes, publish: Publish): number | undefined;
  turnOf(queue: Iterable<Entry>, credit: readonly number[]): [Entry, readonly number[]];
}

/** The part that sends and settles several messages as one publish. */
export interface Batches {
  batchAnswered(publishes: Publishes, entry: Entry, frame: PublishedFrame): void;
  slotAnswered(
    publishes: Publishes,
    entry: Entry,
    frame: PublishedFrame | ErrorFrame,
    slot: number,
    last: boolean,
  ): void;
}

/** Unsettled publishes. */
export class Publishes {
  /** The server said `rate_limited`: nothing is sent before the timer `pace` fires. */
  paused = false;
  /** How many publishes the rate of the server held back for a second or more. */
  slowed = 0;
  /** The part that a client has whose publishes do not just wait for their turn. */
  policies: SendPolicies | undefined;
  /** The part that a client has before its first batch. */
  batches: Batches | undefined;
  readonly _queue: Pile = new Pile();
  private readonly _flight = new Pile();
  private _number = 0;
  /** Of the lanes, where the rate is used up. */
  private _credit = NO_CREDIT;
  /** What may be sent now, in thousandths of a message. */
  private _budget = 0;
  /** Milliseconds that the rate has held publishes back for; a pause counts as a second. */
  private _held = 0;

  constructor(private readonly _context: Context) {}

  // ---------------------------------------------------------------- what others may ask

  /** How many publishes have no outcome. */
  get size(): number {
    return this._queue._entries.size + this._flight._entries.size;
  }

  /** Whether one would have no outcome were the connection lost now. */
  get outlasts(): boolean {
    const { peer } = this._context;
    if (!peer || peer.resends) return this.size > 0;
    return [...this._queue._entries.values()].some(({ _sent }) => !_sent);
  }

  /** Whether one more publish fits; an empty queue takes a publish of any size. */
  hasRoom(messages: number, size: number, pile: Pile = this._queue): boolean {
    const { sendQueueMessages, sendQueueBytes } = this._context.options;
    return (
      !pile._entries.size ||
      (pile._messages + messages <= sendQueueMessages && pile._bytes + size <= sendQueueBytes)
    );
  }

  // ---------------------------------------------------------------- from the program

  /** Take a publish into the queue, or settle it by its policy; send what may go. */
  publish(publish: Publish): void {
    const { ref, messages, size } = publish;
    this._number += 1;
    const place = this.policies?.makeRoom(this, publish);
    const entry: Entry = {
      _number: place ?? this._number,
      _publish: publish,
      _ref: `p${ref}`,
      _sent: false,
      _doubted: false,
      _tried: false,
      _results: [],
      _left: messages.length,
      _since: this._held,
    };
    if (this.hasRoom(messages.length, size)) {
      this._queue._add(entry);
      if (place) this._requeue([]);
      this.flush();
    } else {
      const { _messages: count, _bytes: bytes } = this._queue;
      this._giveUp(
        entry,
        'queue_full',
        `Messages that wait to be sent: ${count}, with ${bytes} bytes in all.`,
      );
    }
  }

  /** Give a publish up: its time has passed. */
  expire(ref: number): void {
    const name = `p${ref}`;
    const entry = this._flight._entries.get(name) ?? this._queue._entries.get(name);
    if (!entry) return;
    this._giveUp(entry, 'timeout', 'It could not be sent in time.');
    this.flush();
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is there. */
  connected(): void {
    const { peer } = this._context;
    this._settleDoubted();
    this._budget = (peer?.burst ?? 0) * 1000;
  }

  /** The connection is gone: what is in flight is sent again later. */
  lost(): void {
    this._context.timers.postpone('pace', undefined);
    this.paused = false;
    const flight = [...this._flight._entries.values()];
    for (const entry of flight) entry._doubted = true;
    this._requeue(flight);
    this._settleDoubted();
  }

  /** The timer `pace` fired: refill the budget. */
  paced(): void {
    const { peer, options } = this._context;
    const { rate = 0, burst = 0 } = peer ?? {};
    this._held += this.paused ? PAUSE : options.paceInterval;
    this.paused = false;
    this._budget = Math.min(burst * 1000, this._budget + rate * options.paceInterval);
    this.flush();
  }

  /** The server answered; false if nothing is in flight under the `ref`. */
  published(frame: PublishedFrame): boolean {
    const entry = this._flight._entries.get(frame.ref ?? '');
    if (!entry) return false;
    const { batch, messages } = entry._publish;
    if (batch) {
      this.batches?.batchAnswered(this, entry, frame);
      return true;
    }
    const [result = UNANSWERED] = frame.results ?? [resultOf(frame)];
    const { error, id = messages[0]?.id } = result;
    if (error?.code === RATE_LIMITED) {
      this._advance(entry, error.retry_after_ms || PAUSE);
    } else {
      const known = error ? result : ({ ...result, id } as PublishResult);
      this._settle(entry, { kind: 'acked', results: [known] });
      this.flush();
    }
    return true;
  }

  /** The publish that is in flight under a `ref`. */
  inFlight(ref: string): Entry | undefined {
    return this._flight._entries.get(ref);
  }

  /** The server refused; false if nothing is in flight under the `ref`. */
  refused(frame: ErrorFrame): boolean {
    const { code, message, remedy, topic, field, retry_after_ms: retryAfter, ref = '' } = frame;
    const entry = this._flight._entries.get(ref);
    if (!entry) return false;
    if (code === RATE_LIMITED) {
      this._advance(entry, retryAfter || PAUSE);
    } else {
      this._settle(entry, { kind: 'rejected', code, message, remedy, topic, field, retryAfter });
      this.flush();
    }
    return true;
  }

  /** Send nothing for this time. */
  pause(milliseconds = 0): void {
    const { rate = 0, burst = 0 } = this._context.peer ?? {};
    this.paused = true;
    // Go below zero by the tenth that is kept back; otherwise the server stays at its limit.
    this._budget = Math.min(this._budget, (burst - rate) * 1000);
    this._context.timers.postpone('pace', Math.min(MAX_PAUSE, milliseconds || PAUSE));
  }

  /** Send what may go. */
  flush(): void {
    const { peer, options, timers } = this._context;
    if (!peer || this.paused) return;
    const { rate, burst } = peer;
    const { _entries: waiting } = this._queue;
    while (waiting.size) {
      let entry = waiting.values().next().value as Entry;
      // What the budget covers goes in its order; turns are for what it does not cover.
      let credit = NO_CREDIT;
      if (this.policies && rate && this._budget < this._queue._messages * 1000)
        [entry, credit] = this.policies.turnOf(waiting.values(), this._credit);
      const { messages, size } = entry._publish;
      const count = messages.length;
      if (rate && this._budget < Math.min(count, burst) * 1000) break;
      if (!this.hasRoom(count, size, this._flight)) break;
      // A batch beyond the budget is granted in part: there is nothing left there then.
      if (rate) this._budget = Math.max(this._budget - count * 1000, (burst - rate) * 1000);
      this._credit = credit;
      this._send(entry);
    }
    if (rate && this._budget < burst * 1000 && !timers.expects('pace')) {
      timers.postpone('pace', options.paceInterval);
    }
  }

  /** The session has ended: sent is unknown, unsent is refused. */
  settleAll(unsent: Rejected): void {
    this._context.timers.postpone('pace', undefined);
    for (const { _entries } of [this._flight, this._queue]) {
      for (const entry of [..._entries.values()]) {
        this._settle(entry, entry._sent ? { kind: 'unknown' } : unsent);
      }
    }
  }

  // ---------------------------------------------------------------- inside

  private _send(entry: Entry): void {
    const { _publish, _ref: ref } = entry;
    const { peer, ports } = this._context;
    this._queue._delete(entry);
    this._flight._add(entry);
    entry._sent = true;
    if (this._held - entry._since >= PAUSE) this.slowed += 1;
    entry._since = this._held;
    const [message] = _publish.messages;
    const messages = _publish.batch && openOf(entry).map(([, open]) => open);
    ports.send(messages ? { type: 'publish', messages, ref } : { type: 'publish', message, ref });
    if (peer?.acks) return;
    const results = _publish.messages.map(({ id }) => ({ id }) as PublishResult);
    this._settle(entry, { kind: 'acked', results });
  }

  /** Settle what is answered as a whole; else send the rest again. */
  _advance(entry: Entry, pause: number): void {
    if (pause) this.pause(pause);
    const { _left: left, _results: results } = entry;
    if (left) {
      entry._sent = entry._doubted || left < entry._publish.messages.length;
      entry._tried = true;
      this._requeue([entry]);
    } else {
      this._settle(entry, { kind: 'acked', results });
    }
    this.flush();
  }

  /** What was sent is unknown, where the peer could publish it twice. */
  private _settleDoubted(): void {
    const { peer } = this._context;
    if (!peer || peer.resends) return;
    for (const entry of [...this._queue._entries.values()]) {
      if (entry._sent) this._settle(entry, { kind: 'unknown' });
    }
  }

  /** Put entries back where their numbers belong: at the head, before what came later. */
  private _requeue(entries: readonly Entry[]): void {
    for (const entry of entries) {
      this._flight._delete(entry);
      this._queue._add(entry);
    }
    const queue = [...this._queue._entries.values()].sort((a, b) => a._number - b._number);
    this._queue._entries = new Map(queue.map((entry) => [entry._ref, entry]));
  }

  /** Settle what is not going to be sent; what was sent is unknown. */
  _giveUp(entry: Entry, code: string, message: string): void {
    const unsent: Rejected = { kind: 'rejected', code, message };
    this._settle(entry, entry._sent ? { kind: 'unknown' } : unsent);
  }

  private _settle(entry: Entry, outcome: Outcome): void {
    this._queue._delete(entry);
    this._flight._delete(entry);
    this._context.ports.settle(entry._publish.ref, outcome);
  }
}

/** What the answer to one message says became of it. */
export function resultOf({ id, timestamp, seq, duplicate }: PublishedFrame): PublishResult {
  return { id, timestamp, seq, duplicate } as PublishResult;
}

/** Messages without an answer, by slot. */
export function openOf({ _publish, _results }: Entry): [slot: number, message: Publication][] {
  return [..._publish.messages.entries()].filter(([slot]) => !_results[slot]);
}
