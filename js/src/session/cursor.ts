/**
 * The position of a subscription, for replays without silent losses or repeats.
 *
 * `SeqCursor` uses `seq`, the position that a server assigns to each message of a topic, and
 * reports missing messages at their place in the order (REC-1, REC-2, REC-3).
 */

import type { Gap } from '../gap.js';
import type { Envelope, SubscribedFrame } from '../generated/wire.js';
import type { SessionOptions } from '../settings/session.js';
import type { Subscribe } from './ports.js';

/** The relation of a live message to a cursor. */
export type Verdict = 'known' | 'new' | 'jump';

/** A new message, or a gap. */
export type Step = Envelope | Gap;

/** Creates the cursor of a subscription to a peer without `seq`; undefined for another peer. */
export type Cursors = (request: Subscribe, options: SessionOptions) => Cursor | undefined;

/** Start of a replay: after `since` (Unix milliseconds), or more exactly `after` positions. */
export interface Request {
  readonly since: number | undefined;
  readonly after?: Readonly<Record<string, number>> | undefined;
}

/** The answer to a `subscribe`, from one frame or several. */
export interface Answer extends Required<Omit<SubscribedFrame, 'type' | 'topics' | 'timestamp'>> {
  readonly timestamp?: number;
  /** When the last part arrived, by this machine's clock. */
  readonly _at: number;
  /** It is the first answer; holes between replayed messages are then not a loss. */
  readonly _first: boolean;
  /** Requested maximum per topic; only of a first replay. */
  readonly _limit: number | undefined;
}

/** The answer to an open request as far as it has arrived, and the live messages before it. */
export class Replay {
  /** Empty until a frame of it arrives. */
  _answer: Answer = {} as Answer;
  /** Number of dropped messages without a position, by topic. */
  readonly lost: Map<string, number> = new Map();
  /** No held message was dropped. */
  whole = true;

  /**
   * @param held Live messages received after the request, in order. Those that precede a message of
   *   a partial answer are taken.
   */
  constructor(public held: Envelope[] = []) {}
}

/** The position of a subscription. */
export interface Cursor {
  readonly usesSeq: boolean;
  /**
   * Positions after which messages were missing, by topic. They were requested again once; if they
   * are still missing, they are a gap.
   */
  readonly retried: Map<string, number>;
  /** The start of the next request. */
  request(): Request;
  /** The start on another peer, where the positions of this one are not valid. */
  moved(): Pick<Subscribe, 'since' | 'after'>;
  /** Whether a live message is known, new, or beyond a hole (then the position stays). */
  admit(message: Envelope): Verdict;
  /**
   * Process an answer and the held messages: new messages and gaps, in order.
   *
   * @returns Held messages after a hole that another request may fill, unless one was made for it.
   */
  replay(replay: Replay, steps: Step[]): Envelope[];
}

/** Position and time of the newest message of a topic. */
interface Mark {
  _seq: number;
  _at: number;
}

/** Positions by concrete topic. */
export class SeqCursor implements Cursor {
  readonly usesSeq = true;
  readonly retried: Map<string, number> = new Map();
  /** Undefined: the peer has not stated a position, or has lost the log. */
  readonly marks: Map<string, Mark | undefined> = new Map();
  /** Start, Unix milliseconds; undefined for the time of the first `subscribed`. */
  private _since: number | undefined;
  private _requested: ReadonlyMap<string, number> = new Map();
  /** Milliseconds by which the clocks of two nodes may differ. */
  private readonly _overlap: number;
  /**
   * Maximum topics in memory; above it, the one idle longest is dropped, and its later
   * messages are reported as unproven.
   */
  private readonly _remembered: number;
  private _hasDropped = false;
  /** Milliseconds whose messages another node has to replay again: a part may end within one. */
  private _behind = 0;
  /** Topics of which the current answer has messages. */
  private readonly _proven = new Set<string>();
  /** Topics of which the current answer has messages of more than one log. */
  private readonly _restarted = new Set<string>();

  constructor({ since, after = new Map() }: Subscribe, options: SessionOptions) {
    for (const [topic, _seq] of after)
      this.marks.set(topic, _seq === undefined ? _seq : { _seq, _at: 0 });
    this._since = since;
    this._overlap = options.overlap;
    this._remembered = options.rememberedTopics;
  }

  request(): Request {
    const after = new Map<string, number>();
    for (const [topic, mark] of this.marks) {
      if (mark) after.set(topic, mark._seq);
    }
    this._requested = after;
    this._proven.clear();
    this._restarted.clear();
    return { since: this._since, after: after.size ? Object.fromEntries(after) : undefined };
  }

  admit(message: Envelope): Verdict {
    const { seq, topic, timestamp } = message;
    if (seq === undefined) return 'new';
    const mark = this.marks.get(topic);
    if (mark && seq <= mark._seq) return 'known';
    if (mark && seq > mark._seq + 1) {
      this.retried.set(topic, mark._seq);
      return 'jump';
    }
    if (mark && this.marks.size < this._remembered) {
      mark._seq = seq;
      mark._at = timestamp;
    } else {
      this._setMark(topic, seq, timestamp);
    }
    return 'new';
  }

  replay(replay: Replay, steps: Step[]): Envelope[] {
    const { _answer: answer, whole } = replay;
    const { history, positions, _first: first, _limit: limit } = answer;
    const truncated = new Set(answer.truncated);
    const began = answer.timestamp ?? answer._at;
    this._behind = answer.more ? 1 : 0;
    // `positions` names every existing topic, so messages of other topics are newer than this
    // subscription, regardless of the node's clock. A partial answer does not prove this, because
    // the rest may not arrive.
    if (!answer.more) this._since ??= Math.max(0, began - this._overlap);
    const marks = this.marks;

    /**
     * The log of a topic is at `seq`, by a message or the server's report. Messages up to it that
     * have not arrived are missing.
     *
     * @returns Whether the position is new.
     */
    const advance = (topic: string, seq: number, time: number, stated?: boolean) => {
      const last = stated ? seq : seq - 1;
      // A new subscription does not miss messages that expired before it.
      const strict = !first || (limit === undefined && this._requested.has(topic));
      // Fill a hole of the answer with live messages: the log may no longer have them.
      if (strict && last > (marks.get(topic)?._seq ?? -1)) takeHeld(topic, last);
      const mark = marks.get(topic);
      const restarted = this._restarted.has(topic);
      const trimmed = truncated.has(topic);
      if (!mark) {
        // The gap of a log that restarted is reported already.
        const unproven = this._hasDropped && !marks.has(topic) && !first && !stated;
        if (!restarted && (trimmed ? limit === undefined : unproven)) {
          steps.push(gap(topic, trimmed ? 'history_trimmed' : 'unproven', undefined, last));
        }
        this._setMark(topic, seq, time);
        return true;
      }
      if (seq <= mark._seq) {
        mark._at ||= time; // the peer has confirmed a position of the program
        return false;
      }
      if (strict && last > mark._seq) {
        if (stated && !whole) return false;
        // Both ends are in one log if it misses messages after the requested position or after
        // replayed ones: their number is known, unless the log restarted. Any log begins at a
        // position above the time of all earlier messages, in microseconds, and 1,000 above all
        // earlier positions.
        const known = !restarted && (trimmed || this._proven.has(topic));
        const least = Math.max((mark._at + 1) * 1_000, mark._seq + 1_000);
        const leapt = mark._at && seq >= least;
        const reason = known ? 'history_trimmed' : restarted || leapt ? 'log_reset' : 'unproven';
        const missed = known ? last - mark._seq : undefined;
        steps.push(gap(topic, reason, mark._seq + 1, last, missed));
      }
      mark._seq = seq;
      mark._at = time;
      return true;
    };

    /** Process one message of the history, or one held. */
    const take = (message: Envelope, replayed?: boolean) => {
      const { topic, seq, timestamp } = message;
      if (seq !== undefined) {
        if (!advance(topic, seq, timestamp)) return;
        if (replayed) this._proven.add(topic);
      }
      steps.push(message);
    };

    /** Take the held messages of a topic up to `last`, or those that continue its position. */
    const takeHeld = (topic: string, last?: number) => {
      replay.held = replay.held.filter(
        (each) =>
          each.topic !== topic ||
          (each.seq ?? Infinity) > (last ?? (marks.get(topic) as Mark)._seq + 1) ||
          take(each),
      );
    };

    for (const topic of answer.reset) {
      this._restarted.add(topic);
      const mark = marks.get(topic);
      if (mark) {
        // Messages from before the loss precede the gap.
        takeHeld(topic);
        marks.set(topic, undefined);
        steps.push(gap(topic, 'log_reset', mark._seq + 1));
      }
    }
    for (const message of history) take(message, true);
    if (answer.more) return [];
    // Messages up to these positions that have not arrived are missing.
    for (const [topic, position] of Object.entries(positions)) {
      advance(topic, position, began, true);
    }
    const { held } = replay;
    for (const [n, message] of held.entries()) {
      const { topic, seq = 0 } = message;
      const mark = marks.get(topic)?._seq ?? seq;
      if (seq > mark + 1 && this.retried.get(topic) !== mark) {
        this.retried.set(topic, mark);
        return held.slice(n);
      }
      take(message);
    }
    return [];
  }

  moved(): Pick<Subscribe, 'since' | 'after'> {
    let newest = 0;
    const after = new Map<string, number | undefined>();
    for (const [topic, { _seq, _at } = {} as Mark] of this.marks) {
      if (_at > newest) newest = _at;
      after.set(topic, _at ? undefined : _seq);
    }
    return { since: newest ? newest - this._behind : this._since, after };
  }

  private _setMark(topic: string, _seq: number, _at: number): void {
    if (!this.marks.delete(topic) && this.marks.size >= this._remembered) {
      const [idle = ''] = this.marks.keys();
      this._since = Math.max(this._since ?? 0, this.marks.get(idle)?._at ?? 0);
      this.marks.delete(idle);
      this._proven.delete(idle);
      this._hasDropped = true;
    }
    this.marks.set(topic, { _seq, _at });
  }
}

export function gap(
  topic: string,
  reason: Gap['reason'],
  from?: number,
  to?: number,
  missed?: number,
): Gap {
  return { topic, from, to, missed, reason };
}

export function isGap(step: Step): step is Gap {
  return !('id' in step);
}
