/**
 * Where a subscription stands: enough memory to replay without a loss that is silent or a repeat.
 *
 * `SeqCursor` counts by `seq`, the position that a server gives each message of a topic, and says
 * where something is missing, in its place in the order (REC-1, REC-2, REC-3).
 */

import type { Envelope, SubscribedFrame } from '../generated/wire.js';
import type { SessionOptions } from '../settings/session.js';
import type { Gap } from './ports.js';
import type { Subscribe } from './requests.js';

/** What a live message is to a cursor. */
export type Verdict = 'known' | 'new' | 'jump';

/** A message that is new, or a gap. */
export type Step = Envelope | Gap;

/** What a cursor of another kind goes on from. */
export interface Standing {
  /** Time of the newest message, Unix milliseconds. */
  readonly newest: number | undefined;
  /** Topics of which something is remembered. */
  readonly topics: readonly string[];
}

/** Makes cursors that fit the peer. */
export interface Cursors {
  /** They count by `seq`. */
  readonly counts: boolean;
  make(request: Subscribe, options: SessionOptions): Cursor;
}

/** What a replay has to begin after: `since` (Unix milliseconds), or more exactly `after`. */
export interface Request {
  readonly since: number | undefined;
  readonly after?: Readonly<Record<string, number>> | undefined;
}

/** The answer to a `subscribe`, with the live messages that overtook it. */
export interface Replay extends SubscribedFrame {
  /** When the answer came, by our clock. */
  readonly at: number;
  /** Live messages that came after the request, in order. Of a part of an answer those that go
   * before something of it are taken, and are known from then on. */
  readonly held: readonly Envelope[];
  /** No answer came before; holes between replayed messages are not a loss of ours then. */
  readonly first: boolean;
  /** At most so many a topic were asked for; only of a first replay. */
  readonly limit: number | undefined;
  /** No held message was thrown away. */
  readonly whole: boolean;
}

/** Where a subscription stands. */
export interface Cursor {
  /** It counts by `seq`. */
  readonly counts: boolean;
  /** Marks from which a request was made because of a jump, by topic; a jump that is left there is
   * a gap. */
  readonly healed: Map<string, number>;
  /** Where it stands, for a cursor of another kind. */
  standing(): Standing;
  /** What to ask for. */
  request(): Request;
  /** Whether a live message is known, next, or beyond a hole (then nothing changes). */
  admit(message: Envelope): Verdict;
  /**
   * Admit an answer with what was held: what is new and what is missing, in order.
   *
   * @returns Held messages beyond a hole that another request may close, unless one was made for
   *   that.
   */
  replay(replay: Replay, steps: Step[]): Envelope[];
}

/** The newest message of a topic: its position and its time. */
interface Mark {
  _seq: number;
  _at: number;
}

/** Positions by concrete topic. */
export class SeqCursor implements Cursor {
  readonly counts = true;
  readonly healed: Map<string, number> = new Map();
  readonly marks: Map<string, Mark> = new Map();
  /** Where to begin, Unix milliseconds; undefined for the time of the first `subscribed`. */
  private _since: number | undefined;
  /** The positions that were named in the last request. */
  private _asked: ReadonlyMap<string, number> = new Map();
  /** Milliseconds by which the clocks of two nodes may differ. */
  private readonly _overlap: number;
  /** Topics whose position is kept; the one idle longest gives way. What comes of it later is said
   * to be unproven. */
  private readonly _remembered: number;
  private _forgot = false;
  /** Topics of which the answer at hand has messages of more than one log. */
  private readonly _anew = new Set<string>();

  constructor({ since, after = new Map() }: Subscribe, options: SessionOptions) {
    for (const [topic, _seq] of after) this.marks.set(topic, { _seq, _at: 0 });
    this._since = since;
    this._overlap = options.overlap;
    this._remembered = Math.max(1, options.rememberedTopics, after.size);
  }

  request(): Request {
    const after = new Map([...this.marks].map(([topic, { _seq }]) => [topic, _seq]));
    this._asked = after;
    this._anew.clear();
    return { since: this._since, after: after.size ? Object.fromEntries(after) : undefined };
  }

  admit(message: Envelope): Verdict {
    const { seq, topic } = message;
    if (seq === undefined) return 'new';
    const mark = this.marks.get(topic);
    if (!mark) {
      this._place(topic, seq, message.timestamp);
    } else if (seq <= mark._seq) {
      return 'known';
    } else if (seq > mark._seq + 1) {
      this.healed.set(topic, mark._seq);
      return 'jump';
    } else {
      mark._seq = seq;
      mark._at = message.timestamp;
      if (this.marks.size === this._remembered) {
        this.marks.delete(topic);
        this.marks.set(topic, mark);
      }
    }
    return 'new';
  }

  replay(replay: Replay, steps: Step[]): Envelope[] {
    const { history = [], first, limit, whole } = replay;
    const positions = new Map(Object.entries(replay.positions ?? {}));
    const truncated = new Set(replay.truncated);
    const began = replay.timestamp ?? replay.at;
    let { held } = replay;
    // `positions` names every topic there was, so what comes of another one is newer than this
    // subscription, whatever the clock of the node that stamped it. A part of an answer does not
    // begin it: if the rest does not come, its content is unknown.
    if (!replay.more) this._since ??= Math.max(0, began - this._overlap);
    const marks = this.marks;
    const told = new Set<string>();
    /** Topics of which something was replayed. */
    const proven = new Set<string>();

    /** Whether holes do not count: a new subscription misses nothing that had expired before. */
    const lenient = (topic: string) => first && (limit !== undefined || !this._asked.has(topic));

    /**
     * The log of a topic is at `seq`, from a message or from the server's report. Messages up to it
     * that are not here now will not come.
     *
     * @returns Whether that is news.
     */
    const stand = (
      topic: string,
      seq: number,
      time: number,
      replayed?: boolean,
      said?: boolean,
    ) => {
      const last = said ? seq : seq - 1;
      const strict = !(replayed && lenient(topic));
      // What came live goes into a hole of the answer: no log may have it any more.
      if (replayed && strict && last > (marks.get(topic)?._seq ?? -1)) live(topic, last);
      const mark = marks.get(topic);
      const fresh = !told.has(topic);
      const trimmed = fresh && truncated.has(topic);
      if (!mark) {
        if (fresh && (trimmed ? limit === undefined : this._forgot && !first && !said)) {
          steps.push(
            gap(topic, trimmed ? 'history_trimmed' : 'unproven', undefined, undefined, last),
          );
        }
        told.add(topic);
        this._place(topic, seq, time);
        return true;
      }
      if (seq <= mark._seq) return false;
      if (strict && last > mark._seq) {
        if (said && !whole) return false;
        // Both ends are of one log where it lacks something behind the position that was asked for,
        // and behind what was replayed of it: their number is known, unless the log restarted.
        const anew = this._anew.has(topic);
        const known = !anew && (trimmed || (replayed && proven.has(topic)));
        const missed = known ? last - mark._seq : undefined;
        const reason = known ? 'history_trimmed' : anew ? 'log_reset' : 'unproven';
        steps.push(gap(topic, reason, missed, mark._seq + 1, last));
      }
      mark._seq = seq;
      if (!said) mark._at = time;
      return true;
    };

    /** One message of the history, or one held. */
    const take = (message: Envelope, replayed?: boolean) => {
      const { topic, seq, timestamp } = message;
      if (seq !== undefined) {
        if (!stand(topic, seq, timestamp, replayed)) return;
        if (replayed) proven.add(topic);
      }
      steps.push(message);
    };

    /** Take what was held of a topic up to `last`, else what continues its position. */
    const live = (topic: string, last?: number) => {
      held = held.filter(
        (each) =>
          each.topic !== topic ||
          (each.seq ?? Infinity) > (last ?? (marks.get(topic)?._seq ?? 0) + 1) ||
          take(each),
      );
    };

    const pending = new Map(whole || first ? positions : []);
    const reach = (topic: string, position: number) => {
      pending.delete(topic);
      stand(topic, position, began, true, true);
    };

    for (const topic of new Set(replay.reset)) {
      this._anew.add(topic);
      const mark = marks.get(topic);
      if (mark) {
        // What came before the loss goes before the gap.
        live(topic);
        marks.delete(topic);
        steps.push(gap(topic, 'log_reset', undefined, mark._seq + 1));
        told.add(topic);
      }
    }
    for (const message of history) take(message, true);
    for (const [topic, position] of pending) {
      if (!marks.has(topic) || lenient(topic)) reach(topic, position);
    }
    const rest = replay.more ? [] : held;
    for (const [n, message] of rest.entries()) {
      const { topic, seq = 0 } = message;
      const position = pending.get(topic) ?? seq;
      if (seq > position) reach(topic, position);
      const mark = marks.get(topic)?._seq ?? seq;
      if (
        seq > mark + 1 &&
        seq - 1 > (positions.get(topic) ?? 0) &&
        this.healed.get(topic) !== mark
      ) {
        this.healed.set(topic, mark);
        return rest.slice(n);
      }
      take(message);
    }
    for (const [topic, position] of pending) reach(topic, position);
    return [];
  }

  standing(): Standing {
    const times = [...this.marks.values()].map(({ _at }) => _at);
    const newest = times.length ? times.reduce((a, b) => Math.max(a, b)) : this._since;
    return { newest, topics: [...this.marks.keys()] };
  }

  private _place(topic: string, seq: number, at: number): void {
    if (this.marks.size >= this._remembered) {
      for (const [idle, { _at }] of this.marks) {
        this.marks.delete(idle);
        this._since = Math.max(this._since ?? 0, _at);
        break;
      }
      this._forgot = true;
    }
    this.marks.set(topic, { _seq: seq, _at: at });
  }
}

/** Messages of a topic that are not there. */
export function gap(
  topic: string,
  reason: Gap['reason'],
  missed?: number,
  from?: number,
  to?: number,
): Gap {
  return { topic, from, to, missed, reason };
}

/** Whether a step of a replay is a gap. */
export function isGap(step: Step): step is Gap {
  return !('id' in step);
}

/** Cursors of a server that numbers messages. */
export const BY_SEQ: Cursors = {
  counts: true,
  make: (request, options) => new SeqCursor(request, options),
};
