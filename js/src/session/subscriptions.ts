/**
 * Subscriptions inside a session: requests, answers, refusals and routes; each has its own cursor.
 *
 * HIP-56 H-042, H-043, H-046; REC-1 to REC-3, HIST-1.
 */

import type { Envelope, ErrorFrame, SubscribedFrame } from '../generated/wire.js';
import type { Context } from './context.js';
import { BY_SEQ, type Cursor, type Cursors, gap, isGap, type Replay, type Step } from './cursor.js';
import { isRetryable } from './events.js';
import type { Peer } from './peer.js';
import type { Presence } from './presence.js';
import type { Subscribe } from './requests.js';
import { Routes } from './routes.js';
import { SubscriptionState } from './subscription_state.js';

/** Longest such pause that a server may impose, milliseconds. */
const MAX_WAIT = 60_000;

/** Milliseconds to wait if a server refuses a subscription for now and gives no time. */
const REFUSED_FOR_NOW = 1_000;

/** Types of presence messages; users do not receive them as messages. */
const OF_PRESENCE = /^presence\.(join|update|leave)$/;

/** All subscriptions of a session. */
export class Subscriptions {
  readonly routes: Routes = new Routes();
  /** Subscriptions with an open request, by its `ref`. */
  readonly requests: Map<string, SubscriptionState> = new Map();
  /** Makes cursors that fit the peer. */
  cursors: Cursors = BY_SEQ;
  /** Shows presence, if the session has that part. */
  presence: Presence | undefined;
  private _number = 0;
  /** The peer of the previous connection. */
  private _last: Peer | undefined;

  constructor(private readonly _context: Context) {}

  /** Number of subscriptions. */
  get size(): number {
    return this.routes.all.size;
  }

  // ---------------------------------------------------------------- from the program

  /** Add a subscription; request it if connected. */
  subscribe(request: Subscribe): void {
    const one = new SubscriptionState(request, this._cursorFor(request));
    this.routes.all.set(request.sub, one);
    this.routes.add(one);
    this.presence?.show(one);
    if (this._context.peer) this._request(one);
  }

  /** End a subscription; unsubscribe from patterns that no other one has. */
  unsubscribe(sub: number): void {
    const one = this.routes.all.get(sub);
    if (!one) return;
    const { peer, ports } = this._context;
    const { patterns, phase } = one;
    this._remove(one);
    if (phase === 'pending') return;
    if (!peer?.incremental && this.size) {
      this._scheduleRejoin(0);
      return;
    }
    const others = new Set([...this.routes.all.values()].flatMap((other) => other.patterns));
    const topics = patterns.filter((pattern) => !others.has(pattern));
    if (topics.length) ports.send({ type: 'unsubscribe', topics, ref: this._nextRef('u') });
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is open: request every subscription from its cursor. */
  connected(): void {
    // The first connection changes no cursor: no subscription is answered before it.
    const { _last: last } = this;
    const { peer } = this._context;
    this._last = peer;
    this.presence?.reconnected(!last || last.client_id === peer?.client_id);
    for (const one of this.routes.all.values()) {
      this._updateCursor(one, last?.node !== peer?.node);
      this._sendSubscribe(one);
    }
  }

  /** The connection is lost. */
  lost(): void {
    this.requests.clear();
    this.presence?.lost();
    for (const one of this.routes.all.values()) one.forget();
  }

  /**
   * The timer `rejoin` fired: request subscriptions that were refused for now; on a stream, all.
   */
  rejoin(): void {
    const incremental = this._context.peer?.incremental;
    if (!incremental) this.presence?.lost();
    for (const one of this.routes.all.values()) {
      const { phase, retryPending } = one;
      if (!incremental || phase === 'pending' || retryPending) {
        this.requests.delete(one.ref);
        if (phase === 'live' && !retryPending) one.recovering = true;
        this._sendSubscribe(one);
      }
    }
  }

  /** Deliver a live message to every subscription that wants it, once; a separate call. */
  message(message: Envelope): void {
    const { peer, ports, timers } = this._context;
    if (!peer) return;
    const { topic } = message;
    const takers = this.routes.known.get(topic) ?? this.routes.find(topic);
    const shown = !OF_PRESENCE.test(message.type);
    if (shown || message.seq !== undefined) {
      for (const one of takers) {
        if (one.phase === 'live') {
          const verdict = one.cursor.admit(message);
          if (verdict === 'jump') this._recover(one, [message]);
          else if (verdict === 'new' && shown) ports.deliver(one.request.sub, message, false);
        } else if (one.phase === 'joining') {
          this._hold(one, message);
        }
      }
    }
    if (!shown) this.presence?.message(message, takers);
    if (timers._due.size) timers.startDue();
  }

  /** The server answered a `subscribe`, in full or in part. */
  subscribed(frame: SubscribedFrame, at: number): void {
    const { ref = '', denied = [] } = frame;
    const one = this.requests.get(ref);
    if (!one) return;
    const answer = this._gather(one, frame, at);
    one.denied.push(...denied);
    if (!answer) return;
    this.requests.delete(ref);
    this._answered(one, answer, at);
  }

  /** The server refused a `subscribe`; returns false if none is open under the `ref`. */
  rejected({ ref = '', code, message, topic, retry_after_ms: retryAfter }: ErrorFrame): boolean {
    const one = this.requests.get(ref);
    if (!one) return false;
    this.requests.delete(ref);
    one.forget();
    if (isRetryable(code)) {
      this._scheduleRetry(retryAfter);
      return true;
    }
    const refused = topic && one.patterns.includes(topic) ? [topic] : one.patterns;
    one.denied.push(...refused.map((pattern) => ({ topic: pattern, code, message })));
    this._removePatterns(one, refused);
    if (one.patterns.length) this._request(one);
    else this._context.ports.joined(one.request.sub, [], one.denied);
    return true;
  }

  /** Request it again after a pause: an error may have concerned it. */
  retryLater(one: SubscriptionState): void {
    one.retryPending = true;
    this._scheduleRetry();
  }

  // ---------------------------------------------------------------- requests

  private _cursorFor(request: Subscribe): Cursor {
    return this.cursors.make(request, this._context.options);
  }

  /** Give it a cursor that fits the peer, which may be a different one. */
  private _updateCursor(one: SubscriptionState, moved: boolean): void {
    const { cursor, request, answered } = one;
    if (cursor.usesSeq === this.cursors.usesSeq && !(moved && answered)) return;
    one.answered = false;
    const { newest: since, topics } = cursor.standing();
    one.cursor = this._cursorFor(answered ? { ...request, since, after: undefined } : request);
    if (!answered) return;
    for (const topic of topics) {
      const reason = moved ? 'node_changed' : 'unproven';
      this._context.ports.gap(request.sub, gap(topic, reason), false);
    }
  }

  private _nextRef(kind: string): string {
    this._number += 1;
    return `${kind}${this._number}`;
  }

  /** Request a subscription; on an event stream, request all at the end of the current call. */
  private _request(one: SubscriptionState): void {
    if (this._context.peer?.incremental) this._sendSubscribe(one);
    else this._scheduleRejoin(0);
  }

  private _sendSubscribe(one: SubscriptionState): void {
    const { patterns: topics, request } = one;
    const ref = this._nextRef('s');
    this.requests.set(ref, one);
    if (one.unrouted) {
      one.unrouted = false;
      this.routes.add(one);
      this.presence?.show(one);
    }
    one.ref = ref;
    one.phase = 'joining';
    one.retryPending = false;
    one.answer = undefined;
    this._context.ports.send({
      type: 'subscribe',
      topics,
      ...one.cursor.request(),
      history: one.answered ? undefined : request.history,
      presence: this.presence?.watches(one) ?? false,
      ref,
    });
  }

  /** Request it again from its cursor, and hold messages meanwhile. */
  private _recover(one: SubscriptionState, held: Envelope[]): void {
    one.recovering = true;
    one.hold(held);
    one.phase = 'joining';
    one.ref = '';
    this._request(one);
  }

  private _scheduleRetry(milliseconds = 0): void {
    this._scheduleRejoin(Math.max(REFUSED_FOR_NOW, milliseconds));
  }

  /** Schedule `rejoin` after the given time, unless it is already due sooner. */
  private _scheduleRejoin(milliseconds: number): void {
    const { timers } = this._context;
    const after = Math.min(MAX_WAIT, milliseconds);
    if (after < timers.after('rejoin')) timers.postpone('rejoin', after);
  }

  // ---------------------------------------------------------------- answers

  private _hold(one: SubscriptionState, message: Envelope): void {
    if (one.whole && one.held.length < this._context.options.heldMessages) {
      one.held.push(message);
      return;
    }
    const { lost } = one;
    const { since = -1 } = one.request;
    for (const { topic, seq, timestamp } of [...one.held, message]) {
      // By time, only messages after `since` are surely replayed; clocks of nodes differ.
      const replayed = !one.cursor.usesSeq && timestamp > since;
      if (seq === undefined && !replayed) lost.set(topic, (lost.get(topic) ?? 0) + 1);
    }
    one.held = [];
    one.whole = false;
  }

  /** Add one frame of an answer in several; returns the whole answer when complete. */
  private _gather(
    one: SubscriptionState,
    frame: SubscribedFrame,
    at: number,
  ): SubscribedFrame | undefined {
    const before: Partial<SubscribedFrame> = one.answer ?? {};
    const history = (before.history ?? []).concat(frame.history ?? []);
    const whole = {
      ...frame,
      history,
      positions: { ...before.positions, ...frame.positions },
      truncated: (before.truncated ?? []).concat(frame.truncated ?? []),
      reset: (before.reset ?? []).concat(frame.reset ?? []),
      timestamp: before.timestamp ?? frame.timestamp,
    } as SubscribedFrame;
    one.answer = whole;
    if (!frame.more) return whole;
    // If the connection breaks between two parts, the next request continues from there. A request
    // for the newest few cannot continue, and an answer by time and ids is complete only at its
    // end.
    const acceptsParts = one.cursor.usesSeq && (one.answered || one.request.history === undefined);
    if (acceptsParts && history.length > this._context.options.heldMessages) {
      this._admit(one, { ...whole, positions: {} }, at);
      one.answer = { ...whole, history: [], reset: [] };
    }
    return undefined;
  }

  private _answered(one: SubscriptionState, answer: SubscribedFrame, at: number): void {
    one.retryPending = false;
    if (!this._applyDenials(one)) return;
    const { recovering, whole } = one;
    const rest = this._admit(one, answer, at);
    for (const [topic, count] of one.lost) {
      this._context.ports.gap(one.request.sub, gap(topic, 'unproven', count), false);
    }
    one.answered = true;
    one.phase = 'live';
    one.ref = '';
    one.recovering = false;
    one.hold();
    if (!(recovering && this._context.peer?.incremental)) this.presence?.answered(one);
    if (rest.length || !whole) this._recover(one, rest);
    else one.cursor.retried.clear();
  }

  /** Patterns were denied, permanently or for now; returns whether any is in force. */
  private _applyDenials(one: SubscriptionState): boolean {
    const denied = one.denied.filter(({ code }) => !isRetryable(code));
    const later = new Set(
      one.denied.filter(({ code }) => isRetryable(code)).map(({ topic }) => topic),
    );
    one.denied = [];
    this._removePatterns(
      one,
      denied.map(({ topic }) => topic),
    );
    const granted = one.patterns.filter((pattern) => !later.has(pattern));
    if (granted.length < one.patterns.length) {
      this.retryLater(one);
      if (!granted.length) {
        one.forget();
        one.denied = denied;
        return false;
      }
      // The replay will bring the messages of the others that arrive by other subscriptions.
      one.unrouted = true;
      this.routes.remove(one, [...later]);
      this.presence?.hide(one);
      one.held = one.held.filter(
        ({ topic, seq }) => seq === undefined || this.routes.find(topic).includes(one),
      );
    }
    if (!one.recovering || denied.length)
      this._context.ports.joined(one.request.sub, granted, denied);
    return granted.length > 0;
  }

  private _admit(one: SubscriptionState, answer: SubscribedFrame, at: number): Envelope[] {
    const { request, answered, held, whole } = one;
    const { ports } = this._context;
    const steps: Step[] = [];
    const replay: Replay = {
      ...answer,
      at,
      held,
      first: !answered,
      limit: answered ? undefined : request.history,
      whole,
    };
    const rest = one.cursor.replay(replay, steps);
    const shown = steps.filter((step) => isGap(step) || !OF_PRESENCE.test(step.type));
    const many = shown.filter((step) => !isGap(step)).length > 1;
    for (const step of shown) {
      if (isGap(step)) ports.gap(request.sub, step, many);
      else ports.deliver(request.sub, step, many);
    }
    return rest;
  }

  private _removePatterns(one: SubscriptionState, patterns: readonly string[]): void {
    if (!patterns.length) return;
    this.routes.remove(one, patterns);
    const refused = new Set(patterns);
    one.patterns = one.patterns.filter((pattern) => !refused.has(pattern));
    if (!one.patterns.length) this._remove(one);
  }

  private _remove(one: SubscriptionState): void {
    this.routes.all.delete(one.request.sub);
    this.routes.remove(one, one.patterns);
    this.requests.delete(one.ref);
    this.presence?.keepTopics();
  }
}
