/**
 * Unsettled publishes: their order, limits and rate, and which one is next when the rate is used up.
 *
 * A sent publish without an answer stays in flight, under the same limits as the queue. When the
 * connection drops, it returns to the head of the queue and is sent again under the same ids. PUB-1
 * to PUB-6.
 */

import type { ErrorFrame, Publication, PublishedFrame, PublishResult } from '../generated/wire.js';
import { RATE_LIMITED } from './events.js';
import { Fifo } from './fifo.js';
import type { Context, Outcome, OutcomePort, Peer, Publish, Rejected } from './ports.js';

/** Milliseconds to pause after `rate_limited` if the server states no time. */
const PAUSE = 1_000;

/** Maximum pause that a server can request, milliseconds. */
const MAX_PAUSE = 60_000;

/** Milliseconds without an answer from which unanswered publishes use up the budget. */
const STALL = 400;

/** The credit of the lanes if none has waited. */
const NO_CREDIT: readonly number[] = [];

/** A sent publish or update whose answer did not arrive. */
export const UNKNOWN: Outcome = { kind: 'unknown' };

/** The result of a message that is missing from the server's answer. */
const UNANSWERED: PublishResult = {
  error: { code: 'outcome_unknown', message: 'The server sent no result for this message.' },
};

/** One publish; a message has no result until it is answered. */
export class PublishState {
  /** Part of it may be published already. */
  _sent = false;
  /** It was in flight when a connection dropped: a rejection does not show its outcome. */
  _doubted = false;
  /** A publish of the same key that the server may have published before this one. */
  _newer: PublishState | undefined;
  /** The outcome of each answered message, by slot. */
  readonly _results: PublishResult[] = [];

  /**
   * @param _number Its position in the order.
   * @param _publish The publish of the program.
   * @param _ref Its `ref` in frames.
   * @param _since Total milliseconds of delay by the rate limit when it was last queued; infinite
   *   after it counted as slowed.
   */
  constructor(
    readonly _number: number,
    readonly _publish: Publish,
    readonly _ref: string,
    public _since: number,
  ) {}

  /** The slots of the messages without an answer. */
  _unanswered(): number[] {
    const open: number[] = [];
    for (let slot = 0; slot < this._publish.messages.length; slot += 1) {
      if (!this._results[slot]) open.push(slot);
    }
    return open;
  }
}

/**
 * The next publish of a queue while the rate of the client is used up.
 *
 * Publishes wait in three lanes: messages, the newest values of keys (policy `latest`), and
 * background publishes of the program, such as token streams. The lanes take turns, 4:1:1, by
 * smooth weighted round robin; a single message goes next. Within a lane, publishes keep the order
 * of the calls.
 *
 * @param credit The saved credit by lane; zero if none has waited.
 * @returns The publish, and the credit after it.
 */
function nextTurn(
  queue: readonly PublishState[],
  credit: readonly number[],
): [PublishState, readonly number[]] {
  const heads: PublishState[] = [];
  for (const entry of queue) {
    const { background, key } = entry._publish;
    heads[background ? 2 : key === undefined ? 0 : 1] ??= entry;
  }
  let all = 0;
  const then = heads.map((_, lane) => {
    const weight = lane ? 1 : 4;
    all += weight;
    // Keep the credit small, so that a single message goes next.
    return Math.min(credit[lane] ?? 0, 1) + weight;
  });
  const most = Math.max(...then.flat());
  const next = then.indexOf(most);
  then[next] = most - all;
  return [heads[next] as PublishState, then];
}

/** Publishes in the order of their numbers, with their total size. */
class PublishList extends Fifo<PublishState> {
  _messages = 0;
  _bytes = 0;

  _enqueue(entry: PublishState): void {
    this._insert(entry, ({ _number }) => _number > entry._number);
    this._count(entry._publish, 1);
  }

  override _delete(entry: PublishState): boolean {
    const found = super._delete(entry);
    if (found) this._count(entry._publish, -1);
    return found;
  }

  _byRef(ref: string | undefined): PublishState | undefined {
    return this._find(({ _ref }) => _ref === ref);
  }

  private _count({ messages, size }: Publish, sign: number): void {
    this._messages += sign * messages.length;
    this._bytes += sign * size;
  }
}

/** Unsettled publishes. */
export class Publishes {
  /** The server sent `rate_limited`: send nothing before the timer `pace` fires. */
  paused = false;
  /** Number of publishes that the server's rate delayed by a second or more. */
  slowed = 0;
  readonly _queue: PublishList = new PublishList();
  readonly _flight: PublishList = new PublishList();
  /** Those of each key of the policy `latest`, oldest first. */
  private readonly _keys = new Map<string | undefined, PublishState[]>();
  private _number = 0;
  /** Credit of the lanes while the rate is used up. */
  private _credit = NO_CREDIT;
  /** Used part of the rate, in thousandths of a message. */
  private _spent = 0;
  /** A publish was sent after the last update of presence. */
  private _sentLast = false;
  /** Milliseconds since an answer, while the server owes one. */
  private _silence = 0;
  /** Number of messages given up in flight since then. */
  private _abandoned = 0;
  /** Milliseconds of delay by the rate limit; a pause counts as a second. */
  private _held = 0;

  constructor(
    private readonly _context: Context,
    private readonly _outcomes: OutcomePort,
  ) {}

  // ---------------------------------------------------------------- queries

  /** Number of messages without an outcome. */
  get size(): number {
    return this._queue._messages + this._flight._messages;
  }

  /** Whether publishes remain if the current connection is lost. */
  get survivesDrop(): boolean {
    return this._queue._size > 0 || !!(this._context.peer?.resends && this._flight._size);
  }

  /**
   * Whether one more publish fits; an empty queue accepts a publish of any size.
   *
   * @param replaced A publish of the list whose place it takes.
   */
  hasRoom(
    { messages, size }: Publish,
    list: PublishList = this._queue,
    replaced?: Publish,
  ): boolean {
    const { sendQueueMessages, sendQueueBytes } = this._context.options;
    const held = list._messages - (replaced?.messages.length ?? 0);
    const bytes = list._bytes - (replaced?.size ?? 0);
    return !held || (held + messages.length <= sendQueueMessages && bytes + size <= sendQueueBytes);
  }

  // ---------------------------------------------------------------- from the program

  /** Add a publish to the queue, or settle it by its policy; send what the budget allows. */
  publish(publish: Publish): void {
    const { ref, policy, key } = publish;
    const { _queue: queue } = this;
    this._number += 1;
    if (policy === 'drop_oldest') this._makeRoom(publish);
    const same = this._keys.get(key) ?? [];
    const newest = same.at(-1);
    const replaced = newest?._sent ? undefined : newest;
    // At the end of the queue, a key that changes faster than the queue moves would never be sent.
    const number = replaced?._number ?? this._number;
    const entry = new PublishState(number, publish, `p${ref}`, this._held);
    if (key !== undefined) this._keys.set(key, [...same, entry]);
    if (policy === 'block' || this.hasRoom(publish, queue, replaced?._publish)) {
      if (replaced) this._supersede(replaced);
      queue._enqueue(entry);
      this.flush();
    } else {
      this._giveUp(
        entry,
        'queue_full',
        `Messages that wait to be sent: ${queue._messages}, with ${queue._bytes} bytes in all.`,
      );
    }
  }

  /** Give up publishes whose time has passed. None takes the place of another. */
  expire(refs: readonly number[]): void {
    this._abandoned += this._flight._messages;
    for (const ref of refs) {
      const name = `p${ref}`;
      const entry = this._flight._byRef(name) ?? this._queue._byRef(name);
      if (entry) this._giveUp(entry, 'timeout', 'It could not be sent in time.');
    }
    this._abandoned -= this._flight._messages;
    this.flush();
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is open: send what waits. */
  connected(): void {
    this._settleDoubted();
    this.flush();
  }

  /** The connection is lost: send publishes in flight again later. */
  lost(): void {
    this.paused = false;
    this._spent = 0;
    for (const entry of this._flight._all()) {
      entry._doubted = true;
      this._requeue(entry);
    }
    this._settleDoubted();
  }

  /** The timer `pace` fired: refill the budget. */
  paced(): void {
    const { peer, options } = this._context;
    const { paceInterval } = options;
    // The server counts publishes when it reads them: after a stall, all at once.
    const uncounted = this._flight._messages + this._abandoned;
    this._held += this.paused ? PAUSE : paceInterval;
    this.paused = false;
    this._silence = uncounted && this._silence + paceInterval;
    // A renewed token may have a lower rate.
    this._spend(0);
    const least = this._silence > STALL ? uncounted * 1000 : 0;
    this._spent = Math.max(least, this._spent - (peer as Peer).rate * paceInterval);
  }

  /**
   * Whether an update of presence may be sent now. It counts against the rate, and takes turns with
   * publishes that wait for it.
   */
  _takeTurn(): boolean {
    const left = (this._context.peer as Peer).burst * 1000 - this._spent;
    const isTheirs = !this._sentLast && left <= this._queue._messages * 1000;
    if (this.paused || isTheirs || left < 1000) return false;
    this._spend(1);
    this._sentLast = false;
    this._pace();
    return true;
  }

  /** The server sent a frame that is not a message: it reads what was sent. */
  heard(): void {
    this._silence = this._abandoned = 0;
  }

  /** The server answered; returns false if nothing is in flight under the `ref`. */
  published(frame: PublishedFrame): boolean {
    const entry = this._flight._byRef(frame.ref);
    if (!entry) return false;
    const all = frame.results ?? [frame as PublishResult];
    this._take(
      entry,
      entry._unanswered().map((slot, n) => [slot, all[n] ?? UNANSWERED]),
    );
    return true;
  }

  /** The server rejected what is in flight under the `ref`, if anything. */
  rejected(frame: ErrorFrame): void {
    const entry = this._flight._byRef(frame.ref);
    if (!entry) return;
    if (frame.code === RATE_LIMITED) {
      this._take(entry, []);
    } else {
      this._settle(entry, { ...frame, kind: 'rejected' });
      this.flush();
    }
  }

  pause(milliseconds = 0): void {
    this.paused = true;
    // With the reserved tenth: otherwise the server stays at its limit.
    this._spend(Infinity);
    this._context.timers.start('pace', Math.min(MAX_PAUSE, milliseconds || PAUSE));
  }

  /** Send what the budget allows. */
  flush(): void {
    const { peer, options } = this._context;
    if (!peer || this.paused) return;
    const { _queue: waiting } = this;
    for (let entry = waiting._first; entry; entry = waiting._first) {
      const left = peer.burst * 1000 - this._spent;
      if (left < 1000) break;
      // Publishes within the budget go in order; the lanes take turns only beyond it.
      let credit = NO_CREDIT;
      if (left < waiting._messages * 1000)
        // With the policy `block`, the queue has no bound, and a search takes its time.
        [entry, credit] = nextTurn(waiting._all(options.sendQueueMessages), this._credit);
      const count = entry._publish.messages.length;
      if (left < Math.min(count, peer.burst) * 1000) break;
      if (!this.hasRoom(entry._publish, this._flight)) break;
      this._spend(count);
      this._credit = credit;
      this._send(entry);
    }
    this._pace();
  }

  /** Settle sent publishes as unknown, and unsent ones with a rejection, if given. */
  settleAll(unsent?: Rejected): void {
    for (const entry of this._queue._all()) {
      const outcome = entry._sent ? UNKNOWN : unsent;
      if (outcome) this._settle(entry, outcome);
    }
  }

  // ---------------------------------------------------------------- inside

  /** Drop the oldest unsent publishes until another one fits. */
  private _makeRoom(publish: Publish): void {
    while (!this.hasRoom(publish)) {
      const oldest = this._queue._find((one) => !one._sent);
      if (!oldest) break;
      this._giveUp(oldest, 'dropped', 'A newer publish needed its place in the queue.');
    }
  }

  private _spend(count: number): void {
    // The server grants a batch beyond the budget in part, and then has no budget left.
    this._spent = Math.min(this._spent + count * 1000, (this._context.peer as Peer).rate * 1000);
  }

  /** Refill the budget after a while, unless that is scheduled. */
  private _pace(): void {
    const { peer, options, timers } = this._context;
    if (this._spent && peer?.rate && !timers.has('pace'))
      timers.start('pace', options.paceInterval);
  }

  private _send(entry: PublishState): void {
    const { _publish, _ref: ref } = entry;
    const { peer, ports } = this._context;
    this._queue._delete(entry);
    this._flight._enqueue(entry);
    entry._sent = this._sentLast = true;
    if (this._held - entry._since >= PAUSE) {
      this.slowed += 1;
      entry._since = Infinity;
    }
    const content = _publish.batch
      ? { messages: entry._unanswered().map((slot) => _publish.messages[slot] as Publication) }
      : { message: _publish.messages[0] };
    ports.send({ type: 'publish', ...content, ref });
    if (peer?.acks) return;
    const results = _publish.messages.map(({ id }) => ({ id }) as PublishResult);
    this._settle(entry, { kind: 'acked', results });
  }

  /**
   * Take the results of messages in flight, by slot. When all of a publish is answered, settle it;
   * send messages again that the rate rejected.
   *
   * @param more The server will answer other messages of the publish.
   */
  _take(
    entry: PublishState,
    answers: readonly (readonly [slot: number, result: PublishResult])[],
    more?: boolean,
  ): void {
    const { _publish, _results: results } = entry;
    let pause = 0;
    for (const [slot, result] of answers) {
      const { error } = result;
      if (error?.code === RATE_LIMITED) {
        pause = Math.max(pause, error.retry_after_ms || PAUSE);
      } else {
        const { id } = _publish.messages[slot] as Publication;
        results[slot] = error || result.id ? result : ({ ...result, id } as PublishResult);
      }
    }
    if (pause) this.pause(pause);
    if (more) return;
    const left = entry._unanswered().length;
    if (left) {
      entry._sent = entry._doubted || left < _publish.messages.length;
      const newest = this._keys.get(_publish.key)?.at(-1);
      const newer = newest === entry ? entry._newer : newest;
      if (newer && left === _publish.messages.length) this._supersede(entry);
      else this._requeue(entry);
    } else {
      this._settle(entry, { kind: 'acked', results });
    }
    this.flush();
  }

  /** Sent publishes become unknown if the peer could publish them twice. */
  private _settleDoubted(): void {
    const { peer } = this._context;
    if (peer && !peer.resends) this.settleAll();
  }

  /** Return an entry to its position: at the head, before newer ones. */
  private _requeue(entry: PublishState): void {
    entry._since = Math.max(entry._since, this._held);
    this._flight._delete(entry);
    this._queue._enqueue(entry);
  }

  private _supersede(entry: PublishState): void {
    this._giveUp(entry, 'superseded', 'A newer message with the same key took its place.');
  }

  /** Settle a publish that will not be sent; a sent one is unknown. */
  private _giveUp(entry: PublishState, code: string, message: string): void {
    const unsent: Rejected = { kind: 'rejected', code, message };
    this._settle(entry, entry._sent ? UNKNOWN : unsent);
  }

  private _settle(entry: PublishState, outcome: Outcome): void {
    const { key, ref } = entry._publish;
    if (!this._flight._delete(entry)) this._queue._delete(entry);
    const same = this._keys.get(key);
    same?.splice(same.indexOf(entry), 1);
    if (!same?.length) this._keys.delete(key);
    else if (outcome.kind !== 'rejected') {
      for (const other of same) if (other._number < entry._number) other._newer = entry;
    }
    this._outcomes.settle(ref, outcome);
  }
}
