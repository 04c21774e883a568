/**
 * Subscriptions inside a session: asked for, answered, routed to; each with a cursor of its own.
 *
 * HIP-56 H-042, H-043, H-046; REC-1 to REC-3, HIST-1.
 */

import type { Denial, Envelope, SubscribedFrame } from '../generated/wire.js';
import { type Cursor, gap, type Replay, SeqCursor, type Step } from './cursor.js';
import type { Subscribe } from './events.js';
import { Join } from './join.js';
import type { Machine } from './machine.js';
import { Routes } from './routes.js';

/** Longest such wait that a server may impose, milliseconds. */
const MAX_WAIT = 60_000;

/** Types of messages that say who is present; they are no messages to users. */
const OF_PRESENCE = /^presence\.(join|update|leave)$/;

/** All subscriptions of a session. */
export class Joins {
  readonly _joins: Map<number, Join> = new Map();
  readonly _routes: Routes = new Routes();
  /** Those whose request the server has not answered, by its `ref`. */
  readonly _asked: Map<string, Join> = new Map();
  private _number = 0;
  /** Milliseconds after which `rejoin` is called. */
  private _wait = Infinity;

  constructor(private readonly _machine: Machine) {}

  // ---------------------------------------------------------------- from the user

  /** Take a subscription; ask for it if there is a connection. */
  subscribe(event: Subscribe): void {
    const join = new Join(event, this._cursorFor(event));
    this._joins.set(event.sub, join);
    this._routes._add(join);
    this._machine._parts.presence?._show(join);
    if (this._machine._peer) this._request(join);
  }

  /** End a subscription; tell the server of patterns that no other one has. */
  unsubscribe(sub: number): void {
    const join = this._joins.get(sub);
    if (!join) return;
    const { _patterns, _phase } = join;
    this._remove(join);
    if (_phase === 'pending') return;
    if (!this._machine._peer?.incremental && this._joins.size) {
      this._later(0);
      return;
    }
    const others = new Set([...this._joins.values()].flatMap((other) => other._patterns));
    const topics = _patterns.filter((pattern) => !others.has(pattern));
    if (topics.length) {
      this._machine._send({ type: 'unsubscribe', topics, ref: this._nextRef('u') });
    }
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is there: ask for every subscription, each from where it stands. */
  connected(): void {
    for (const join of this._joins.values()) {
      this._machine._parts.plain?._suit(join);
      this._ask(join);
    }
  }

  /** The connection is gone. */
  lost(): void {
    this._asked.clear();
    this._wait = Infinity;
    this._machine._due.rejoin = undefined;
    this._machine._parts.presence?._lost();
    for (const join of this._joins.values()) join._forget();
  }

  /** The timer `rejoin` fired: ask for what was refused for now; on a stream, for all. */
  rejoin(): void {
    this._wait = Infinity;
    if (!this._machine._peer?.incremental) this._machine._parts.presence?._lost();
    for (const join of this._joins.values()) {
      const { _phase, _again } = join;
      if (!this._machine._peer?.incremental || _phase === 'pending' || _again) {
        this._asked.delete(join._ask);
        join._quiet ||= _phase === 'live' && !_again;
        this._ask(join);
      }
    }
  }

  /** Take a live message to every subscription that wants it, once. */
  message(message: Envelope): void {
    const joins = this._routes._find(message.topic);
    const shown = !OF_PRESENCE.test(message.type);
    for (const join of shown || message.seq !== undefined ? joins : []) {
      if (join._phase === 'live') {
        const verdict = join._cursor._admit(message);
        if (verdict === 'jump') this._askAgain(join, [message]);
        else if (verdict === 'new' && shown) {
          this._machine._tell({ kind: 'deliver', sub: join._event.sub, message });
        }
      } else if (join._phase === 'joining') {
        this._hold(join, message);
      }
    }
    if (!shown) this._machine._parts.presence?._message(message, joins);
  }

  /** The server answered a `subscribe`, in whole or in part. */
  subscribed(frame: SubscribedFrame, at: number): void {
    const { plain, rare } = this._machine._parts;
    const ref = frame.ref ?? plain?._answeredBy(frame) ?? '';
    const join = this._asked.get(ref);
    if (!join) return;
    const answer = frame.more || join._answer ? rare?._gather(join, frame, at) : frame;
    join._denied.push(...(frame.denied ?? []));
    if (!answer) return;
    plain?._fill(join, frame);
    this._asked.delete(ref);
    this._answered(join, answer, at);
  }

  // ---------------------------------------------------------------- requests

  _cursorFor(event: Subscribe): Cursor {
    const { _parts, _options } = this._machine;
    return _parts.plain?._cursor(event) ?? new SeqCursor(event, _options);
  }

  private _nextRef(kind: string): string {
    this._number += 1;
    return `${kind}${this._number}`;
  }

  /** Ask for a subscription; on an event stream, for all, in a while. */
  _request(join: Join): void {
    if (this._machine._peer?.incremental) this._ask(join);
    else this._later(0);
  }

  private _ask(join: Join): void {
    const { _patterns: topics, _event } = join;
    const ref = this._nextRef('s');
    this._asked.set(ref, join);
    if (join._unrouted) {
      join._unrouted = false;
      this._routes._add(join);
      this._machine._parts.presence?._show(join);
    }
    join._ask = ref;
    join._phase = 'joining';
    join._again = false;
    join._answer = undefined;
    const history = join._answered ? undefined : _event.history;
    const presence = this._machine._parts.presence?._watches(join) ?? false;
    const position = join._cursor._request();
    this._machine._send({ type: 'subscribe', topics, ...position, history, presence, ref });
  }

  /** Ask once more from where the cursor stands, and hold what comes meanwhile: a jump is healed. */
  private _askAgain(join: Join, held: Envelope[]): void {
    join._quiet = true;
    join._hold(held);
    join._phase = 'joining';
    join._ask = '';
    this._request(join);
  }

  /** Have `rejoin` called after so long, unless that is going to happen sooner. */
  _later(milliseconds: number): void {
    if (milliseconds < this._wait) {
      this._wait = this._machine._due.rejoin = Math.min(MAX_WAIT, milliseconds);
    }
  }

  // ---------------------------------------------------------------- answers

  private _hold(join: Join, message: Envelope): void {
    if (join._whole && join._held.length < this._machine._options.heldMessages) {
      join._held.push(message);
      return;
    }
    const { _lost: lost } = join;
    for (const { topic, seq } of [...join._held, message]) {
      const counted = seq === undefined && join._cursor._counts;
      if (counted) lost.set(topic, (lost.get(topic) ?? 0) + 1);
    }
    join._held = [];
    join._whole = false;
  }

  private _answered(join: Join, answer: SubscribedFrame, at: number): void {
    join._again = false;
    join._doubts = 0;
    if (join._denied.length) {
      if (!this._machine._parts.rare?._deny(join)) return;
    } else if (!join._quiet) {
      this._joined(join, join._patterns);
    }
    const { _quiet, _whole } = join;
    const rest = this._admit(join, answer, at);
    for (const [topic, count] of join._lost) {
      this._machine._tell({ ...gap(topic, 'unproven', count), sub: join._event.sub });
    }
    join._answered = true;
    join._phase = 'live';
    join._ask = '';
    join._quiet = false;
    join._hold();
    if (!(_quiet && this._machine._peer?.incremental)) {
      this._machine._parts.presence?._answered(join);
    }
    if (rest.length || !_whole) this._askAgain(join, rest);
    else join._cursor._healed.clear();
  }

  _joined(join: Join, topics: readonly string[], denied: readonly Denial[] = []): void {
    this._machine._tell({ kind: 'joined', sub: join._event.sub, topics, denied });
  }

  _admit(join: Join, answer: SubscribedFrame, at: number): Envelope[] {
    const { _event, _answered, _held, _whole } = join;
    const steps: Step[] = [];
    const replay: Replay = {
      ...answer,
      at,
      held: _held,
      first: !_answered,
      limit: _answered ? undefined : _event.history,
      whole: _whole,
    };
    const rest = join._cursor._replay(replay, steps);
    for (const step of steps) {
      if (step.kind === 'gap' || !OF_PRESENCE.test(step.message.type)) {
        this._machine._tell({ ...step, sub: _event.sub });
      }
    }
    return rest;
  }

  _remove(join: Join): void {
    this._joins.delete(join._event.sub);
    this._routes._remove(join, join._patterns);
    this._asked.delete(join._ask);
    this._machine._parts.presence?._keepTopics();
  }
}
