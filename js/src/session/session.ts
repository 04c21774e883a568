/**
 * The session: events arrive by its methods, effects leave by its ports.
 *
 * All decisions of the SDK are made here, without a clock, socket, task or randomness of its own.
 * `lifecycle` follows the generated table. `operations.ts` adds `subscriptions` and `publishes`, which
 * keep their own state, and `presence_parts.ts` adds presence to clients that use it. All share one
 * `context`.
 */

import * as table from '../generated/lifecycle.js';
import type { ErrorFrame, JsonObject, ServerFrame } from '../generated/wire.js';
import type { SessionOptions } from '../settings/session.js';
import { Context } from './context.js';
import {
  actionOf,
  CLOSED,
  endsConnection,
  RATE_LIMITED,
  type SessionEvent,
  TIMEOUTS,
} from './events.js';
import { Lifecycle } from './lifecycle.js';
import { readPeer } from './peer.js';
import type { Ports, TimerName } from './ports.js';
import type { Publishes } from './publishes.js';
import type { Publish, Subscribe } from './requests.js';
import type { Subscriptions } from './subscriptions.js';

/** The life of one client, from `connect` to the port `finished`. */
export class Session {
  readonly context: Context;
  readonly lifecycle: Lifecycle;
  /** Both are added before a server welcomes the client. */
  subscriptions: Subscriptions | undefined;
  publishes: Publishes | undefined;

  /**
   * @param options The settings.
   * @param ports Effects on the outside world; a port never calls back synchronously.
   * @param random A number from 0 inclusive to 1 exclusive.
   */
  constructor(options: SessionOptions, ports: Ports, random: () => number) {
    this.context = new Context(options, ports, random);
    this.lifecycle = new Lifecycle(this.context);
  }

  // ---------------------------------------------------------------- from the program

  /** Connect; `opened`: a WebSocket to this address has opened in this process before. */
  connect(opened = false): void {
    if (opened) this.lifecycle._choice._hasOpened = true;
    table.onConnect(this.lifecycle, {});
    this._called();
    this._end();
  }

  /** End the session after all publishes are settled. */
  close(): void {
    this._fire(table.onClose);
  }

  /** End the session now; unsettled publishes become unknown or refused. */
  abort(): void {
    if (!this.lifecycle.over) this._fire(table.onAbort);
  }

  /** Add a subscription; it and its presence require their parts. */
  subscribe(request: Subscribe): void {
    if (this._ended) {
      const { code, message } = CLOSED;
      const denied = request.topics.map((topic) => ({ topic, code, message }));
      this.context.ports.joined(request.sub, [], denied);
    } else {
      this.subscriptions?.subscribe(request);
      this._called();
    }
    this._end();
  }

  /** End a subscription. */
  unsubscribe(sub: number): void {
    this.subscriptions?.unsubscribe(sub);
    this.lifecycle.ownPresence?.keepTopics();
    this._end();
  }

  /** Add a publish; requires that part. */
  publish(publish: Publish): void {
    if (this._ended) {
      this.context.ports.settle(publish.ref, CLOSED);
    } else {
      this.publishes?.publish(publish);
      this._called();
    }
    this._end();
  }

  /** The program's timeout of a publish has passed. It is not sent after that. */
  expire(ref: number): void {
    this.publishes?.expire(ref);
    this._end();
  }

  /**
   * Change the client's own presence on one topic, or (undefined) on all of its topics.
   *
   * @param ref Chosen by the caller, not used before; undefined if no call waits.
   */
  updatePresence(topic: string | undefined, data: JsonObject, ref?: number): void {
    if (!this.lifecycle.over) {
      this.lifecycle.ownPresence?.update(topic, data, ref);
      this._called();
    } else if (ref) {
      this.context.ports.settle(ref, CLOSED);
    }
    this._end();
  }

  // ---------------------------------------------------------------- from outside

  /** The token callback returned; `expiresIn` in milliseconds, if given. */
  token(call: number, token: string, expiresIn?: number): void {
    if (this.lifecycle._credentials._endCall(call)) this._fire(table.onToken, { token, expiresIn });
  }

  /** The token callback failed; `refused`: another call would not help. */
  tokenFailed(call: number, refused: boolean, message: string): void {
    const code = refused ? 'auth_refused' : 'token_unavailable';
    if (this.lifecycle._credentials._endCall(call)) {
      this._fire(table.onTokenFailed, { kind: 'tokenFailed', code, message, refused });
    }
  }

  /** The transport is open; without `incremental`, one request carries all subscriptions. */
  opened(incremental: boolean): void {
    const { lifecycle } = this;
    if (!lifecycle.linked) return;
    lifecycle._hasPings = incremental;
    this._fire(table.onOpened);
  }

  /** The transport is closed, or could not be opened. */
  dropped(code: number | undefined, message: string, retry_after_ms?: number): void {
    const { lifecycle } = this;
    if (!lifecycle.linked) return;
    lifecycle.linked = false;
    this._fire(table.onDropped, { kind: 'dropped', code, message, retry_after_ms });
  }

  /** Whether a WebSocket opened beside the event stream. */
  probed(ok: boolean): void {
    this._fire(table.onProbed, { ok });
  }

  /** Whether the HTTP address answers as a PubSub service. */
  answered(ok: boolean): void {
    this.lifecycle._choice._httpAnswered(ok);
    this._fire(table.onAnswered, TIMEOUTS.fallback);
  }

  /** The machine woke from sleep, or the network is back; `rested`: without a sleep. */
  woke(rested = false): void {
    if (!rested) this.lifecycle._doubtToken();
    this._fire(table.onWoke);
  }

  /** The platform reports that the network is lost; it may be wrong about this connection. */
  offline(): void {
    this._fire(table.onOffline);
  }

  /** A timer fired; `idle`: milliseconds since the last byte of the transport. */
  timerFired(timer: TimerName, idle: number): void {
    if (!this.context.timers.fired(timer)) return;
    const { lifecycle } = this;
    const event: SessionEvent = { ...TIMEOUTS[timer], kind: timer, idle };
    if (timer === 'pace') {
      this.publishes?.paced();
      lifecycle.ownPresence?.flush();
    } else if (timer === 'rejoin') {
      this.subscriptions?.rejoin();
    } else if (timer === 'grace') {
      this.subscriptions?.presence?.expire();
    } else if (timer === 'hold') {
      if (lifecycle._attempts._shortenLater) table.onCalled(lifecycle, event);
    } else {
      lifecycle._noteLate(timer);
      table.ON_TIMER[timer](lifecycle, event);
    }
    this._end(event);
  }

  /**
   * A frame arrived. Input from the network never throws; frames without a current meaning are
   * ignored.
   *
   * @param at Arrival time by the local clock, Unix milliseconds.
   */
  receive(frame: ServerFrame, at: number): void {
    if (frame.type === 'message') this.subscriptions?.message(frame.message);
    else this._end(this._take(frame, at));
  }

  private _take(frame: Exclude<ServerFrame, { type: 'message' }>, at: number): SessionEvent {
    const { lifecycle, subscriptions } = this;
    switch (frame.type) {
      case 'auth.ok':
        table.onAuthOk(lifecycle, { peer: readPeer(frame, lifecycle._hasPings, at) });
        break;
      case 'auth.expiring': {
        const { expires_at: end = Number.NaN, expires_in: left = end - at } = frame;
        table.onAuthExpiring(lifecycle, { at, left });
        break;
      }
      case 'pong':
        table.onPong(lifecycle, {});
        break;
      case 'auth.error':
      case 'error':
        if (
          frame.type === 'auth.error' ||
          (lifecycle.state === 'authenticating' && actionOf(frame) !== 'retry')
        ) {
          table.onAuthError(lifecycle, { ...frame, kind: 'frame' });
        } else if (lifecycle.linked) {
          this._error(frame);
        }
        return frame;
      default:
        // `unsubscribed` carries no news.
        if (!this.context.peer) break;
        lifecycle._noteUseful();
        if (frame.type === 'subscribed') {
          subscriptions?.subscribed(frame, at);
        } else if (frame.type === 'published') {
          if (!this.publishes?.published(frame)) lifecycle.ownPresence?.acknowledged(frame.ref);
        } else if (frame.type === 'presence.snapshot') {
          subscriptions?.presence?.snapshot(frame);
        }
    }
    return {};
  }

  /** The server refused a request, or sent an error of its own. */
  private _error(frame: ErrorFrame): void {
    const { lifecycle, publishes, subscriptions, context } = this;
    const { code, ref, retry_after_ms: retryAfter } = frame;
    if (endsConnection(frame)) lifecycle._attempts._requestedWait = retryAfter ?? 0;
    if (publishes?.rejected(frame)) return;
    if (code === RATE_LIMITED && lifecycle.ownPresence?.rateLimited(ref)) {
      publishes?.pause(retryAfter);
    } else if (!lifecycle.ownPresence?.rejected(frame) && !subscriptions?.rejected(frame)) {
      if (context.peer && code === RATE_LIMITED) publishes?.pause(retryAfter);
      context.ports.problem(frame);
    }
  }

  // ---------------------------------------------------------------- the end of each call

  /** The program made a call: end a long wait for the next attempt. */
  private _called(): void {
    const { lifecycle, context } = this;
    const { _attempts: attempts } = lifecycle;
    if (!attempts._canShorten) return;
    attempts._shortenLater = context.timers.has('hold');
    if (!attempts._shortenLater) table.onCalled(lifecycle, {});
  }

  private get _ended(): boolean {
    return this.lifecycle._draining || this.lifecycle.over;
  }

  private _fire(
    fire: (steps: table.Steps<SessionEvent>, event: SessionEvent) => void,
    event: SessionEvent = {},
  ): void {
    fire(this.lifecycle, event);
    this._end(event);
  }

  /** End a call: finish a session that has settled everything, and start timers. */
  _end(event: SessionEvent = {}): void {
    const { lifecycle, publishes, context } = this;
    if (lifecycle._draining && !publishes?.size && !lifecycle.over)
      table.onDrained(lifecycle, event);
    if (context.timers._due.size) context.timers.startDue();
  }
}
