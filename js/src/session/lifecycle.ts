/**
 * The lifecycle of a session: the guards and actions of the generated module.
 *
 * The session passes events to the functions of that module.
 */

import type { Loose } from '../compact.js';
import { CLIENT } from '../generated/defaults.js';
import {
  INITIAL,
  publicState,
  type State,
  type Steps,
  type Timer,
} from '../generated/lifecycle.js';
import type { AuthFrame } from '../generated/wire.js';
import { Attempts, Credentials, TransportChoice } from './attempts.js';
import { actionOf, codeOf, REFUSED, type SessionEvent, unexplained } from './events.js';
import type { Operations } from './operations.js';
import type { Context, Peer, Rejected, TimerName } from './ports.js';

const NORMAL = 1000;

/** Close code of a client that will reconnect, so that the server keeps its presence. */
export const RECONNECTS = 4000;

/** Close code of a connection that another one has replaced. */
const REPLACED = 4409;

/** The option with the duration of a timer of the lifecycle. */
const AFTER = {
  ping: 'pingInterval',
  pong: 'pongTimeout',
  stable: 'stableAfter',
} as const;

/** The state of a session. */
export class Lifecycle implements Steps<SessionEvent> {
  state: State = INITIAL;
  /** A transport is being opened, or open. */
  linked = false;
  /** Added before a server welcomes the client. */
  operations: Operations | undefined;
  readonly _attempts: Attempts;
  readonly _credentials: Credentials;
  readonly _choice: TransportChoice;
  /** Whether the transport has pings and adds single subscriptions; an event stream does not. */
  _hasPings = true;
  /** The program has asked for the end, or the session has ended: it rejects new calls. */
  _draining = false;
  _overdue = false;
  private _useful = false;
  private _replaced = false;
  /** Milliseconds until the next attempt, for the current state change. */
  private _retryIn: number | undefined;
  /** Timeout of the awaited pong in milliseconds. */
  private _pongLimit = 0;
  /** The id under which the server knows this client, or knew the page before it. */
  _clientId: string | undefined;

  constructor(private readonly _context: Context) {
    this._attempts = new Attempts(_context);
    this._credentials = new Credentials(_context);
    this._choice = new TransportChoice(_context);
  }

  /** The connection is useful: earlier failures no longer count. */
  _noteUseful(): void {
    if (this._useful) return;
    this._useful = true;
    this._attempts._outage = 0;
    this._choice._noteUseful();
  }

  /**
   * The machine was suspended for an unknown time, so the remaining lifetime of the token is
   * unknown.
   */
  _doubtToken(): void {
    if (this._credentials._life !== undefined && this._context.options.renewable) {
      this._forgetToken({});
    }
  }

  /** A timer fired; some show the duration of an outage. */
  _noteLate(timer: TimerName): void {
    if (timer === 'fallback') this._choice._isLate = true;
    if (timer !== 'suspend') return;
    this._overdue = true;
    this._attempts._outage = Math.max(this._attempts._outage, this._context.options.suspendAfter);
  }

  // ---------------------------------------------------------------- states and timers

  _enter(to: State, { code, message: reason }: SessionEvent): void {
    const { state: from, _retryIn: retryIn } = this;
    this.state = to;
    this._retryIn = undefined;
    this._context.ports.stateChanged({
      from,
      to,
      public: publicState(to),
      code,
      reason,
      retryIn,
      attempt: this._attempts._failed,
    });
  }

  _start(timer: keyof typeof AFTER): void {
    this._context.timers.start(timer, this._context.options[AFTER[timer]]);
  }

  _stop(...timers: readonly Timer[]): void {
    this._context.timers.stop(...timers);
  }

  // ---------------------------------------------------------------- guards

  _authFault(event: SessionEvent): boolean {
    return actionOf(event) === 'reauth';
  }

  /** After an error of a fixed token, another attempt is also useless (AUTH-4, LIFE-9). */
  _finalError(event: SessionEvent): boolean {
    return (
      actionOf(event) === 'stop' || (this._authFault(event) && !this._context.options.renewable)
    );
  }

  /** Another connection replaced ours, which we did not open: once may be a mistake. */
  _firstReplaced({ code }: SessionEvent): boolean {
    return code === REPLACED && !this._replaced;
  }

  /** A new token might be rejected as soon. */
  _tokenFresh({ left }: SessionEvent): boolean {
    return (left as number) > (this._credentials._span as number) / 2;
  }

  get _shouldFallBack(): boolean {
    const choice = this._choice;
    return choice._isLate && choice._httpWorks;
  }

  get _hasToken(): boolean {
    return !!this._credentials._token();
  }

  /**
   * Data has arrived since the ping; an event stream, which has no pings, has more time.
   *
   * Without a subscription there is no stream that could deliver data.
   */
  _dataArrived({ idle = 0 }: SessionEvent): boolean {
    if (this._hasPings) return idle < this._pongLimit;
    const { pingInterval } = this._context.options;
    return !this.operations?.subscriptions.all.size || idle < this._pongLimit + pingInterval;
  }

  _reachable({ ok }: SessionEvent): boolean {
    return !!ok;
  }

  /** The token callback refuses permanently (AUTH-3). */
  _refused({ code }: SessionEvent): boolean {
    return code === REFUSED;
  }

  get _unsettled(): boolean {
    return !!this.operations?.publishes.size;
  }

  // ---------------------------------------------------------------- actions: token

  _fetchToken({ at }: SessionEvent): void {
    this._credentials._fetch(this.state === 'connected', at);
  }

  /** Call again after a while; the current token is used until it expires. */
  _scheduleRefetch(): void {
    const wait = this._attempts._delay(this._credentials._failed - 1);
    this._context.timers.start('refresh', wait);
  }

  _keepToken({ token, expiresIn }: SessionEvent): void {
    this._credentials._keep(token, expiresIn);
  }

  /** Drop the token; if the server rejected it, inform the callback. */
  _forgetToken(event: SessionEvent): void {
    this._credentials._forget();
    this._credentials._rejected = this._authFault(event);
    this._stop('expiry', 'refresh');
  }

  /** Send the token, and the client id for presence. */
  _sendAuth(): void {
    this._context.ports.send(this._auth(this._clientId));
  }

  // ---------------------------------------------------------------- actions: connection

  _dial(): void {
    const { ports, timers, options } = this._context;
    timers.start('open', options.openTimeout);
    this.linked = true;
    this._attempts._requestedWait = 0;
    this._attempts._canShorten = this._useful = false;
    timers.stop('hold');
    ports.dial(this._choice._name);
  }

  /** The server authenticated the client: record its features. */
  _accept(event: SessionEvent): void {
    this._stop('open', 'suspend', 'fallback');
    this._overdue = this._choice._isLate = false;
    this._choice._hasOpened = this._hasPings;
    this._renew(event);
  }

  /** The server accepted the token. */
  _renew(event: SessionEvent): void {
    const { _context: context } = this;
    const peer = event.peer as Peer;
    this._clientId = [...peer.client_id].slice(0, 64).join('');
    context.peer = peer;
    context.ports.welcomed(peer);
    this._credentials._accepted(peer.tokenLife);
  }

  /** Request every subscription, and send the client's own presence again. */
  _rejoin(): void {
    this.operations?.subscriptions.connected();
    this.operations?.ownPresence.connected();
  }

  _flush(): void {
    this.operations?.publishes.connected();
  }

  /** Close the connection, or cancel the attempt to open one. */
  _leave(): void {
    const { timers } = this._context;
    timers.stop('open', 'ping', 'pong', 'stable', 'refresh', 'pace', 'rejoin', 'grace');
    this.operations?.lost();
    this._context.peer = undefined;
    this._startSuspend();
    this._hangUp(RECONNECTS);
  }

  /** Send a ping; an event stream sends heartbeats without pings. */
  _sendPing(): void {
    this._pongLimit = this._context.options.pongTimeout;
    if (this._hasPings) this._context.ports.send({ type: 'ping' });
  }

  /** Send a ping with the short timeout: the connection may be dead. */
  _check(): void {
    this._pongLimit = this._context.options.checkTimeout;
    this._context.ports.send({ type: 'ping' });
    this._context.timers.start('pong', this._pongLimit);
  }

  // ---------------------------------------------------------------- actions: choice of transport

  /** Probe whether a WebSocket can be opened. */
  _probe(): void {
    this._choice._probes += 1;
    this._context.ports.probe();
  }

  /** A connection ended before it was useful (LIFE-6); an event stream is replaced at once. */
  _countFailure(event: SessionEvent): void {
    const choice = this._choice;
    if (this._useful) return;
    if (choice._name === 'sse') choice._change();
    else if ((event.timer === 'open' || unexplained(event)) && choice._countFailure())
      this._probeHttp();
  }

  /** Check whether an event stream would work instead of the WebSocket. */
  _probeHttp(): void {
    const choice = this._choice;
    if (choice._isProbingHttp || !choice._mayFallBack || !this._hasToken) return;
    choice._isProbingHttp = true;
    this._context.ports.probe(this._auth());
  }

  /** Until a connection is stable, the next occurrence is final. */
  _noteReplaced(): void {
    this._replaced = true;
  }

  // ---------------------------------------------------------------- actions: attempts

  /** Draw the wait before the next attempt; it is never shorter than the server requested. */
  _planRetry({ retry_after_ms: retryAfter = 0, timer }: SessionEvent): void {
    if (timer === 'open') this._attempts._outage += this._context.options.openTimeout;
    this._retryIn = this._attempts._plan(retryAfter, this.operations?.publishes.survivesDrop);
  }

  _planNow(): void {
    this._retryIn = this._attempts._wait = 0;
  }

  _resetRetry(): void {
    this._attempts._failed = this._attempts._outage = 0;
  }

  /** The connection is stable: earlier failures no longer count. */
  _noteStable(): void {
    this._replaced = false;
    this._noteUseful();
  }

  /** Start the timeout for settling the publishes. */
  _startDrain({ wait = this._context.options.closeTimeout }: SessionEvent): void {
    if (this._draining) return;
    this._draining = true;
    this._context.timers.start('drain', wait);
  }

  // ---------------------------------------------------------------- actions: timers

  /** Start the timeout after which the client falls back from a WebSocket that is not open. */
  _startFallback(): void {
    const { timers, options } = this._context;
    if (this._choice._mayFallBack && !this._choice._hasOpened) {
      timers.start('fallback', options.fallbackAfter);
    }
  }

  /** Start the timer after which an outage counts as suspended. */
  _startSuspend(): void {
    const { timers, options } = this._context;
    if (!timers.has('suspend') && !this._overdue) timers.start('suspend', options.suspendAfter);
  }

  // ---------------------------------------------------------------- actions: the end

  /** End with an error that a retry cannot fix. */
  _fail({ code, message = '', remedy }: SessionEvent): void {
    this._end({ kind: 'rejected', code: codeOf(code), message, remedy });
  }

  _finish(): void {
    this._end();
  }

  // ---------------------------------------------------------------- inside

  private _hangUp(code: number): void {
    if (!this.linked) return;
    this.linked = false;
    this._context.ports.hangUp(code);
  }

  /** Stop all timers, calls and the transport; settle the remaining publishes. */
  private _end(error?: Rejected): void {
    this._draining = true;
    this._context.timers.stopAll();
    this._credentials._abandon();
    this._hangUp(NORMAL);
    this.operations?.finish(error);
    this._context.peer = undefined;
    this._context.ports.finished(error);
  }

  /** The `auth` frame for the current token. */
  private _auth(clientId?: string): Loose<AuthFrame> {
    return {
      type: 'auth',
      token: this._credentials._token() as string,
      version: CLIENT.protocolVersion,
      client: this._context.options.client,
      client_id: clientId,
    };
  }
}
