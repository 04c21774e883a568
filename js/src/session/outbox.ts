/**
 * Publishes that are not settled: their order, bounds, policies and pace.
 *
 * What was sent and not answered stays in flight, bounded like the queue; on a drop it goes back to
 * the head of the queue, to be sent again under the same ids. PUB-1 to PUB-5.
 */

import type { ErrorFrame, Publication, PublishedFrame, PublishResult } from '../generated/wire.js';
import type { Outcome, Rejected } from './effects.js';
import type { Publish } from './events.js';
import type { Machine } from './machine.js';
import type { Peer } from './peer.js';

export const RATE_LIMITED = 'rate_limited';

/** Milliseconds to pause on `rate_limited` where the server names no time. */
const PAUSE = 1_000;

/** Longest pause that a server may impose, milliseconds. */
const MAX_PAUSE = 60_000;

/** One publish. */
export interface Entry {
  /** Its place in the order. */
  readonly _number: number;
  readonly _publish: Publish;
  readonly _ref: string;
  /** A slot for each message, undefined until it is answered. */
  readonly _results: (PublishResult | undefined)[];
  /** Something of it may be published already. */
  _sent: boolean;
  /** With the policy `latest`, until it is sent. */
  _key: string | undefined;
}

/** Publishes in a row, and how much they are. */
class Pile {
  readonly _entries: Entry[] = [];
  private _messages = 0;
  private _bytes = 0;

  constructor(private readonly _machine: Machine) {}

  /** Whether one more publish fits; where there is none, any size does. */
  _fits(messages: number, bytes: number): boolean {
    const { sendQueueMessages, sendQueueBytes } = this._machine._options;
    return (
      !this._entries.length ||
      (this._messages + messages <= sendQueueMessages && this._bytes + bytes <= sendQueueBytes)
    );
  }

  _add(entry: Entry): void {
    this._entries.push(entry);
    this._count(entry, 1);
  }

  _remove(entry: Entry): void {
    const at = this._entries.indexOf(entry);
    if (at < 0) return;
    this._entries.splice(at, 1);
    this._count(entry, -1);
  }

  _show(): string {
    return `${this._messages} messages of ${this._bytes} bytes wait to be sent.`;
  }

  private _count({ _publish: { messages, size } }: Entry, sign: number): void {
    this._messages += sign * messages.length;
    this._bytes += sign * size;
  }
}

/** Unsettled publishes. */
export class Outbox {
  readonly _queue: Pile = new Pile(this._machine);
  readonly _flight: Pile = new Pile(this._machine);
  private _number = 0;
  /** What may be sent now, in thousandths of a message. */
  private _budget = 0;
  private _paused = false;

  constructor(private readonly _machine: Machine) {}

  // ---------------------------------------------------------------- what others may ask

  /** How many publishes have no outcome. */
  get size(): number {
    return this._queue._entries.length + this._flight._entries.length;
  }

  /** Whether one more publish fits; an empty queue takes a publish of any size. */
  hasRoom(messages: number, size: number): boolean {
    return this._queue._fits(messages, size);
  }

  // ---------------------------------------------------------------- from the user

  /** Take a publish into the queue, or settle it by its policy; send what may go. */
  publish(event: Publish): void {
    const { ref, messages, size, policy } = event;
    const _key = policy === 'latest' ? event.key : undefined;
    const { _entries: waiting } = this._queue;
    const same = _key && waiting.find((other) => other._key === _key);
    if (same) this._giveUp(same, 'superseded', `Publish ${ref} took its place.`);
    while (policy === 'drop_oldest' && !this.hasRoom(messages.length, size)) {
      const oldest = waiting.find(({ _sent }) => !_sent);
      if (!oldest) break;
      this._giveUp(oldest, 'dropped', 'A newer publish needed its place in the queue.');
    }
    this._number += 1;
    const _results = messages.map(() => undefined);
    const entry: Entry = {
      _number: this._number,
      _publish: event,
      _ref: `p${ref}`,
      _results,
      _sent: false,
      _key,
    };
    if (this.hasRoom(messages.length, size)) {
      this._queue._add(entry);
      this.flush();
    } else {
      this._giveUp(entry, 'queue_full', this._queue._show());
    }
  }

  /** Give a publish up: its time has passed. */
  expire(ref: number): void {
    const unsettled = [...this._flight._entries, ...this._queue._entries];
    const entry = unsettled.find(({ _publish }) => _publish.ref === ref);
    if (!entry) return;
    this._giveUp(entry, 'timeout', 'It could not be sent in time.');
    this.flush();
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is there. */
  connected(peer: Peer): void {
    this._machine._parts.plain?._connected();
    this._budget = peer.burst * 1000;
    this._paused = false;
  }

  /** The connection is gone: what is in flight is sent again later. */
  lost(): void {
    this._machine._due.pace = undefined;
    this._paused = false;
    this._requeue(...this._flight._entries);
    this._machine._parts.plain?._lost();
  }

  /** The timer `pace` fired: refill the budget. */
  paced(): void {
    const { _peer, _options } = this._machine;
    this._paused = false;
    if (_peer?.rate) {
      const refilled = this._budget + _peer.rate * _options.paceInterval;
      this._budget = Math.min(_peer.burst * 1000, refilled);
    }
    this.flush();
  }

  /** The server answered. */
  published(frame: PublishedFrame): void {
    const entry = this._find(frame);
    if (!entry) {
      this._machine._parts.plain?._answered(frame);
      return;
    }
    let pause = 0;
    for (const [n, [slot, message]] of open(entry).entries()) {
      pause = Math.max(pause, this._answer(entry, slot, message, resultIn(frame, n)));
    }
    this._advance(entry, pause);
  }

  /** The server refused; false if nothing is known under the `ref`. */
  failed(frame: ErrorFrame): boolean {
    const entry = this._find(frame);
    if (!entry) return this._machine._parts.plain?._answered(frame) ?? false;
    if (frame.code === RATE_LIMITED) {
      this._advance(entry, frame.retry_after_ms || PAUSE);
    } else {
      const { code, message, remedy, topic, retry_after_ms: retryAfter } = frame;
      this._settle(entry, { kind: 'rejected', code, message, remedy, topic, retryAfter });
      this.flush();
    }
    return true;
  }

  /** Send nothing for so long: the server said `rate_limited`. */
  pause(milliseconds: number | undefined): void {
    const { rate = 0, burst = 0 } = this._machine._peer ?? {};
    this._paused = true;
    // Below nothing by the tenth that is kept back, else the server is at its limit for ever.
    this._budget = Math.min(this._budget, (burst - rate) * 1000);
    this._machine._due.pace = Math.min(MAX_PAUSE, milliseconds || PAUSE);
  }

  /** Send what may go. */
  flush(): void {
    const { _peer: peer, _options, _due } = this._machine;
    if (!peer || this._paused) return;
    const { rate, burst } = peer;
    for (const entry of [...this._queue._entries]) {
      const { messages, size } = entry._publish;
      const cost = messages.length * 1000;
      if (rate && this._budget < Math.min(cost, burst * 1000)) break;
      if (!this._flight._fits(messages.length, size)) break;
      if (rate) this._budget -= cost;
      this._queue._remove(entry);
      this._send(entry);
    }
    if (rate && this._budget < burst * 1000 && !this._machine._runs('pace')) {
      _due.pace = _options.paceInterval;
    }
  }

  /** The session has ended: sent is unknown, unsent is refused. */
  settleAll(unsent: Rejected): void {
    for (const entry of [...this._flight._entries, ...this._queue._entries]) {
      this._settle(entry, entry._sent ? { kind: 'unknown' } : unsent);
    }
  }

  // ---------------------------------------------------------------- inside

  private _find({ ref }: { readonly ref?: string }): Entry | undefined {
    return this._flight._entries.find(({ _ref }) => _ref === ref);
  }

  private _send(entry: Entry): void {
    const { _publish, _ref: ref } = entry;
    entry._sent = true;
    entry._key = undefined;
    this._flight._add(entry);
    const messages = open(entry).map(([, message]) => message);
    if (this._machine._parts.plain?._publish(entry)) return;
    const frame = _publish.batch ? { messages } : { message: messages[0] };
    this._machine._send({ type: 'publish', ...frame, ref });
  }

  /** Note the result of one message; the milliseconds to pause, if it was refused for now. */
  _answer(entry: Entry, slot: number, { id }: Publication, result: PublishResult): number {
    const { error } = result;
    if (error?.code === RATE_LIMITED) return error.retry_after_ms || PAUSE;
    entry._results[slot] = error ? result : ({ ...result, id: result.id ?? id } as PublishResult);
    return 0;
  }

  /** Settle what is answered as a whole; else send the rest again. */
  _advance(entry: Entry, pause: number): void {
    if (pause) this.pause(pause);
    const { _results } = entry;
    const answered = _results.filter((result) => result !== undefined);
    if (answered.length < _results.length) {
      entry._sent = answered.length > 0;
      this._requeue(entry);
    } else {
      this._settle(entry, { kind: 'acked', results: answered });
    }
    this.flush();
  }

  /** Put entries back where their numbers belong: at the head, before what came later. */
  private _requeue(...entries: Entry[]): void {
    for (const entry of entries) {
      this._flight._remove(entry);
      this._queue._add(entry);
    }
    this._queue._entries.sort((a, b) => a._number - b._number);
  }

  private _giveUp(entry: Entry, code: string, message: string): void {
    const unsent: Rejected = { kind: 'rejected', code, message };
    this._settle(entry, entry._sent ? { kind: 'unknown' } : unsent);
  }

  _settle(entry: Entry, outcome: Outcome): void {
    this._queue._remove(entry);
    this._flight._remove(entry);
    this._machine._tell({ kind: 'settle', ref: entry._publish.ref, outcome });
  }
}

/** Slots without an answer, each with its message. */
export function open({ _publish, _results }: Entry): [slot: number, message: Publication][] {
  return [..._publish.messages.entries()].filter(([slot]) => !_results[slot]);
}

/** What the server says became of a message. */
export function resultIn(
  { results, id, timestamp, seq, duplicate }: PublishedFrame,
  n = 0,
): PublishResult {
  if (results) return results[n] ?? UNANSWERED;
  return { id, timestamp, seq, duplicate } as PublishResult;
}

const UNANSWERED: PublishResult = {
  error: { code: 'outcome_unknown', message: 'The server sent no result for this message.' },
};
