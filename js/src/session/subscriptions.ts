/**
 * Subscriptions of a session: requests, answers, rejections and routes; each has its own cursor.
 *
 * HIP-56 H-042, H-043, H-046; REC-1 to REC-3, HIST-1.
 */

import { DEVELOPMENT } from '../build.js';
import { CODES } from '../generated/errors.js';
import type { Denial, Envelope, ErrorFrame, SubscribedFrame } from '../generated/wire.js';
import { type Answer, type Cursor, type Cursors, gap, isGap, Replay, SeqCursor } from './cursor.js';
import type { Context, DeliveryPorts, Peer, Subscribe } from './ports.js';
import { Presence } from './presence.js';
import { Routes, SubscriptionState } from './routes.js';

/** Maximum wait before the next request that a server can impose, milliseconds. */
const MAX_WAIT = 60_000;

/** Milliseconds to wait if a server rejects a subscription temporarily without a time. */
const REFUSED_FOR_NOW = 1_000;

/** Types of presence messages; users do not receive them as messages. */
const OF_PRESENCE = /^presence\.(join|update|leave)$/;

/** All subscriptions of a session. */
export class Subscriptions {
  /** By number, in the order of the calls. */
  readonly all: Map<number, SubscriptionState> = new Map();
  readonly routes: Routes = new Routes();
  /** Subscriptions with an open request, by its `ref`. */
  readonly requests: Map<string, SubscriptionState> = new Map();
  /** Creates the cursors for the current peer, if it needs others. */
  cursors: Cursors | undefined;
  readonly presence: Presence;
  private _number = 0;
  /** The peer of the previous connection. */
  private _last: Peer | undefined;

  constructor(
    private readonly _context: Context,
    private readonly _deliveries: DeliveryPorts,
  ) {
    this.presence = new Presence(_context, _deliveries);
  }

  // ---------------------------------------------------------------- from the program

  /** Add a subscription; request it if connected. */
  subscribe(request: Subscribe): void {
    const state = new SubscriptionState(request, this._cursorFor(request));
    this.all.set(request.sub, state);
    this._route(state);
    if (this._context.peer) this._request(state);
  }

  /** End a subscription; unsubscribe from patterns that no other subscription has. */
  unsubscribe(state: SubscriptionState): void {
    const { peer, ports } = this._context;
    const { _patterns: patterns, phase } = state;
    this._remove(state);
    if (phase === 'pending') return;
    if (!peer?.incremental && this.all.size) {
      this._scheduleRejoin(0);
      return;
    }
    const topics = patterns.filter((pattern) => !this.routes.byPattern.has(pattern));
    if (topics.length) ports.send({ type: 'unsubscribe', topics, ref: this._nextRef('u') });
  }

  // ---------------------------------------------------------------- from the connection

  /** A connection is open: request every subscription from its cursor. */
  connected(): void {
    const peer = this._context.peer as Peer;
    // Before the first connection, no subscription is answered: its cursor is at its start.
    const { _last: last } = this;
    this._last = peer;
    this.presence.reconnected(!last || last.client_id === peer.client_id);
    for (const state of this.all.values()) {
      this._updateCursor(state, last?.node !== peer.node);
      this._sendSubscribe(state);
    }
  }

  lost(): void {
    this.presence.lost();
    for (const state of this.all.values()) state._forget();
  }

  /**
   * The timer `rejoin` fired: request rejected subscriptions again; on a stream, all.
   */
  rejoin(): void {
    const incremental = this._context.peer?.incremental;
    if (!incremental) this.presence.lost();
    for (const state of this.all.values()) {
      if (!incremental || state.retryPending) this._sendSubscribe(state);
    }
  }

  /** Deliver a live message to every matching subscription, once. */
  message(message: Envelope): void {
    if (!this._context.peer) return;
    const { topic } = message;
    const states = this.routes._known.get(topic) ?? this.routes.find(topic);
    const shown = !OF_PRESENCE.test(message.type);
    if (shown || message.seq !== undefined) {
      for (const state of states) {
        if (state.phase === 'live') {
          const verdict = state.cursor.admit(message);
          if (verdict === 'jump') this._recover(state, [message]);
          else if (verdict === 'new' && shown) {
            this._deliveries.deliver(state.request.sub, message, false);
          }
        } else if (state.phase === 'joining') {
          this._hold(state, message);
        }
      }
    }
    if (!shown) this.presence.message(message);
  }

  /** The server answered a `subscribe`, in full or in part. */
  subscribed(frame: SubscribedFrame, at: number): void {
    const { ref = '' } = frame;
    const state = this.requests.get(ref);
    if (!state) return;
    const { _replay: replay } = state;
    const { _answer: before } = replay;
    const history = both(before.history, frame.history);
    const answer = {
      ...frame,
      _at: at,
      _first: !state.answered,
      _limit: state.limit,
      history,
      positions: { ...before.positions, ...frame.positions },
      truncated: both(before.truncated, frame.truncated),
      reset: both(before.reset, frame.reset),
      denied: both(before.denied, frame.denied),
      timestamp: before.timestamp ?? frame.timestamp,
    } as Answer;
    replay._answer = answer;
    if (!frame.more) {
      this.requests.delete(ref);
      this._answered(state, answer);
    } else if (
      state.cursor.usesSeq &&
      answer._limit === undefined &&
      history.length > this._context.options.heldMessages
    ) {
      // If the connection breaks between two parts, the next request continues from there. A
      // request for the newest few cannot continue, and an answer by time and ids is complete only
      // at its end.
      this._admit(state);
      replay._answer = { ...answer, history: [], reset: [] };
    }
  }

  /** The server rejected a `subscribe`; returns false if the `ref` is unknown. */
  rejected({ ref = '', code, message, topic, retry_after_ms: retryAfter }: ErrorFrame): boolean {
    const state = this.requests.get(ref);
    if (!state) return false;
    this.requests.delete(ref);
    state._forget();
    if (isRetryable(code)) {
      if (DEVELOPMENT) state.refusal = { code, message };
      this.retryLater(state, retryAfter);
      return true;
    }
    const refused = topic && state._patterns.includes(topic) ? [topic] : state._patterns;
    state.denied.push(...refused.map((pattern) => ({ topic: pattern, code, message })));
    this._removePatterns(state, refused);
    if (state._patterns.length) this._request(state);
    else this._deliveries.joined(state.request.sub, [], state.denied);
    return true;
  }

  /** Request it again after a pause: an error may have concerned it. */
  retryLater(state: SubscriptionState, milliseconds = 0): void {
    state.retryPending = true;
    state.reported = false;
    this._scheduleRejoin(Math.max(REFUSED_FOR_NOW, milliseconds));
  }

  // ---------------------------------------------------------------- requests

  private _cursorFor(request: Subscribe): Cursor {
    const { options } = this._context;
    return this.cursors?.(request, options) ?? new SeqCursor(request, options);
  }

  /** Give it a cursor that fits the peer, which may be another one than before. */
  private _updateCursor(state: SubscriptionState, moved: boolean): void {
    const { cursor } = state;
    if (cursor.usesSeq === this._context.peer?.features.has('seq') && !moved) return;
    state.request = { ...state.request, ...cursor.moved() };
    state.answered = false;
    state._steps = [];
    for (const [topic, seq] of state.request.after ?? []) {
      if (seq === undefined) state._steps.push(gap(topic, moved ? 'node_changed' : 'unproven'));
    }
    state.cursor = this._cursorFor(state.request);
  }

  private _nextRef(kind: string): string {
    this._number += 1;
    return `${kind}${this._number}`;
  }

  /** Request a subscription; on an event stream, request all after this call. */
  private _request(state: SubscriptionState): void {
    if (this._context.peer?.incremental) this._sendSubscribe(state);
    else this._scheduleRejoin(0);
  }

  private _sendSubscribe(state: SubscriptionState): void {
    const { _patterns: topics } = state;
    this.requests.delete(state.ref);
    const ref = this._nextRef('s');
    this.requests.set(ref, state);
    this._route(state); // also what an earlier answer rejected for now
    state.ref = ref;
    state.phase = 'joining';
    state.retryPending = false;
    state._replay._answer = {} as Answer;
    this._context.ports.send({
      type: 'subscribe',
      topics,
      ...state.cursor.request(),
      history: state.limit,
      presence: this.presence.watches(state),
      ref,
    });
  }

  /** Request it again from its cursor, and hold messages meanwhile. */
  private _recover(state: SubscriptionState, held: Envelope[]): void {
    state._replay = new Replay(held);
    state.phase = 'joining';
    this._request(state);
  }

  /** Schedule `rejoin` after the given time, unless it is already due sooner. */
  private _scheduleRejoin(milliseconds: number): void {
    const { timers } = this._context;
    const after = Math.min(MAX_WAIT, milliseconds);
    if (after < timers.after('rejoin')) timers.start('rejoin', after);
  }

  // ---------------------------------------------------------------- answers

  private _hold(state: SubscriptionState, message: Envelope): void {
    const { _replay: replay } = state;
    const { held, lost } = replay;
    if (replay.whole && held.length < this._context.options.heldMessages) {
      held.push(message);
      return;
    }
    const { since = -1 } = state.request;
    for (const { topic, seq, timestamp } of [...held, message]) {
      // By time, only messages after `since` are surely replayed; clocks of nodes differ.
      const replayed = !state.cursor.usesSeq && timestamp > since;
      if (seq === undefined && !replayed) lost.set(topic, (lost.get(topic) ?? 0) + 1);
    }
    replay.held = [];
    replay.whole = false;
  }

  private _answered(state: SubscriptionState, { denied }: Answer): void {
    const { _replay: replay } = state;
    state.retryPending = false;
    if (!this._applyDenials(state, denied)) return;
    const rest = this._admit(state);
    for (const [topic, missed] of replay.lost) {
      this._deliveries.gap(state.request.sub, { ...gap(topic, 'unproven'), missed }, false);
    }
    state.answered = true;
    state.phase = 'live';
    state._replay = new Replay();
    this.presence.answered(state);
    if (rest.length || !replay.whole) this._recover(state, rest);
    else state.cursor.retried.clear();
  }

  /** Process denied and granted patterns of an answer; returns whether any pattern is active. */
  private _applyDenials(state: SubscriptionState, answered: readonly Denial[]): boolean {
    const { denied } = state;
    const later = new Set<string>();
    for (const denial of answered) {
      if (isRetryable(denial.code)) later.add(denial.topic);
      else denied.push(denial);
    }
    state.denied = [];
    this._removePatterns(
      state,
      denied.map(({ topic }) => topic),
    );
    const granted = state._patterns.filter((pattern) => !later.has(pattern));
    if (granted.length < state._patterns.length) {
      if (DEVELOPMENT) state.refusal = answered.find(({ topic }) => later.has(topic));
      this.retryLater(state);
      if (!granted.length) {
        state._forget();
        state.denied = denied;
        return false;
      }
      // Messages of the others that arrive by other subscriptions will be replayed.
      this.presence.show(state, granted, true);
      this._unroute(state, [...later]);
      const { _replay: replay } = state;
      replay.held = replay.held.filter(
        ({ topic, seq }) => seq === undefined || this.routes.find(topic).includes(state),
      );
    }
    if (!state.reported || denied.length)
      this._deliveries.joined(state.request.sub, granted, denied);
    state.reported = !state.retryPending;
    return granted.length > 0;
  }

  private _admit({ request, cursor, _replay, _steps }: SubscriptionState): Envelope[] {
    const rest = cursor.replay(_replay, _steps);
    const shown = _steps.splice(0).filter((step) => isGap(step) || !OF_PRESENCE.test(step.type));
    const many = shown.filter((step) => !isGap(step)).length > 1;
    for (const step of shown) {
      if (isGap(step)) this._deliveries.gap(request.sub, step, many);
      else this._deliveries.deliver(request.sub, step, many);
    }
    return rest;
  }

  private _removePatterns(state: SubscriptionState, patterns: readonly string[]): void {
    this._unroute(state, patterns);
    const refused = new Set(patterns);
    state._patterns = state._patterns.filter((pattern) => !refused.has(pattern));
    if (!state._patterns.length) this._remove(state);
  }

  private _remove(state: SubscriptionState): void {
    this.all.delete(state.request.sub);
    this._unroute(state, state._patterns);
    this.requests.delete(state.ref);
  }

  private _route(state: SubscriptionState): void {
    this.presence.add(state);
    this.routes.add(state);
  }

  private _unroute(state: SubscriptionState, patterns: readonly string[]): void {
    this.routes.remove(state, patterns);
    this.presence.remove(state, patterns);
  }
}

const both = <T>(one: readonly T[] = [], other: readonly T[] = []): T[] => one.concat(other);

/** Whether to retry after a rejection automatically. */
function isRetryable(code: string): boolean {
  return CODES.get(code)?.retryable ?? false;
}
