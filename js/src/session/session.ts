/**
 * The session: events arrive by its methods, effects leave by its ports.
 *
 * All decisions of the SDK are made here, without a clock, socket, task or randomness of its own.
 * `lifecycle` follows the generated table. `operations` has the subscriptions, publishes and presence,
 * which keep their own state. All share one `context`.
 */

import * as table from '../generated/lifecycle.js';
import type { ServerFrame } from '../generated/wire.js';
import type { SessionOptions } from '../settings/session.js';
import { actionOf, endsConnection, REFUSED, type SessionEvent, TIMEOUTS } from './events.js';
import { Lifecycle } from './lifecycle.js';
import type { Operations } from './operations.js';
import { Context, type Ports, type TimerName } from './ports.js';

/** The life of one client, from `connect` to the port `finished`. */
export class Session {
  readonly context: Context;
  readonly lifecycle: Lifecycle;

  /** @param random A number from 0 inclusive to 1 exclusive. */
  constructor(options: SessionOptions, ports: Ports, random: () => number) {
    this.context = new Context(options, ports, random);
    this.lifecycle = new Lifecycle(this.context);
  }

  // ---------------------------------------------------------------- from the program

  /** Connect; `opened`: a WebSocket to this address has opened in this process before. */
  connect(opened?: boolean): void {
    if (opened) this.lifecycle._choice._hasOpened = true;
    this._called();
    table.onConnect(this.lifecycle, {});
  }

  /** The subscriptions and publishes; undefined before they are added. */
  get operations(): Operations | undefined {
    return this.lifecycle.operations;
  }

  /** End the session after all publishes are settled; `wait`: their milliseconds, if given. */
  close(wait?: number): void {
    table.onClose(this.lifecycle, { wait });
  }

  /** End the session now; unsettled publishes become unknown or rejected. */
  abort(): void {
    table.onAbort(this.lifecycle, {});
  }

  // ---------------------------------------------------------------- from outside

  /** The token callback returned; `expiresIn` in milliseconds, if given. */
  token(call: number, token: string, expiresIn?: number): void {
    if (this.lifecycle._credentials._endCall(call))
      table.onToken(this.lifecycle, { token, expiresIn });
  }

  /** The token callback failed; `refused`: another call would not help. */
  tokenFailed(call: number, refused: boolean, message: string): void {
    const code = refused ? REFUSED : 'token_unavailable';
    const { _credentials: credentials } = this.lifecycle;
    if (!credentials._endCall(call)) return;
    credentials._failed += 1;
    table.onTokenFailed(this.lifecycle, { code, message });
  }

  /** The transport is open; without `incremental`, one request carries all subscriptions. */
  opened(incremental: boolean): void {
    this.lifecycle._hasPings = incremental;
    table.onOpened(this.lifecycle, {});
  }

  /** The transport is closed, or could not be opened. */
  dropped(code: number | undefined, message: string, retry_after_ms?: number): void {
    this.lifecycle.linked = false;
    table.onDropped(this.lifecycle, { code, message, retry_after_ms });
  }

  /** Whether a WebSocket opened beside the event stream. */
  probed(ok: boolean): void {
    table.onProbed(this.lifecycle, { ok });
  }

  /** Whether the HTTP address answers as a PubSub service. */
  answered(ok: boolean): void {
    this.lifecycle._choice._httpAnswered(ok);
    table.onAnswered(this.lifecycle, TIMEOUTS.fallback);
  }

  /** The machine woke from sleep, or the network is back; `rested`: without a sleep. */
  woke(rested?: boolean): void {
    if (!rested) this.lifecycle._doubtToken();
    table.onWoke(this.lifecycle, {});
  }

  /** The platform reports that the network is lost; it may be wrong about this connection. */
  offline(): void {
    table.onOffline(this.lifecycle, {});
  }

  /** A timer fired; `idle`: milliseconds since the last byte of the transport. */
  timerFired(timer: TimerName, idle: number): void {
    if (!this.context.timers.fired(timer)) return;
    const { lifecycle } = this;
    const event: SessionEvent = { ...TIMEOUTS[timer], timer, idle };
    const fire = table.ON_TIMER[timer];
    if (fire) {
      lifecycle._noteLate(timer);
      fire(lifecycle, event);
    } else if (timer !== 'hold') {
      this.operations?.timerFired(timer);
    } else if (lifecycle._attempts._shortenLater) {
      table.onCalled(lifecycle, event);
    }
    this._endStep();
  }

  /**
   * A frame arrived. Input from the network never throws; frames without a current meaning are
   * ignored.
   *
   * @param at Arrival time by the local clock, Unix milliseconds.
   */
  receive(frame: ServerFrame, at: number): void {
    const { lifecycle, operations, context } = this;
    if (frame.type === 'message') {
      operations?.subscriptions.message(frame.message);
      return;
    }
    if (frame.type !== 'error' && frame.type !== 'auth.error') {
      operations?.receive(frame, at);
    } else if (
      frame.type === 'auth.error' ||
      (lifecycle.state === 'authenticating' && actionOf(frame) !== 'retry')
    ) {
      table.onAuthError(lifecycle, frame);
    } else if (lifecycle.linked) {
      if (endsConnection(frame)) lifecycle._attempts._requestedWait = frame.retry_after_ms ?? 0;
      operations?.rejected(frame);
      // With a `ref`, it concerns a request, whose call may have ended with a timeout.
      if (!frame.ref) context.ports.problem(frame);
    }
    this._endStep();
  }

  // ---------------------------------------------------------------- the end of each call

  /** The program made a call: end a long wait for the next attempt. */
  _called(): void {
    const { lifecycle, context } = this;
    const { _attempts: attempts } = lifecycle;
    if (!attempts._canShorten) return;
    attempts._shortenLater = context.timers.has('hold');
    if (!attempts._shortenLater) table.onCalled(lifecycle, {});
  }

  /** End a call: finish a session that waits for its publishes and has settled all. */
  _endStep(): void {
    const { lifecycle } = this;
    if (lifecycle._draining && !lifecycle._unsettled) table.onDrained(lifecycle, {});
  }
}

/** A session with its operations. */
export type OperatedSession = Session & { readonly operations: Operations };
