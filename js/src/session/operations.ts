/**
 * The operations of a program on a session: subscriptions, publishes, and presence.
 *
 * They load beside the first connection. Until then, a session has none.
 */

import * as table from '../generated/connected.js';
import type { Steps } from '../generated/lifecycle.js';
import type { AuthOkFrame, ErrorFrame, JsonObject, ServerFrame } from '../generated/wire.js';
import { RATE_LIMITED, type SessionEvent } from './events.js';
import { OwnPresence } from './own_presence.js';
import type {
  Context,
  DeliveryPorts,
  OutcomePort,
  Peer,
  Publish,
  Rejected,
  Subscribe,
  TimerName,
} from './ports.js';
import { Publishes } from './publishes.js';
import { Subscriptions } from './subscriptions.js';

const CLOSED: Rejected = { kind: 'rejected', code: 'closed', message: 'The client is closed.' };

/**
 * The server that `auth.ok` describes.
 *
 * @param at Arrival time by the local clock, Unix milliseconds.
 */
function readPeer(frame: AuthOkFrame, incremental: boolean, at: number): Peer {
  const { limits, expires_at: end, server_time: now = at } = frame;
  const rate = limits?.publish_rate ?? 0;
  const features = new Set(frame.version === undefined ? [] : frame.features);
  return {
    ...frame,
    tokenLife: end === undefined ? end : end - now,
    features,
    incremental,
    acks: !incremental || (features.has('ref') && features.has('ack')),
    resends: features.has('idempotency'),
    rate,
    burst: rate - (rate < 2 ? 0 : Math.max(1, Math.floor(rate / 10))) || Infinity,
  };
}

/** The session, as its operations see it. */
interface Operated {
  readonly context: Context;
  readonly lifecycle: Steps<SessionEvent> & { _noteUseful(): void };
  /** The program made a call. */
  _called(): void;
  /** A call is complete. */
  _endStep(): void;
}

/** The operations of one session. */
export class Operations {
  readonly subscriptions: Subscriptions;
  readonly publishes: Publishes;
  readonly ownPresence: OwnPresence;

  constructor(
    private readonly _session: Operated,
    private readonly _deliveries: DeliveryPorts,
    private readonly _outcomes: OutcomePort,
  ) {
    const { context } = _session;
    this.subscriptions = new Subscriptions(context, _deliveries);
    this.publishes = new Publishes(context, _outcomes);
    const { routes } = this.subscriptions;
    this.ownPresence = new OwnPresence(context, this.publishes, routes, _outcomes);
  }

  // ---------------------------------------------------------------- from the program

  subscribe(request: Subscribe): void {
    if (this._session.lifecycle._draining) {
      const { code, message } = CLOSED;
      const denied = request.topics.map((topic) => ({ topic, code, message }));
      this._deliveries.joined(request.sub, [], denied);
    } else {
      this.subscriptions.subscribe(request);
      this._session._called();
    }
  }

  unsubscribe(sub: number): void {
    const state = this.subscriptions.all.get(sub);
    if (!state) return;
    this.subscriptions.unsubscribe(state);
    this.ownPresence.dropTopics(state.request.topics);
  }

  publish(publish: Publish): void {
    if (this._session.lifecycle._draining) {
      this._outcomes.settle(publish.ref, CLOSED);
    } else {
      this.publishes.publish(publish);
      this._session._called();
    }
  }

  /** The timeouts of calls have passed. Of these, only updates of presence are still sent. */
  expire(refs: readonly number[]): void {
    this.publishes.expire(refs);
    this.ownPresence.expire(refs);
    this._session._endStep();
  }

  /**
   * Change the client's own presence on one topic, or (undefined) on all of its topics.
   *
   * @param ref Chosen by the caller, not used before.
   */
  updatePresence(topic: string | undefined, data: JsonObject, ref: number): void {
    if (this._session.lifecycle._draining) {
      this._outcomes.settle(ref, CLOSED);
    } else {
      this.ownPresence.update(topic, data, ref);
      this._session._called();
    }
  }

  // ---------------------------------------------------------------- from the session

  /** A frame arrived; `at`: when, by the local clock, Unix milliseconds. */
  receive(frame: ServerFrame, at: number): void {
    const { subscriptions, publishes, ownPresence } = this;
    const { lifecycle, context } = this._session;
    publishes.heard();
    if (frame.type === 'auth.ok') {
      table.onAuthOk(lifecycle, { peer: readPeer(frame, lifecycle._hasPings, at) });
    } else if (frame.type === 'auth.expiring') {
      const left = frame.expires_in ?? Number(frame.expires_at) - at;
      table.onAuthExpiring(lifecycle, { at, left });
    } else if (frame.type === 'pong') {
      table.onPong(lifecycle, {});
    } else if (context.peer) {
      lifecycle._noteUseful();
      if (frame.type === 'subscribed') {
        subscriptions.subscribed(frame, at);
      } else if (frame.type === 'published') {
        if (!publishes.published(frame)) ownPresence.acknowledged(frame.ref);
      } else if (frame.type === 'presence.snapshot') {
        subscriptions.presence.snapshot(frame);
      }
    }
  }

  rejected(frame: ErrorFrame): void {
    const { subscriptions, publishes, ownPresence } = this;
    publishes.heard();
    if (subscriptions.rejected(frame)) return;
    if (frame.code === RATE_LIMITED && this._session.context.peer)
      publishes.pause(frame.retry_after_ms);
    publishes.rejected(frame);
    ownPresence.rejected(frame);
  }

  timerFired(timer: TimerName): void {
    const { subscriptions, publishes, ownPresence } = this;
    if (timer === 'rejoin') {
      subscriptions.rejoin();
    } else if (timer === 'grace') {
      subscriptions.presence.expire();
    } else {
      publishes.paced();
      ownPresence.flush();
      publishes.flush();
    }
  }

  lost(): void {
    this.subscriptions.lost();
    this.publishes.lost();
  }

  /** The session has ended, with an error or as requested. */
  finish(error: Rejected | undefined): void {
    const unsent = error ?? {
      ...CLOSED,
      message: 'The client was closed before it could send the message.',
    };
    this.lost();
    this.publishes.settleAll(unsent);
    this.ownPresence.settleAll(unsent);
  }
}
