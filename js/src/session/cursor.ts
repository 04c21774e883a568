/**
 * Where a subscription stands: enough memory to replay without a loss that is silent or a repeat.
 *
 * Two kinds. `SeqCursor` counts by `seq`, the position that a server gives each message of a topic;
 * `IdCursor` serves peers that know HIP-56 and nothing more. Both say where something is missing, in
 * its place in the order.
 */

import type { Envelope } from '../generated/wire.js';

/** What a live message is to a cursor. */
export type Verdict = 'known' | 'new' | 'jump';

/** Messages of a topic that are not there; the fields are those of the effect `Gap`. */
export interface Missing {
  readonly topic: string;
  readonly from: number | undefined;
  readonly to: number | undefined;
  readonly missed: number | undefined;
  readonly reason: 'history_trimmed' | 'log_reset' | 'unproven';
}

/** A message that is new, or what is missing. */
export type Step = { readonly message: Envelope } | { readonly missing: Missing };

/** What a replay has to begin after: `since` (Unix milliseconds), or more exactly `after`. */
export interface Request {
  readonly since: number | undefined;
  readonly after: ReadonlyMap<string, number>;
}

/** The answer to a `subscribe`, with the live messages that overtook it. */
export interface Replay {
  /** What the server replayed, oldest first. */
  readonly history: readonly Envelope[];
  /** Live messages that came after the request, in order. */
  readonly held: readonly Envelope[];
  /** Newest position of each topic when the subscription began. */
  readonly positions: ReadonlyMap<string, number>;
  /** Topics whose log does not reach back to what was asked. */
  readonly truncated: ReadonlySet<string>;
  /** Topics whose log began anew. */
  readonly reset: ReadonlySet<string>;
  /** When the subscription began, by the server's clock. */
  readonly timestamp: number | undefined;
  /** When the answer came, by ours. */
  readonly at: number;
  /** No answer came before; holes between replayed messages are not a loss of ours then. */
  readonly first: boolean;
  /** At most so many a topic were asked for; only of a first replay. */
  readonly limit: number | undefined;
  /** No held message was thrown away. */
  readonly whole: boolean;
  /** Marks from which a request was made because of a jump, by topic; a jump that is left there is
   * a gap. */
  readonly healed: ReadonlyMap<string, number>;
}

/** What is new and what is missing, in order; and held messages beyond a hole that another request
 * may close, unless one was made for that. */
export interface Admitted {
  readonly steps: readonly Step[];
  readonly rest: readonly Envelope[];
}

/** Where a subscription stands. */
export interface Cursor {
  /** It counts by `seq`. */
  readonly counts: boolean;
  /** Position of the newest message of each topic. */
  readonly positions: ReadonlyMap<string, number>;
  /** Topics of which something is remembered. */
  readonly topics: readonly string[];
  /** Time of the newest message, Unix milliseconds. */
  readonly newest: number | undefined;
  /** Begin at another time than was asked for, knowing nothing. */
  begin(since: number | undefined): void;
  /** Position of the newest message of a topic; -1 if none is known. */
  position(topic: string): number;
  /** What to ask for. */
  request(): Request;
  /** Whether a live message is known, next, or beyond a hole (then nothing changes). */
  admit(message: Envelope): Verdict;
  /** Admit an answer with what was held. */
  replay(replay: Replay): Admitted;
}

/** The newest message of a topic: its position and its time. */
interface Mark {
  seq: number;
  at: number;
}

/** What a replay under way has found. */
interface Walk {
  readonly replay: Replay;
  readonly told: Set<string>;
  /** Topics of which something was replayed. */
  readonly proven: Set<string>;
  readonly steps: Step[];
}

/** Positions by concrete topic (REC-1, REC-2, REC-3). */
export class SeqCursor implements Cursor {
  readonly counts = true;
  private readonly _marks: Map<string, Mark>;
  private readonly _asked: ReadonlySet<string>;
  private readonly _remembered: number;
  private _forgot = false;

  /**
   * @param _since Where to begin, Unix milliseconds; undefined for the time of the first
   *   `subscribed`.
   * @param after Where to begin, by topic.
   * @param _overlap Milliseconds by which the clocks of two nodes may differ.
   * @param remembered Topics whose position is kept; the one idle longest gives way. What comes of
   *   it later is said to be unproven.
   */
  constructor(
    private _since: number | undefined,
    after: ReadonlyMap<string, number> | undefined,
    private readonly _overlap: number,
    remembered: number,
  ) {
    this._marks = new Map([...(after ?? [])].map(([topic, seq]) => [topic, { seq, at: 0 }]));
    this._asked = new Set(this._marks.keys());
    this._remembered = Math.max(1, remembered, this._marks.size);
  }

  get positions(): Map<string, number> {
    return new Map([...this._marks].map(([topic, { seq }]) => [topic, seq]));
  }

  get topics(): string[] {
    return [...this._marks.keys()];
  }

  get newest(): number | undefined {
    if (!this._marks.size) return this._since;
    let newest = 0;
    for (const { at } of this._marks.values()) newest = Math.max(newest, at);
    return newest;
  }

  begin(since: number | undefined): void {
    this._since = since;
    this._marks.clear();
  }

  position(topic: string): number {
    return this._marks.get(topic)?.seq ?? -1;
  }

  request(): Request {
    return { since: this._since, after: this.positions };
  }

  admit(message: Envelope): Verdict {
    const { seq, topic } = message;
    if (seq === undefined) return 'new';
    const mark = this._marks.get(topic);
    if (!mark) {
      this._place(topic, seq, message.timestamp);
      return 'new';
    }
    if (seq === mark.seq + 1) {
      mark.seq = seq;
      mark.at = message.timestamp;
      if (this._marks.size === this._remembered) {
        this._marks.delete(topic);
        this._marks.set(topic, mark);
      }
      return 'new';
    }
    return seq <= mark.seq ? 'known' : 'jump';
  }

  replay(replay: Replay): Admitted {
    if (this._since === undefined) {
      // `positions` names every topic there was, so what comes of another one is newer than this
      // subscription, whatever the clock of the node that stamped it.
      this._since = Math.max(0, (replay.timestamp ?? replay.at) - this._overlap);
    }
    const { held } = replay;
    const walk: Walk = { replay, told: new Set(), proven: new Set(), steps: [] };
    for (const topic of replay.reset) {
      const mark = this._marks.get(topic);
      if (mark) {
        this._marks.delete(topic);
        miss(walk, topic, mark.seq + 1, undefined, 'log_reset');
        walk.told.add(topic);
      }
    }
    for (const message of replay.history) this._replayed(message, walk, true);
    const pending = new Map(replay.whole || replay.first ? replay.positions : []);
    const reach = (topic: string, position: number) => {
      pending.delete(topic);
      this._reached(topic, position, walk);
    };
    const settled = [...pending].filter(
      ([topic]) => !this._marks.has(topic) || this._lenient(topic, replay),
    );
    for (const [topic, position] of settled) reach(topic, position);
    for (const [n, message] of held.entries()) {
      const { topic, seq } = message;
      if (seq !== undefined) {
        const position = pending.get(topic);
        if (position !== undefined && seq > position) reach(topic, position);
        const mark = this._marks.get(topic);
        if (
          mark &&
          seq > mark.seq + 1 &&
          seq - 1 > (replay.positions.get(topic) ?? -1) &&
          replay.healed.get(topic) !== mark.seq
        ) {
          return { steps: walk.steps, rest: held.slice(n) };
        }
      }
      this._replayed(message, walk, false);
    }
    for (const [topic, position] of [...pending]) reach(topic, position);
    return { steps: walk.steps, rest: [] };
  }

  /**
   * One message of a history, or one held.
   *
   * Holes behind a replayed message, up to the position of the log, lie in the same log: their size
   * is known.
   */
  private _replayed(message: Envelope, walk: Walk, replayed: boolean): void {
    const { topic, seq } = message;
    const { replay, told, proven } = walk;
    if (seq !== undefined) {
      const mark = this._marks.get(topic);
      if (!mark) {
        if (!told.has(topic)) {
          if (replay.truncated.has(topic) && replay.limit === undefined) {
            miss(walk, topic, undefined, seq - 1, 'history_trimmed');
          } else if (this._forgot && !replay.first) {
            miss(walk, topic, undefined, seq - 1, 'unproven');
          }
        }
        told.add(topic);
        this._place(topic, seq, message.timestamp);
      } else if (seq <= mark.seq) {
        return;
      } else {
        if (seq > mark.seq + 1 && (!replayed || !this._lenient(topic, replay))) {
          const known = replay.truncated.has(topic) || (replayed && proven.has(topic));
          hole(walk, topic, mark.seq + 1, seq - 1, known);
        }
        mark.seq = seq;
        mark.at = message.timestamp;
      }
      if (replayed) proven.add(topic);
    }
    walk.steps.push({ message });
  }

  /** The log stood at `position`: what is not here by now is not going to come. */
  private _reached(topic: string, position: number, walk: Walk): void {
    const { replay } = walk;
    const mark = this._marks.get(topic);
    if (!mark) {
      if (!replay.whole && !replay.first) return;
      const untold = replay.truncated.has(topic) && !walk.told.has(topic);
      if (untold && replay.limit === undefined) {
        miss(walk, topic, undefined, position, 'history_trimmed');
      }
      this._place(topic, position, replay.timestamp || replay.at);
    } else if (mark.seq < position) {
      if (!this._lenient(topic, replay)) {
        if (!replay.whole) return;
        const known = replay.truncated.has(topic) || walk.proven.has(topic);
        hole(walk, topic, mark.seq + 1, position, known);
      }
      mark.seq = position;
    }
  }

  /** Whether holes do not count: nobody was there to miss what had expired by then. */
  private _lenient(topic: string, replay: Replay): boolean {
    return replay.first && (replay.limit !== undefined || !this._asked.has(topic));
  }

  private _place(topic: string, seq: number, at: number): void {
    if (this._marks.size >= this._remembered) {
      for (const [idle, gone] of this._marks) {
        this._marks.delete(idle);
        this._since = Math.max(this._since ?? 0, gone.at);
        break;
      }
      this._forgot = true;
    }
    this._marks.set(topic, { seq, at });
  }
}

function miss(
  walk: Walk,
  topic: string,
  from: number | undefined,
  to: number | undefined,
  reason: Missing['reason'],
  missed?: number,
): void {
  walk.steps.push({ missing: { topic, from, to, missed, reason } });
}

function hole(walk: Walk, topic: string, from: number, to: number, known: boolean): void {
  if (known) miss(walk, topic, from, to, 'history_trimmed', to - from + 1);
  else miss(walk, topic, from, to, 'unproven');
}
