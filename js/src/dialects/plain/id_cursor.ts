/**
 * The position of a subscription on a peer that implements only HIP-56.
 *
 * The cursor requests messages from before its mark, and drops those with known ids.
 */

import type { Envelope } from '../../generated/wire.js';
import {
  type Cursor,
  gap,
  type Replay,
  type Request,
  type Standing,
  type Step,
  type Verdict,
} from '../../session/cursor.js';
import type { Subscribe } from '../../session/requests.js';
import type { SessionOptions } from '../../settings/session.js';

/** The remembered part of a message: its time, and the end of its retention, if known. */
interface Trace {
  readonly at: number;
  readonly until: number | undefined;
}

/**
 * One mark for the subscription, and the ids near it, for peers without `seq` (REC-1, H-043).
 *
 * Only ids identify known messages. Messages are never dropped for their age, because the clocks of
 * nodes differ.
 */
export class IdCursor implements Cursor {
  readonly counts = false;
  readonly healed: Map<string, number> = new Map();
  /** Start of the replay, Unix milliseconds. */
  private readonly _start: number | undefined;
  /** The peer does not support positions: each topic in it is reported as unproven. */
  private readonly _unproven: readonly string[];
  /** Milliseconds before the newest message at which a replay begins. */
  private readonly _overlap: number;
  /** Maximum ids per topic. */
  private readonly _ids: number;
  /** Maximum topics with ids; the one idle longest is dropped. */
  private readonly _kept: number;
  private _newest: number | undefined;
  private _began: number | undefined;
  private readonly _near = new Map<string, Map<string, Trace>>();

  /** @param _history Messages that the peer is assumed to retain per topic. */
  constructor(
    { since, after = new Map() }: Subscribe,
    { overlap, rememberedIds, rememberedTopics }: SessionOptions,
    private readonly _history: number,
  ) {
    this._start = since;
    this._unproven = [...after.keys()];
    this._overlap = overlap;
    this._ids = Math.max(1, rememberedIds);
    this._kept = Math.max(1, rememberedTopics);
  }

  standing(): Standing {
    const newest = this._newest ?? this._began ?? this._start;
    return { newest, topics: [...this._near.keys()] };
  }

  request(): Request {
    const newest = this._newest ?? this._began;
    if (newest === undefined) return { since: this._start };
    return { since: Math.max(0, newest - this._overlap, this._start ?? 0) };
  }

  admit(message: Envelope): Verdict {
    if (this._near.get(message.topic)?.has(message.id)) return 'known';
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
    const { since } = this.request();
    const { history: replayed = [], limit } = replay;
    const history = limit === undefined ? replayed : newestOfEach(replayed, limit);
    if (replay.first) {
      for (const topic of this._unproven) steps.push(gap(topic, 'unproven'));
    }
    if (limit === undefined) {
      steps.push(...this._holes(replay, since ?? 0));
    }
    const fresh = new Map<string, Envelope>();
    for (const message of [...history, ...replay.held]) {
      const key = `${message.topic.length} ${message.topic}${message.id}`;
      if (!this._near.get(message.topic)?.has(message.id) && !fresh.has(key)) {
        fresh.set(key, message);
      }
    }
    for (const message of fresh.values()) {
      this._remember(message);
      steps.push(message);
    }
    if (replay.first) this._begin(replay);
    return [];
  }

  /**
   * The mark of a subscription without messages: its start, by the best available clock.
   *
   * The time of this machine is only used until a message shows the server's time, which may be
   * earlier.
   */
  private _begin(replay: Replay): void {
    if (replay.timestamp === undefined) this._began = replay.at;
    else this._newest = Math.max(this._newest ?? 0, replay.timestamp);
  }

  private _holes(replay: Replay, since: number): Step[] {
    const proven = new Set<string>();
    const counts = new Map<string, number>();
    const truncated = new Set(replay.truncated);
    for (const { topic, id } of replay.history ?? []) {
      counts.set(topic, (counts.get(topic) ?? 0) + 1);
      if (this._near.get(topic)?.has(id)) proven.add(topic);
    }
    const holes: Step[] = [];
    for (const topic of new Set([...this._near.keys(), ...counts.keys(), ...truncated])) {
      if (truncated.has(topic)) {
        holes.push(gap(topic, 'history_trimmed'));
      } else if (
        !proven.has(topic) &&
        ((counts.get(topic) ?? 0) >= this._history || this._expects(topic, since, replay.at))
      ) {
        holes.push(gap(topic, 'unproven'));
      }
    }
    return holes;
  }

  /** Whether a replay must contain remembered messages. */
  private _expects(topic: string, since: number, now: number): boolean {
    for (const { at, until } of this._near.get(topic)?.values() ?? []) {
      if (at > since && (until === undefined || now < until)) return true;
    }
    return false;
  }

  private _remember(message: Envelope): void {
    const { topic, timestamp: at, ttl } = message;
    let near = this._near.get(topic);
    if (near) {
      this._near.delete(topic);
    } else {
      if (this._near.size >= this._kept) {
        for (const idle of this._near.keys()) {
          this._near.delete(idle);
          break;
        }
      }
      near = new Map();
    }
    this._near.set(topic, near);
    if (this._newest === undefined || at > this._newest) this._newest = at;
    const edge = this._newest - this._overlap;
    for (const [id, oldest] of near) {
      if (oldest.at >= edge && near.size < this._ids) break;
      near.delete(id);
    }
    near.set(message.id, { at, until: ttl === undefined ? undefined : at + ttl * 1000 });
  }
}

function newestOfEach(history: readonly Envelope[], limit: number): Envelope[] {
  const left = new Map<string, number>();
  return [...history]
    .reverse()
    .filter(({ topic }) => {
      const n = left.get(topic) ?? limit;
      left.set(topic, n - 1);
      return n > 0;
    })
    .reverse();
}
