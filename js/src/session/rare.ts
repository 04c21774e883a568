/**
 * What most sessions never do: take a refusal or an answer in several frames, send a batch, make
 * room in a full queue.
 *
 * HIP-56 H-046; PUB-3 to PUB-5.
 */

import type {
  ErrorFrame,
  Publication,
  PublishedFrame,
  PublishResult,
  SubscribedFrame,
} from '../generated/wire.js';
import type { Publish } from './events.js';
import type { Join } from './join.js';
import type { Lifecycle } from './lifecycle.js';
import type { Entry } from './outbox.js';

const RATE_LIMITED = 'rate_limited';

/** Milliseconds to pause on `rate_limited` where the server names no time. */
const PAUSE = 1_000;

/** Longest pause that a server may impose, milliseconds. */
const MAX_PAUSE = 60_000;

/** Milliseconds to wait where a server refuses a subscription for now and names no time. */
const REFUSED_FOR_NOW = 1_000;

const UNANSWERED: PublishResult = {
  error: { code: 'outcome_unknown', message: 'The server sent no result for this message.' },
};

/** The part `rare` of a session. */
export class Rare {
  constructor(private readonly _session: Lifecycle) {}

  // ---------------------------------------------------------------- errors

  /** The server refused something. */
  _error(frame: ErrorFrame): void {
    const { outbox, _peer } = this._session;
    const { code, message, topic, ref, retry_after_ms: retryAfter } = frame;
    const entry = outbox._find(ref);
    const saying = this._session._parts.presence?._saying;
    if (entry) {
      this._refused(entry, frame);
    } else if (code === RATE_LIMITED && saying?._postponed(ref)) {
      this._pause(retryAfter || PAUSE);
    } else if (saying?._refused(frame)) {
      return;
    } else if (!this._session._parts.plain?._answered(frame) && !this._refuse(frame)) {
      if (_peer && code === RATE_LIMITED) this._pause(retryAfter || PAUSE);
      this._session._tell({ kind: 'problem', code, message, topic, retryAfter });
    }
  }

  // ---------------------------------------------------------------- subscriptions

  /** An error answers a `subscribe`; false if it does not, or nobody can tell. */
  private _refuse(frame: ErrorFrame): boolean {
    const { joins, _parts } = this._session;
    const { code, message, topic } = frame;
    const ref = frame.ref ?? _parts.plain?._refusedBy(frame);
    if (ref === undefined) return false;
    const join = joins._asked.get(ref);
    if (!join) return frame.ref === undefined;
    joins._asked.delete(ref);
    join._forget();
    if (this._session._forNow(frame)) {
      this._askLater(frame.retry_after_ms);
      return true;
    }
    const refused = topic && join._patterns.includes(topic) ? [topic] : join._patterns;
    join._denied.push(...refused.map((pattern) => ({ topic: pattern, code, message })));
    this._drop(join, refused);
    if (join._patterns.length) joins._request(join);
    else joins._joined(join, [], join._denied);
    return true;
  }

  /** One frame of an answer in several: the whole answer, when it is complete. */
  _gather(join: Join, frame: SubscribedFrame, at: number): SubscribedFrame | undefined {
    const { joins, _options } = this._session;
    const before: Partial<SubscribedFrame> = join._answer ?? {};
    const history = (before.history ?? []).concat(frame.history ?? []);
    const whole = {
      ...frame,
      history,
      positions: { ...before.positions, ...frame.positions },
      truncated: (before.truncated ?? []).concat(frame.truncated ?? []),
      reset: (before.reset ?? []).concat(frame.reset ?? []),
      timestamp: before.timestamp ?? frame.timestamp,
    } as SubscribedFrame;
    join._answer = whole;
    if (!frame.more) return whole;
    // Where the connection breaks between two parts, it is gone on from there. The newest few cannot
    // be asked for like that, and by time and ids alone an answer is known to be whole only at its end.
    const piecemeal = join._cursor._counts && (join._answered || join._event.history === undefined);
    if (piecemeal && history.length > _options.heldMessages) {
      joins._admit(join, { ...whole, positions: {} }, at);
      join._answer = { ...whole, history: [], reset: [] };
    }
    return undefined;
  }

  /** Patterns were denied, for good or for now; whether any is in force. */
  _deny(join: Join): boolean {
    const { joins } = this._session;
    const denied = join._denied.filter((denial) => !this._session._forNow(denial));
    const later = new Set(join._denied.filter(this._session._forNow).map(({ topic }) => topic));
    join._denied = [];
    this._drop(
      join,
      denied.map(({ topic }) => topic),
    );
    const granted = join._patterns.filter((pattern) => !later.has(pattern));
    if (granted.length < join._patterns.length) {
      join._again = true;
      this._askLater();
      if (!granted.length) {
        join._forget();
        join._denied = denied;
        return false;
      }
      // What comes of the others by other subscriptions is going to be replayed.
      join._unrouted = true;
      joins._routes._remove(join, [...later]);
      this._session._parts.presence?._hide(join);
      join._held = join._held.filter(
        ({ topic, seq }) => seq === undefined || joins._routes._find(topic).includes(join),
      );
    }
    if (!join._quiet || denied.length) joins._joined(join, granted, denied);
    return granted.length > 0;
  }

  /** Ask again for what was refused for now. */
  _askLater(milliseconds = 0): void {
    this._session.joins._later(Math.max(REFUSED_FOR_NOW, milliseconds));
  }

  private _drop(join: Join, patterns: readonly string[]): void {
    const { joins } = this._session;
    if (!patterns.length) return;
    joins._routes._remove(join, patterns);
    const refused = new Set(patterns);
    join._patterns = join._patterns.filter((pattern) => !refused.has(pattern));
    if (!join._patterns.length) joins._remove(join);
  }

  // ---------------------------------------------------------------- publishes

  /**
   * What the policy gives up for one more publish: an unsent one of its key, or the oldest.
   *
   * @returns The number of the one of its key: at the end of the queue, the newest of a key that
   *   changes faster than the queue moves would never be sent.
   */
  _makeRoom({ ref, messages, size, policy, key }: Publish): number | undefined {
    const { outbox } = this._session;
    const unsent = (): Entry[] => [...outbox._queue].filter(({ _sent }) => !_sent);
    if (policy === 'latest' && key !== undefined) {
      const same = unsent().find((entry) => !entry._tried && entry._publish.key === key);
      if (same) outbox._giveUp(same, 'superseded', `Publish ${ref} took its place.`);
      return same?._number;
    }
    while (policy === 'drop_oldest' && !outbox.hasRoom(messages.length, size)) {
      const [oldest] = unsent();
      if (!oldest) break;
      outbox._giveUp(oldest, 'dropped', 'A newer publish needed its place in the queue.');
    }
    return undefined;
  }

  /** Slots without an answer, each with its message. */
  _open(entry: Entry): [slot: number, message: Publication][] {
    const { messages } = entry._publish;
    entry._results ??= messages.map(() => undefined);
    const { _results } = entry;
    return [...messages.entries()].filter(([slot]) => !_results[slot]);
  }

  /** The server answered each message of a publish. */
  _published(entry: Entry, frame: PublishedFrame): void {
    const results = this._resultsOf(frame);
    const pauses = this._open(entry).map(([slot, message], n) =>
      this._note(entry, slot, message, results[n] ?? UNANSWERED),
    );
    this._advance(entry, Math.max(0, ...pauses));
  }

  /** What the server says became of each message. */
  _resultsOf(frame: PublishedFrame): readonly PublishResult[] {
    const { results, id, timestamp, seq, duplicate } = frame;
    return results ?? [{ id, timestamp, seq, duplicate } as PublishResult];
  }

  /** Note the result of one message; the milliseconds to pause, if it was refused for now. */
  _note(entry: Entry, slot: number, { id }: Publication, result: PublishResult): number {
    const { error } = result;
    if (error?.code === RATE_LIMITED) return error.retry_after_ms || PAUSE;
    const done = error ? result : ({ ...result, id: result.id ?? id } as PublishResult);
    if (entry._results) entry._results[slot] = done;
    return 0;
  }

  /** Settle what is answered as a whole; else send the rest again. */
  _advance(entry: Entry, pause: number): void {
    const { outbox } = this._session;
    if (pause) this._pause(pause);
    const { _results = [undefined] } = entry;
    const results = _results.filter((result) => result !== undefined);
    if (results.length < _results.length) {
      entry._sent = entry._doubted === true || results.length > 0;
      entry._tried = true;
      outbox._requeue(entry);
    } else {
      outbox._settle(entry, { kind: 'acked', results });
    }
    outbox.flush();
  }

  /** Send nothing for so long. */
  _pause(milliseconds: number): void {
    const { outbox, _due, _peer } = this._session;
    const { rate = 0, burst = 0 } = _peer ?? {};
    outbox._paused = true;
    // Below nothing by the tenth that is kept back, else the server is at its limit for ever.
    outbox._budget = Math.min(outbox._budget, (burst - rate) * 1000);
    _due.pace = Math.min(MAX_PAUSE, milliseconds);
  }

  private _refused(entry: Entry, frame: ErrorFrame): void {
    const { code, message, remedy, topic, retry_after_ms: retryAfter } = frame;
    if (code === RATE_LIMITED) {
      this._advance(entry, retryAfter || PAUSE);
    } else {
      const { outbox } = this._session;
      outbox._settle(entry, { kind: 'rejected', code, message, remedy, topic, retryAfter });
      outbox.flush();
    }
  }
}
