/**
 * Subscriptions inside a session: asked for, answered, routed to; each with a cursor of its own.
 *
 * HIP-56 H-042, H-043, H-046; REC-1 to REC-3, HIST-1.
 */

import { CODES } from '../generated/errors.js';
import type {
  Envelope,
  ErrorFrame,
  PresenceSnapshotFrame,
  SubscribedFrame,
  SubscribeFrame,
  UnsubscribeFrame,
} from '../generated/wire.js';
import type { SessionOptions } from '../settings/session.js';
import { compact } from '../wire/compact.js';
import { Asks } from './asks.js';
import { type Cursor, SeqCursor } from './cursor.js';
import type { Effect } from './effects.js';
import type { Subscribe } from './events.js';
import { IdCursor } from './id_cursor.js';
import { Join } from './join.js';
import type { Peer } from './peer.js';
import { type Change, KINDS, PresenceMap } from './presence.js';
import { Routes } from './routes.js';

/** Milliseconds to wait where a server refuses a subscription for now and names no time. */
const REFUSED_FOR_NOW = 1_000;

/** Longest such wait that a server may impose, milliseconds. */
const MAX_WAIT = 60_000;

/** Times that an `error` may be about a publish instead, before it is about the subscription; once
 * where it names a topic of the subscription. */
const MAX_DOUBTS = 5;

/** Codes that cannot be the answer to a `subscribe`. */
const OF_PUBLISH: ReadonlySet<string> = new Set([
  'rate_limited',
  'payload_too_large',
  'invalid_payload',
  'conflict',
  'slow_consumer',
]);

/** All subscriptions of a session. Methods append effects to `out`. */
export class Joins {
  readonly presence: PresenceMap = new PresenceMap();
  private _due: number | undefined;
  private _running: number | undefined;
  private readonly _joins = new Map<number, Join>();
  private readonly _routes = new Routes();
  private readonly _asks = new Asks();
  private _peer: Peer | undefined;

  constructor(private readonly _options: SessionOptions) {}

  // ---------------------------------------------------------------- what others may ask

  /** Position of the newest message of each topic, in order to begin there another time. */
  positions(sub: number): ReadonlyMap<string, number> {
    return this._joins.get(sub)?.cursor.positions ?? new Map();
  }

  /** Whether any subscription takes the topic. */
  wants(topic: string): boolean {
    return this._routes.find(topic).length > 0;
  }

  /** Milliseconds after which the timer `rejoin` is to fire, if it has to be started anew. */
  takeDue(): number | undefined {
    const due = this._due;
    this._due = undefined;
    return due;
  }

  // ---------------------------------------------------------------- from the user

  /** Take a subscription; ask for it if there is a connection. */
  subscribe(event: Subscribe, out: Effect[]): void {
    if (this._joins.has(event.sub) || !event.topics.length) return;
    const peer = this._peer;
    const join = new Join(event, this._newCursor(event, peer));
    this._joins.set(event.sub, join);
    this._routes.add(join);
    if (join.presence) {
      for (const [topic, members] of this.presence.complete()) {
        if (join.takes(topic)) {
          out.push(changed(join.sub, { topic, members, change: 'snapshot', member: undefined }));
        }
      }
    }
    if (peer?.incremental) this._ask(join, out);
    else if (peer) this._later(0);
  }

  /** End a subscription; tell the server of patterns that no other one has. */
  unsubscribe(sub: number, out: Effect[]): void {
    const join = this._joins.get(sub);
    if (!join) return;
    const asked = join.phase !== 'pending';
    this._remove(join);
    if (!this._peer || !asked) return;
    let freed = join.patterns;
    if (this._peer.incremental) {
      freed = freed.filter((pattern) => !this._hasPattern(pattern));
    } else if (this._joins.size) {
      this._later(0);
      return;
    }
    if (freed.length) {
      const next = this._asks.nextRef('u');
      const ref = this._peer.ref ? next : undefined;
      const topics = [...freed];
      const frame = compact<UnsubscribeFrame>({ type: 'unsubscribe', topics, ref });
      out.push({ kind: 'send', frame });
    }
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is there: ask for every subscription, each from where it stands. */
  connected(peer: Peer, out: Effect[]): void {
    this._peer = peer;
    for (const join of [...this._joins.values()]) {
      this._suit(join, peer, out);
      this._ask(join, out);
    }
  }

  /** The connection is gone. */
  lost(): void {
    this._peer = undefined;
    this._asks.clear();
    this._due = this._running = undefined;
    for (const join of this._joins.values()) join.forget();
  }

  /** The timer `rejoin` fired: ask for what was refused for now; on a stream, for all. */
  rejoin(out: Effect[]): void {
    this._running = undefined;
    if (!this._peer) return;
    for (const join of [...this._joins.values()]) {
      if (!this._peer.incremental || join.phase === 'pending' || join.again) {
        this._asks.drop(join.ask);
        join.quiet = join.quiet || (join.phase === 'live' && !join.again);
        this._ask(join, out, true);
      }
    }
  }

  /** Take a live message to every subscription that wants it, once. */
  message(message: Envelope, out: Effect[]): void {
    const joins = this._routes.find(message.topic);
    const shown = !KINDS.has(message.type);
    const counted = shown || message.seq !== undefined;
    for (const join of joins) {
      if (join.phase === 'live') {
        const verdict = counted ? join.cursor.admit(message) : 'new';
        if (verdict === 'jump') this._heal(join, message, out);
        else if (verdict === 'new' && shown) out.push({ kind: 'deliver', sub: join.sub, message });
      } else if (join.phase === 'joining' && counted) {
        this._hold(join, message);
      }
    }
    if (!shown && joins.some((join) => join.presence)) {
      this._tell(this.presence.apply(message), out);
    }
  }

  /** Everybody present on a topic. */
  snapshot(frame: PresenceSnapshotFrame, out: Effect[]): void {
    if (this._routes.find(frame.topic).some((join) => join.presence)) {
      this._tell(this.presence.snapshot(frame.topic, frame.members), out);
    }
  }

  /** The server answered a `subscribe`, in whole or in part. */
  subscribed(frame: SubscribedFrame, at: number, out: Effect[]): void {
    const ref = this._asks.answeredBy(frame);
    const join = ref === undefined ? undefined : this._asks.get(ref);
    if (ref === undefined || !join) return;
    if (join.ask !== ref) {
      this._asks.drop(ref);
      return;
    }
    for (const message of frame.history ?? []) join.history.push(message);
    for (const [topic, seq] of Object.entries(frame.positions ?? {})) {
      join.positions.set(topic, seq);
    }
    for (const topic of frame.truncated ?? []) join.truncated.add(topic);
    for (const topic of frame.reset ?? []) join.reset.add(topic);
    for (const denial of frame.denied ?? []) join.denied.push(denial);
    join.timestamp ??= frame.timestamp;
    if (!frame.more) {
      if (frame.ref === undefined && frame.topics.length) {
        const known = new Set([...frame.topics, ...join.denied.map(({ topic }) => topic)]);
        for (const topic of join.patterns) {
          if (!known.has(topic)) join.denied.push({ topic, code: 'forbidden' });
        }
      }
      this._asks.drop(ref);
      this._answered(join, at, out);
    } else if (join.history.length > this._options.heldMessages) {
      this._admit(join, at, out, false);
    }
  }

  /**
   * The server refused; false if that answers no `subscribe`, or nobody can tell.
   *
   * @param frame What it says.
   * @param aboutPublish Whether an `error` without a `ref` may be about a publish. Then the
   *   subscription is asked for once more after a while, and is refused in the end.
   * @param out Effects.
   */
  failed(
    frame: ErrorFrame,
    aboutPublish: (topic: string | undefined) => boolean,
    out: Effect[],
  ): boolean {
    let { ref } = frame;
    if (ref === undefined) {
      if (!this._peer || this._peer.ref || OF_PUBLISH.has(frame.code)) return false;
      ref = this._asks.refusedBy(frame.topic);
    }
    const join = ref === undefined ? undefined : this._asks.get(ref);
    if (ref === undefined || !join) return false;
    const doubts = frame.topic === undefined ? MAX_DOUBTS : 1;
    if (frame.ref === undefined && join.doubts < doubts && aboutPublish(frame.topic)) {
      if (!join.again) {
        join.again = true;
        join.doubts += 1;
        this._later(REFUSED_FOR_NOW);
      }
      return false;
    }
    this._asks.drop(ref);
    if (join.ask !== ref) return true;
    join.forget();
    const { code, message, topic } = frame;
    if (forNow(code)) {
      this._later(Math.max(REFUSED_FOR_NOW, frame.retry_after_ms ?? 0));
      return true;
    }
    const named = join.patterns.length > 1 && topic !== undefined && join.patterns.includes(topic);
    const refused = named ? [topic] : [...join.patterns];
    for (const pattern of refused) join.denied.push({ topic: pattern, code, message });
    this._deny(join, refused);
    if (!join.patterns.length) {
      out.push({ kind: 'joined', sub: join.sub, topics: [], denied: join.denied });
    } else if (this._peer?.incremental) {
      this._ask(join, out);
    } else {
      this._later(0);
    }
    return true;
  }

  // ---------------------------------------------------------------- inside

  private _newCursor(event: Subscribe, peer: Peer | undefined): Cursor {
    const { overlap, rememberedIds, rememberedTopics } = this._options;
    const { since, after } = event;
    return !peer || peer.seq
      ? new SeqCursor(since, after, overlap, rememberedTopics)
      : new IdCursor(since, after, overlap, rememberedIds, rememberedTopics, peer.history);
  }

  /** Give the subscription the cursor that fits the peer, which may be another than before. */
  private _suit(join: Join, peer: Peer, out: Effect[]): void {
    const old = join.cursor;
    if (old.counts === peer.seq) return;
    join.cursor = this._newCursor(join.event, peer);
    if (join.answered) {
      join.answered = false;
      join.cursor.begin(old.newest);
      for (const topic of old.topics) unproven(join.sub, topic, undefined, out);
    }
  }

  private _ask(join: Join, out: Effect[], keepHeld = false): void {
    const peer = this._peer;
    if (!peer) return;
    if (peer.ref) this._asks.drop(join.ask);
    const ref = this._asks.add(join);
    join.ask = ref;
    join.phase = 'joining';
    join.again = false;
    join.clearAnswer();
    if (!keepHeld) join.clearHeld();
    const { since, after } = join.cursor.request();
    const limit = join.answered ? undefined : join.event.history;
    const topics = [...join.patterns];
    const frame: SubscribeFrame = peer.plain
      ? compact<SubscribeFrame>({
          type: 'subscribe',
          topics,
          since: since ?? (limit === undefined ? undefined : 0),
        })
      : compact<SubscribeFrame>({
          type: 'subscribe',
          topics,
          since,
          after: peer.seq && after.size ? Object.fromEntries(after) : undefined,
          history: limit,
          presence: this._watched(join),
          ref: peer.ref ? ref : undefined,
        });
    out.push({ kind: 'send', frame });
  }

  /** A jump: ask once more from where the cursor stands, and hold what comes meanwhile. */
  private _heal(join: Join, message: Envelope, out: Effect[]): void {
    join.healed.set(message.topic, join.cursor.position(message.topic));
    this._askAgain(join, [message], out);
  }

  private _askAgain(join: Join, held: readonly Envelope[], out: Effect[]): void {
    join.quiet = true;
    join.clearHeld();
    join.held = [...held];
    join.phase = 'joining';
    if (this._peer?.incremental) {
      this._ask(join, out, true);
    } else {
      join.ask = '';
      this._later(0);
    }
  }

  private _hold(join: Join, message: Envelope): void {
    if (join.whole && join.held.length < this._options.heldMessages) {
      join.held.push(message);
      return;
    }
    for (const { topic, seq } of [...join.held, message]) {
      if (seq === undefined && join.cursor.counts) {
        join.lost.set(topic, (join.lost.get(topic) ?? 0) + 1);
      }
    }
    join.held = [];
    join.whole = false;
  }

  private _answered(join: Join, at: number, out: Effect[]): void {
    const denied = join.denied.filter(({ code }) => !forNow(code));
    const later = new Set(join.denied.filter(({ code }) => forNow(code)).map((d) => d.topic));
    join.denied = [];
    join.again = false;
    join.doubts = 0;
    this._deny(
      join,
      denied.map(({ topic }) => topic),
    );
    const granted = join.patterns.filter((pattern) => !later.has(pattern));
    if (granted.length < join.patterns.length) {
      join.again = true;
      this._later(REFUSED_FOR_NOW);
      if (!granted.length) {
        join.forget();
        join.denied = denied;
        return;
      }
    }
    if (!join.quiet || denied.length) {
      out.push({ kind: 'joined', sub: join.sub, topics: granted, denied });
    }
    if (!join.patterns.length) return;
    const { answered, quiet, whole } = join;
    const rest = this._admit(join, at, out, true);
    join.answered = true;
    join.phase = 'live';
    join.ask = '';
    join.quiet = false;
    join.clearHeld();
    if (join.presence && answered && !quiet) {
      this._tell(
        this.presence.forgetUnproven((topic) => join.takes(topic)),
        out,
      );
    }
    const [first] = rest;
    if (first) {
      join.healed.set(first.topic, join.cursor.position(first.topic));
      this._askAgain(join, rest, out);
    } else if (!whole) {
      this._askAgain(join, [], out);
    } else {
      join.healed.clear();
    }
  }

  private _admit(join: Join, at: number, out: Effect[], complete: boolean): readonly Envelope[] {
    const { sub } = join;
    const { steps, rest } = join.cursor.replay({
      history: join.history,
      held: complete ? join.held : [],
      positions: complete ? join.positions : new Map(),
      truncated: join.truncated,
      reset: join.reset,
      timestamp: join.timestamp,
      at,
      first: !join.answered,
      limit: join.answered ? undefined : join.event.history,
      whole: join.whole,
      healed: join.healed,
    });
    join.history = [];
    join.reset = new Set();
    for (const step of steps) {
      if ('missing' in step) {
        out.push({ kind: 'gap', sub, ...step.missing });
      } else if (!KINDS.has(step.message.type)) {
        out.push({ kind: 'deliver', sub, message: step.message });
      }
    }
    if (complete) {
      for (const [topic, count] of join.lost) unproven(sub, topic, count, out);
    }
    return rest;
  }

  private _deny(join: Join, patterns: readonly string[]): void {
    for (const pattern of patterns) {
      const at = join.patterns.indexOf(pattern);
      if (at >= 0) {
        join.patterns.splice(at, 1);
        this._routes.remove(pattern, join);
      }
    }
    if (patterns.length && !join.patterns.length) this._remove(join);
  }

  private _remove(join: Join): void {
    this._joins.delete(join.sub);
    for (const pattern of join.patterns) this._routes.remove(pattern, join);
    if (this._peer?.ref) this._asks.drop(join.ask);
    join.ask = '';
    if (join.presence) {
      this.presence.keep((topic) => this._routes.find(topic).some((other) => other.presence));
    }
  }

  /** Whether presence is wanted by any subscription that shares a pattern with this one. */
  private _watched(join: Join): boolean {
    const mine = new Set(join.patterns);
    return [join, ...this._joins.values()].some(
      (other) => other.presence && other.patterns.some((pattern) => mine.has(pattern)),
    );
  }

  private _hasPattern(pattern: string): boolean {
    return [...this._joins.values()].some((join) => join.patterns.includes(pattern));
  }

  /** Have `rejoin` called after so long, unless that is going to happen sooner. */
  private _later(milliseconds: number): void {
    if (this._running === undefined || milliseconds < this._running) {
      this._due = this._running = Math.min(MAX_WAIT, milliseconds);
    }
  }

  private _tell(changes: readonly Change[], out: Effect[]): void {
    for (const change of changes) {
      for (const join of this._routes.find(change.topic)) {
        if (join.presence) out.push(changed(join.sub, change));
      }
    }
  }
}

/** Whether a refusal is worth another try by itself. */
function forNow(code: string): boolean {
  return CODES.get(code)?.retryable ?? false;
}

function changed(sub: number, change: Change): Effect {
  return { kind: 'presenceChanged', sub, ...change };
}

function unproven(sub: number, topic: string, missed: number | undefined, out: Effect[]): void {
  out.push({ kind: 'gap', sub, topic, from: undefined, to: undefined, missed, reason: 'unproven' });
}
