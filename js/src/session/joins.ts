/**
 * Subscriptions inside a session: asked for, answered, routed to; each with a cursor of its own.
 *
 * HIP-56 H-042, H-043, H-046; REC-1 to REC-3, HIST-1.
 */

import type { Envelope, ErrorFrame, SubscribedFrame } from '../generated/wire.js';
import { forNow } from './causes.js';
import { type Cursor, gap, SeqCursor, type Step } from './cursor.js';
import type { Subscribe } from './events.js';
import { Join } from './join.js';
import type { Machine } from './machine.js';
import { Routes } from './routes.js';

/** Milliseconds to wait where a server refuses a subscription for now and names no time. */
export const REFUSED_FOR_NOW = 1_000;

/** Longest such wait that a server may impose, milliseconds. */
const MAX_WAIT = 60_000;

/** Types of messages that say who is present; they are no messages to users. */
const OF_PRESENCE = /^presence\.(join|update|leave)$/;

/** A request that the server has not answered. */
interface Ask {
  readonly join: Join;
  readonly topics: readonly string[];
}

/** All subscriptions of a session. */
export class Joins {
  readonly _joins: Map<number, Join> = new Map();
  readonly _routes: Routes = new Routes();
  /** Requests by `ref`, oldest first. */
  readonly _asked: Map<string, Ask> = new Map();
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
    let topics = _patterns;
    if (this._machine._peer?.incremental) {
      const others = new Set([...this._joins.values()].flatMap((other) => other._patterns));
      topics = topics.filter((pattern) => !others.has(pattern));
    } else if (this._joins.size) {
      this._later(0);
      return;
    }
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
    for (const join of this._joins.values()) join._forget();
  }

  /** The timer `rejoin` fired: ask for what was refused for now; on a stream, for all. */
  rejoin(): void {
    this._wait = Infinity;
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
    const { plain } = this._machine._parts;
    const ref = frame.ref ?? plain?._answeredBy(frame) ?? '';
    const join = this._asked.get(ref)?.join;
    if (join?._ask !== ref) {
      this._asked.delete(ref);
      return;
    }
    join._answer.push(frame);
    join._denied.push(...(frame.denied ?? []));
    if (!frame.more) {
      plain?._fill(join, frame);
      this._asked.delete(ref);
      this._answered(join, at);
    } else if (historyOf(join).length > this._machine._options.heldMessages) {
      this._admit(join, at, false);
    }
  }

  /** The server refused; false if that answers no `subscribe`, or nobody can tell. */
  failed(frame: ErrorFrame): boolean {
    const { code, message, topic } = frame;
    const ref = frame.ref ?? this._machine._parts.plain?._refusedBy(frame) ?? '';
    const join = this._asked.get(ref)?.join;
    if (!join) return false;
    this._asked.delete(ref);
    if (join._ask !== ref) return true;
    join._forget();
    if (forNow(frame)) {
      this._later(Math.max(REFUSED_FOR_NOW, frame.retry_after_ms ?? 0));
      return true;
    }
    const refused = topic && join._patterns.includes(topic) ? [topic] : join._patterns;
    join._denied.push(...refused.map((pattern) => ({ topic: pattern, code, message })));
    this._deny(join, refused);
    if (join._patterns.length) this._request(join);
    else this._joined(join, join._denied);
    return true;
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
  private _request(join: Join): void {
    if (this._machine._peer?.incremental) this._ask(join);
    else this._later(0);
  }

  private _ask(join: Join): void {
    const { _patterns: topics, _event } = join;
    if (this._machine._peer?.ref) this._asked.delete(join._ask);
    const ref = this._nextRef('s');
    this._asked.set(ref, { join, topics });
    join._ask = ref;
    join._phase = 'joining';
    join._again = false;
    join._answer = [];
    const history = join._answered ? undefined : _event.history;
    // Presence is wanted by any subscription that shares a pattern with this one.
    const mine = new Set(topics);
    const presence = [...this._joins.values()].some(
      (other) => other._event.presence && other._patterns.some((pattern) => mine.has(pattern)),
    );
    const position = join._cursor._request();
    this._machine._send({ type: 'subscribe', topics, ...position, history, presence, ref });
  }

  /** Ask once more from where the cursor stands, and hold what comes meanwhile: a jump is healed. */
  private _askAgain(join: Join, held: readonly Envelope[]): void {
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
      const counted = seq === undefined && join._cursor instanceof SeqCursor;
      if (counted) lost.set(topic, (lost.get(topic) ?? 0) + 1);
    }
    join._held = [];
    join._whole = false;
  }

  private _answered(join: Join, at: number): void {
    const denied = join._denied.filter((denial) => !forNow(denial));
    const later = new Set(join._denied.filter(forNow).map(({ topic }) => topic));
    join._denied = [];
    join._again = false;
    join._doubts = 0;
    this._deny(
      join,
      denied.map(({ topic }) => topic),
    );
    const granted = join._patterns.filter((pattern) => !later.has(pattern));
    if (granted.length < join._patterns.length) {
      join._again = true;
      this._later(REFUSED_FOR_NOW);
      if (!granted.length) {
        join._forget();
        join._denied = denied;
        return;
      }
    }
    if (!join._quiet || denied.length) this._joined(join, denied, granted);
    if (!join._patterns.length) return;
    const { _answered, _quiet, _whole } = join;
    const rest = this._admit(join, at, true);
    join._answered = true;
    join._phase = 'live';
    join._ask = '';
    join._quiet = false;
    join._hold();
    if (_answered && !_quiet) this._machine._parts.presence?._answered(join);
    if (rest.length || !_whole) this._askAgain(join, rest);
    else join._cursor._healed.clear();
  }

  private _joined(join: Join, denied: Join['_denied'], topics: readonly string[] = []): void {
    this._machine._tell({ kind: 'joined', sub: join._event.sub, topics, denied });
  }

  private _admit(join: Join, at: number, complete: boolean): readonly Envelope[] {
    const { _event, _answer, _answered, _held, _whole: whole } = join;
    const steps: Step[] = [];
    const positions = _answer.flatMap((frame) => Object.entries(frame.positions ?? {}));
    const replay = {
      history: historyOf(join),
      held: complete ? _held : [],
      positions: new Map(complete ? positions : []),
      truncated: new Set(_answer.flatMap(({ truncated = [] }) => truncated)),
      reset: new Set(_answer.flatMap(({ reset = [] }) => reset)),
      timestamp: _answer.find(({ timestamp }) => timestamp !== undefined)?.timestamp,
      at,
      first: !_answered,
      limit: _answered ? undefined : _event.history,
      whole,
    };
    const rest = join._cursor._replay(replay, steps);
    join._answer = _answer.map(({ history, reset, ...others }) => others);
    if (complete) {
      for (const [topic, count] of join._lost) steps.push(gap(topic, 'unproven', count));
    }
    for (const step of steps) {
      if (step.kind === 'gap' || !OF_PRESENCE.test(step.message.type)) {
        this._machine._tell({ ...step, sub: _event.sub });
      }
    }
    return rest;
  }

  private _deny(join: Join, patterns: readonly string[]): void {
    if (!patterns.length) return;
    const refused = new Set(patterns);
    this._routes._remove(join, patterns);
    join._patterns = join._patterns.filter((pattern) => !refused.has(pattern));
    if (!join._patterns.length) this._remove(join);
  }

  private _remove(join: Join): void {
    this._joins.delete(join._event.sub);
    this._routes._remove(join, join._patterns);
    if (this._machine._peer?.ref) this._asked.delete(join._ask);
    join._ask = '';
    this._machine._parts.presence?._keepTopics();
  }
}

function historyOf({ _answer }: Join): Envelope[] {
  return _answer.flatMap(({ history = [] }) => history);
}
