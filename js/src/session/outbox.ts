/**
 * Publishes that are not settled: their order, bounds and pace.
 *
 * What was sent and not answered stays in flight, bounded like the queue; on a drop it goes back to
 * the head of the queue, to be sent again under the same ids. PUB-1 to PUB-5.
 */

import type { PublishedFrame, PublishResult } from '../generated/wire.js';
import type { Outcome, Rejected } from './effects.js';
import type { Publish } from './events.js';
import type { Machine } from './machine.js';

/** One publish. */
export interface Entry {
  /** Its place in the order. */
  readonly _number: number;
  readonly _publish: Publish;
  readonly _ref: string;
  /** Something of it may be published already. */
  _sent: boolean;
  /** It was in flight when a connection was lost: no refusal tells what became of it. */
  _doubted?: boolean;
  /** It was sent, and nothing of it was taken. */
  _tried?: boolean;
  /** What became of each message, where there are several. */
  _results?: (PublishResult | undefined)[];
}

/** Unsettled publishes. */
export class Outbox {
  _queue: Set<Entry> = new Set();
  readonly _flight: Set<Entry> = new Set();
  private _number = 0;
  /** What may be sent now, in thousandths of a message. */
  _budget = 0;
  /** The server said `rate_limited`: nothing is sent before the timer `pace` fires. */
  _paused = false;

  constructor(private readonly _machine: Machine) {}

  // ---------------------------------------------------------------- what others may ask

  /** How many publishes have no outcome. */
  get size(): number {
    return this._queue.size + this._flight.size;
  }

  /** Whether one more publish fits; an empty queue takes a publish of any size. */
  hasRoom(messages: number, size: number, pile: ReadonlySet<Entry> = this._queue): boolean {
    const { sendQueueMessages, sendQueueBytes } = this._machine._options;
    const load = loadOf(pile);
    return (
      !pile.size ||
      (load.messages + messages <= sendQueueMessages && load.bytes + size <= sendQueueBytes)
    );
  }

  // ---------------------------------------------------------------- from the user

  /** Take a publish into the queue, or settle it by its policy; send what may go. */
  publish(event: Publish): void {
    const { ref, messages, size } = event;
    this._number += 1;
    const place = this._machine._parts.rare?._makeRoom(event);
    const _number = place ?? this._number;
    const entry = { _number, _publish: event, _ref: `p${ref}`, _sent: false };
    if (this.hasRoom(messages.length, size)) {
      if (place) this._requeue(entry);
      else this._queue.add(entry);
      this.flush();
    } else {
      const load = loadOf(this._queue);
      const message = `Messages that wait to be sent: ${load.messages}, with ${load.bytes} bytes in all.`;
      this._giveUp(entry, 'queue_full', message);
    }
  }

  /** Give a publish up: its time has passed. */
  expire(ref: number): void {
    for (const entry of [...this._flight, ...this._queue]) {
      if (entry._publish.ref === ref) {
        this._giveUp(entry, 'timeout', 'It could not be sent in time.');
        this.flush();
      }
    }
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is there. */
  connected(): void {
    const { _peer, _parts } = this._machine;
    _parts.plain?._connected();
    this._budget = (_peer?.burst ?? 0) * 1000;
  }

  /** The connection is gone: what is in flight is sent again later. */
  lost(): void {
    this._machine._due.pace = undefined;
    this._paused = false;
    for (const entry of this._flight) entry._doubted = true;
    this._requeue(...this._flight);
    this._machine._parts.plain?._lost();
  }

  /** The timer `pace` fired: refill the budget. */
  paced(): void {
    const { rate = 0, burst = 0 } = this._machine._peer ?? {};
    this._paused = false;
    const refilled = this._budget + rate * this._machine._options.paceInterval;
    this._budget = Math.min(burst * 1000, refilled);
    this.flush();
  }

  /** The server answered. */
  published(frame: PublishedFrame): void {
    const { plain, rare, presence } = this._machine._parts;
    const entry = this._find(frame.ref);
    if (!entry) {
      if (!presence?._saying._answered(frame.ref)) plain?._answered(frame);
    } else if (entry._results || frame.results) {
      rare?._published(entry, frame);
    } else {
      const { id = entry._publish.messages[0]?.id, timestamp, seq, duplicate } = frame;
      const result = { id, timestamp, seq, duplicate } as PublishResult;
      this._settle(entry, { kind: 'acked', results: [result] });
      this.flush();
    }
  }

  /** Send what may go. */
  flush(): void {
    const { _peer, _options, _due } = this._machine;
    if (!_peer || this._paused) return;
    const { rate, burst } = _peer;
    for (const entry of this._queue) {
      const { messages, size } = entry._publish;
      const count = messages.length;
      if (rate && this._budget < Math.min(count, burst) * 1000) break;
      if (!this.hasRoom(count, size, this._flight)) break;
      // A batch beyond the budget is granted in part: there is nothing left there then.
      if (rate) this._budget = Math.max(this._budget - count * 1000, (burst - rate) * 1000);
      this._send(entry);
    }
    if (rate && this._budget < burst * 1000 && !this._machine._runs('pace')) {
      _due.pace = _options.paceInterval;
    }
  }

  /** The session has ended: sent is unknown, unsent is refused. */
  settleAll(unsent: Rejected): void {
    this._machine._due.pace = undefined;
    for (const entry of [...this._flight, ...this._queue]) {
      this._settle(entry, entry._sent ? { kind: 'unknown' } : unsent);
    }
  }

  // ---------------------------------------------------------------- inside

  _find(ref: string | undefined): Entry | undefined {
    for (const entry of this._flight) if (entry._ref === ref) return entry;
    return undefined;
  }

  private _send(entry: Entry): void {
    const { _publish, _ref: ref } = entry;
    const { plain, rare } = this._machine._parts;
    this._queue.delete(entry);
    this._flight.add(entry);
    entry._sent = true;
    if (plain?._publish(entry)) return;
    const [message] = _publish.messages;
    const messages = rare?._open(entry).map(([, open]) => open);
    const content = _publish.batch ? { messages } : { message };
    this._machine._send({ type: 'publish', ...content, ref });
  }

  /** Put entries back where their numbers belong: at the head, before what came later. */
  _requeue(...entries: Entry[]): void {
    for (const entry of entries) this._flight.delete(entry);
    const queue = [...this._queue, ...entries];
    this._queue = new Set(queue.sort((a, b) => a._number - b._number));
  }

  /** Settle what is not going to be sent; what was sent is unknown. */
  _giveUp(entry: Entry, code: string, message: string): void {
    const unsent: Rejected = { kind: 'rejected', code, message };
    this._settle(entry, entry._sent ? { kind: 'unknown' } : unsent);
  }

  _settle(entry: Entry, outcome: Outcome): void {
    this._queue.delete(entry);
    this._flight.delete(entry);
    this._machine._tell({ kind: 'settle', ref: entry._publish.ref, outcome });
  }
}

function loadOf(pile: ReadonlySet<Entry>): { readonly messages: number; readonly bytes: number } {
  let messages = 0;
  let bytes = 0;
  for (const { _publish } of pile) {
    messages += _publish.messages.length;
    bytes += _publish.size;
  }
  return { messages, bytes };
}
