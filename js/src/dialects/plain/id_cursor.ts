/**
 * The position of a subscription on a peer that implements only HIP-56.
 *
 * The cursor requests messages from before its mark, and drops those with known ids.
 */

import type { Gap } from '../../gap.js';
import type { Envelope } from '../../generated/wire.js';
import type { Cursor, Replay, Request, Step, Verdict } from '../../session/cursor.js';
import type { Subscribe } from '../../session/ports.js';
import type { SessionOptions } from '../../settings/session.js';

/** The remembered part of a message. */
interface Trace {
  /** Its time, Unix milliseconds; 0 if the peer did not state it. */
  readonly _at: number;
  /** End of its retention, if known. */
  readonly _until: number | undefined;
  /** It was replayed, but not requested by the program; it is new if it arrives live. */
  readonly _passed: boolean;
}

/**
 * One mark for the subscription, and the ids near it, for peers without `seq` (REC-1, H-043).
 *
 * Only ids identify known messages. Messages are never dropped for their age, because the clocks of
 * nodes differ. So the first request also begins before `since`: messages in its answer that the
 * program did not request are remembered, and a later answer shows which are new.
 */
export class IdCursor implements Cursor {
  readonly usesSeq = false;
  readonly retried: Map<string, number> = new Map();
  /** Start of the replay, Unix milliseconds. */
  private readonly _start: number | undefined;
  /** The peer does not support positions: each topic with one is reported as unproven. */
  private readonly _after: NonNullable<Subscribe['after']>;
  /** Milliseconds before the mark at which a replay begins. */
  private readonly _overlap: number;
  /** Maximum ids per topic. */
  private readonly _ids: number;
  /** Maximum topics with ids; the one idle longest is dropped. */
  private readonly _kept: number;
  private _newest: number | undefined;
  private _began: number | undefined;
  /** Since the last replay, a live message was older than the start of the next one. */
  private _late = false;
  private readonly _near = new Map<string, Map<string, Trace>>();

  /** @param _history Messages that the peer is assumed to retain per topic. */
  constructor(
    { since, after = new Map() }: Subscribe,
    { overlap, rememberedIds, rememberedTopics }: SessionOptions,
    private readonly _history: number,
  ) {
    this._start = since;
    this._after = after;
    this._overlap = overlap;
    this._ids = rememberedIds;
    this._kept = rememberedTopics;
  }

  moved(): Pick<Subscribe, 'since' | 'after'> {
    const after = new Map(this._after);
    for (const topic of this._near.keys()) after.set(topic, undefined);
    return { since: this.newest, after };
  }

  request(): Request {
    const mark = this.newest;
    return { since: mark === undefined ? undefined : Math.max(0, mark - this._overlap) };
  }

  /** Time of the newest message, but at least the start, Unix milliseconds. */
  get newest(): number | undefined {
    if (this._newest === undefined) return this._start ?? this._began;
    return Math.max(this._newest, this._start ?? 0);
  }

  admit(message: Envelope): Verdict {
    if (this._find(message)?._passed === false) return 'known';
    this._remember(message);
    return 'new';
  }

  /**
   * Process an answer and the held messages as one batch.
   *
   * First the known ids are dropped, then the mark moves: moving it for each message would forget
   * ids that the same batch repeats.
   */
  replay(replay: Replay, steps: Step[]): Envelope[] {
    const { _answer: answer, held } = replay;
    const { history, timestamp, _first: first } = answer;
    const passed = first ? this._passed(replay) : new Set<string>();
    for (const [topic, seq] of first ? this._after : []) {
      if (seq !== undefined) steps.push(gap(topic));
    }
    if (answer._limit === undefined) steps.push(...this._holes(replay, passed));
    const fresh = new Map<string, Envelope>();
    for (const message of [...history, ...held]) {
      const key = keyOf(message);
      if (passed.has(key)) this._remember(message, true);
      else if (!this._find(message)) fresh.set(key, message);
    }
    for (const message of fresh.values()) {
      this._remember(message);
      steps.push(message);
    }
    this._late = false;
    if (first) {
      // Without messages, the mark is the start, by the best available clock. The time of this
      // machine is only used until a message shows the server's time, which may be earlier.
      if (timestamp === undefined) this._began = answer._at;
      else this._newest = Math.max(this._newest ?? 0, timestamp);
    }
    return [];
  }

  /**
   * The keys of messages of a first answer that the program did not request, and that did not also
   * arrive live.
   *
   * A message without a time is assumed to be requested.
   */
  private _passed({ _answer: { history, _limit: limit }, held }: Replay): Set<string> {
    const start = this._start ?? 0;
    const after = history.filter(({ timestamp }) => !timestamp || timestamp > start);
    const requested = limit === undefined ? after : newestOfEach(after, limit);
    const passed = new Set(history.map(keyOf));
    for (const message of [...requested, ...held]) passed.delete(keyOf(message));
    return passed;
  }

  /** Gaps of topics whose replay may not be complete. */
  private _holes(
    { _answer: { history, truncated, _at }, whole }: Replay,
    passed: ReadonlySet<string>,
  ): Step[] {
    const { since = 0 } = this.request();
    const proven = new Set<string>();
    const counts = new Map<string, number>();
    for (const message of history) {
      const { topic } = message;
      // If held messages were dropped, the log may have lost them since.
      const isBefore = whole && passed.has(keyOf(message));
      if (isBefore || this._find(message)) proven.add(topic);
      if (!isBefore) counts.set(topic, (counts.get(topic) ?? 0) + 1);
    }
    const holes: Step[] = [];
    for (const topic of new Set([...this._near.keys(), ...counts.keys(), ...truncated])) {
      const isTrimmed = truncated.includes(topic);
      const mayMiss =
        isTrimmed || (counts.get(topic) ?? 0) >= this._history || this._expects(topic, since, _at);
      if (this._late || (mayMiss && !proven.has(topic))) {
        holes.push(gap(topic, isTrimmed));
      }
    }
    return holes;
  }

  /** Whether a replay must contain remembered messages. */
  private _expects(topic: string, since: number, now: number): boolean {
    for (const { _at, _until } of this._near.get(topic)?.values() ?? []) {
      if (_at > since && (_until === undefined || now < _until)) return true;
    }
    return false;
  }

  private _find({ topic, id }: Envelope): Trace | undefined {
    return this._near.get(topic)?.get(id);
  }

  private _remember(message: Envelope, _passed = false): void {
    const { topic, timestamp: _at, ttl } = message;
    const near = this._near.get(topic) ?? new Map<string, Trace>();
    this._near.delete(topic);
    this._near.set(topic, near);
    const [idle] = this._near.keys();
    if (this._near.size > this._kept) this._near.delete(idle as string);
    if (this._newest === undefined || _at > this._newest) this._newest = _at;
    const edge = Math.max(this._newest, this._start ?? 0) - this._overlap;
    // Clocks differ by more than `overlap`: a replay may not contain others like it.
    if (_at && _at < edge) this._late = true;
    for (const [id, oldest] of near) {
      if ((!oldest._at || oldest._at >= edge) && near.size < this._ids) break;
      near.delete(id);
    }
    const _until = ttl === undefined ? undefined : _at + ttl * 1000;
    near.set(message.id, { _at, _until, _passed });
  }
}

function keyOf({ topic, id }: Envelope): string {
  return `${topic.length} ${topic}${id}`;
}

function newestOfEach(history: readonly Envelope[], limit: number): Envelope[] {
  const left = new Map<string, number>();
  return [...history].reverse().filter(({ topic }) => {
    const n = left.get(topic) ?? limit;
    left.set(topic, n - 1);
    return n > 0;
  });
}

/** Missing messages, of which neither the positions nor the number are known. */
function gap(topic: string, isTrimmed?: boolean): Gap {
  const reason = isTrimmed ? 'history_trimmed' : 'unproven';
  return { topic, from: undefined, to: undefined, missed: undefined, reason };
}
