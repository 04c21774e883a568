/**
 * The life of a session: what the generated lifecycle asks, and what its steps do.
 *
 * Nothing here has a clock, a socket, a task or randomness of its own: timers are ports by name, and
 * `random` is an argument, drawn once for each delay.
 */

import { CLIENT } from '../generated/defaults.js';
import {
  INITIAL,
  ON_TIMER,
  onAnswered,
  onAuthOk,
  onCalled,
  onConnect,
  onDropped,
  onOpened,
  onToken,
  onTokenFailed,
  onWoke,
  publicState,
  type State,
  type Steps,
  type Timer,
} from '../generated/lifecycle.js';
import type { AuthFrame, AuthOkFrame, ClientInfo } from '../generated/wire.js';
import { compact, type Loose } from '../wire/compact.js';
import { Attempts } from './attempts.js';
import { actionOf, codeOf, type Occasion, unexplained } from './causes.js';
import type { Context } from './context.js';
import { Credentials } from './credentials.js';
import type { OwnPresence } from './own_presence.js';
import { readPeer } from './peer.js';
import type { Rejected } from './ports.js';
import type { Publishes } from './publishes.js';
import type { Subscriptions } from './subscriptions.js';
import { TransportChoice } from './transport_choice.js';

const NORMAL = 1000;

/** Close code of a client that is going to come back, so that its presence is not ended at once. */
const RECONNECTS = 4000;

/** Close code of a connection whose place another one took. */
const REPLACED = 4409;

/** The option that says how long a timer of the lifecycle is. */
const AFTER = {
  ping: 'pingInterval',
  pong: 'pongTimeout',
  stable: 'stableAfter',
} as const;

/** The state of a session. */
export class Lifecycle implements Steps<Occasion> {
  state: State = INITIAL;
  /** The session has ended. */
  over = false;
  /** A transport is being opened, or open. */
  linked = false;
  /** The part that a client without presence does not have. */
  ownPresence: OwnPresence | undefined;
  readonly attempts: Attempts;
  _draining = false;
  _overdue = false;
  private readonly _credentials: Credentials;
  private readonly _choice: TransportChoice;
  /** Subscriptions of the transport may come and go one by one. */
  private _incremental = true;
  /** The present connection has been of use. */
  private _works = false;
  private _stable = false;
  private _replaced = false;
  /** Milliseconds until the next attempt, for the change of state at hand. */
  private _retryIn: number | undefined;
  /** Milliseconds that the pong may take which is awaited. */
  private _pongLimit: number;
  private _clientId: string | undefined;

  constructor(
    private readonly _context: Context,
    private readonly _subscriptions: Subscriptions,
    private readonly _publishes: Publishes,
  ) {
    this.attempts = new Attempts(_context);
    this._credentials = new Credentials(_context);
    this._choice = new TransportChoice(_context);
    this._pongLimit = _context.options.pongTimeout;
  }

  // ---------------------------------------------------------------- what happens

  /** The program wants a connection; `opened`: a WebSocket to this address has worked before. */
  connect(opened: boolean): void {
    this._choice._hasOpened ||= opened;
    onConnect(this, {});
    this.hurry();
  }

  /** The program called: a long wait for the next attempt ends. */
  hurry(): void {
    const { attempts } = this;
    if (!attempts._sleeping) return;
    attempts._called = this._context.timers.has('hold');
    if (!attempts._called) onCalled(this, {});
  }

  /** The token callback answered a call, or (`failed`) it failed. */
  tokenAnswered(call: number, occasion: Occasion, failed: boolean): void {
    if (this._credentials._answered(call)) (failed ? onTokenFailed : onToken)(this, occasion);
  }

  /** The transport is open. */
  opened(incremental: boolean): void {
    if (!this.linked) return;
    this._incremental = incremental;
    onOpened(this, {});
  }

  /** The transport is gone, or could not be opened. */
  dropped(occasion: Occasion): void {
    if (!this.linked) return;
    this.linked = false;
    onDropped(this, occasion);
  }

  /** The HTTP address was asked whether it answers as a PubSub service. */
  answered(ok: boolean, occasion: Occasion): void {
    this._choice._httpAnswered(ok);
    onAnswered(this, occasion);
  }

  /** The machine slept, or the network is back; `rested`: the token is as good as it was. */
  woke(rested: boolean): void {
    // The length of the sleep is unknown.
    const isDoubtful = this._credentials._life !== undefined && this._context.options.renewable;
    if (isDoubtful && !rested) this._forgetToken({});
    onWoke(this, {});
  }

  /** A timer of the lifecycle, or `hold`, has run out. */
  timerFired(name: Timer | 'hold', occasion: Occasion): void {
    const { attempts } = this;
    if (name === 'hold') {
      if (attempts._called) onCalled(this, occasion);
      return;
    }
    if (name === 'suspend') {
      this._overdue = true;
      attempts._outage = Math.max(attempts._outage, this._context.options.suspendAfter);
    }
    this._choice._late ||= name === 'fallback';
    ON_TIMER[name](this, occasion);
  }

  /** The server took the token: what it says of itself. */
  authenticated(frame: AuthOkFrame, at: number): void {
    onAuthOk(this, { peer: readPeer(frame, this._incremental, at) });
  }

  /** The connection is of use: earlier failures do not count any more. */
  provesWell(always = false): void {
    if (this._works && !always) return;
    this._works = true;
    this.attempts._outage = 0;
    this._choice._provesWell();
  }

  // ---------------------------------------------------------------- states and timers

  _enter(to: State, { code, reason }: Occasion): void {
    const { state: from, _retryIn: retryIn } = this;
    this.state = to;
    this._retryIn = undefined;
    const about = { code, reason, retryIn, attempt: this.attempts._failed };
    this._context.ports.stateChanged({ from, to, public: publicState(to), ...about });
  }

  _start(timer: keyof typeof AFTER): void {
    this._context.timers.start(timer, this._context.options[AFTER[timer]]);
  }

  _stop(...timers: readonly Timer[]): void {
    this._context.timers.stop(...timers);
  }

  // ---------------------------------------------------------------- guards

  _authFault(occasion: Occasion): boolean {
    return actionOf(occasion) === 'reauth';
  }

  /** Where it faults a fixed token, another try is pointless, too (AUTH-4, LIFE-9). */
  _finalError(occasion: Occasion): boolean {
    const action = actionOf(occasion);
    return action === 'stop' || (action === 'reauth' && !this._context.options.renewable);
  }

  /** Another connection took our place, though we opened none: once it may be a mistake. */
  _firstReplaced({ code }: Occasion): boolean {
    return code === REPLACED && !this._replaced;
  }

  /** Another token might end as soon. */
  _fresh({ left }: Occasion): boolean {
    return Number(left) > Number(this._credentials._span) / 2;
  }

  get _givesWay(): boolean {
    const { _late, _mayFallBack, _answered } = this._choice;
    return _late && _mayFallBack && _answered;
  }

  get _hasToken(): boolean {
    return this._credentials._token() !== undefined;
  }

  get _hasPings(): boolean {
    return this._incremental;
  }

  /**
   * Something has come since the ping; an event stream, which has none, is given longer.
   *
   * Without a subscription there is no stream from which anything could come.
   */
  _heard({ idle = 0 }: Occasion): boolean {
    if (this._incremental) return idle < this._pongLimit;
    return !this._subscriptions.size || idle < this._pongLimit + this._context.options.pingInterval;
  }

  _reachable({ ok = false }: Occasion): boolean {
    return ok;
  }

  /** The token callback refuses permanently (AUTH-3). */
  _refused({ refused = false }: Occasion): boolean {
    return refused;
  }

  get _unsettled(): boolean {
    return this._publishes.size > 0;
  }

  // ---------------------------------------------------------------- actions: token

  _fetchToken({ at }: Occasion): void {
    this._credentials._fetch(this.state === 'connected', at);
  }

  _abandonFetch(): void {
    this._credentials._abandon();
  }

  /** Call again after a while; until it ends, the token at hand is good. */
  _scheduleRefetch(occasion: Occasion): void {
    this._countCall(occasion);
    const wait = this.attempts._delay(this._credentials._failed - 1);
    this._context.timers.start('refresh', wait);
  }

  _keepToken({ token, expiresIn }: Occasion): void {
    this._credentials._keep(token, expiresIn);
  }

  /** Hold no token; if the server refused it, tell the callback. */
  _forgetToken({ kind }: Occasion): void {
    this._credentials._forget();
    this._credentials._rejected ||= kind === 'dropped' || kind === 'frame';
    this._stop('expiry', 'refresh');
  }

  /** Present the token, and the name under which presence knows us. */
  _sendAuth(): void {
    this._context.ports.send(this._auth(this._clientId));
  }

  // ---------------------------------------------------------------- actions: connection

  /** Open a transport. */
  _dial(): void {
    const { ports, timers, options } = this._context;
    timers.start('open', options.openTimeout);
    this.linked = true;
    this.attempts._stayAway = 0;
    this.attempts._sleeping = this._works = false;
    timers.stop('hold');
    ports.dial(this._choice._name);
  }

  /** The server knows us; learn what it can do. */
  _accept(occasion: Occasion): void {
    this._stop('open', 'suspend', 'fallback');
    this._stable = this._overdue = this._choice._late = false;
    this._choice._hasOpened ||= this._incremental;
    this._renew(occasion);
  }

  /** The server took the token. */
  _renew({ peer }: Occasion): void {
    const { _context: context } = this;
    const isNew = !context.peer;
    this._clientId = [...(peer?.clientId ?? '')].slice(0, 64).join('');
    context.peer = peer;
    if (peer) context.ports.welcomed(peer);
    if (isNew) this._publishes.connected();
    this._credentials._taken(peer?.tokenLife);
  }

  /** Request every subscription, and send the own presence again. */
  _rejoin(): void {
    this._subscriptions.connected();
    this.ownPresence?.resend();
  }

  /** Send what waited. */
  _flush(): void {
    this._publishes.flush();
  }

  /** End the connection, or the attempt to open one. */
  _leave(): void {
    const { timers } = this._context;
    timers.stop('open', 'ping', 'pong', 'stable', 'refresh', 'pace', 'rejoin', 'grace');
    this._subscriptions.lost();
    this._publishes.lost();
    this.ownPresence?.lost();
    this._context.peer = undefined;
    this._startSuspend();
    this._hangUp(RECONNECTS);
  }

  /** Send a ping; an event stream sends heartbeats unasked. */
  _sendPing(): void {
    this._pongLimit = this._context.options.pongTimeout;
    if (this._incremental) this._context.ports.send({ type: 'ping' });
  }

  /** Send a ping with the short timeout: the connection may be gone. */
  _check(): void {
    this._pongLimit = this._context.options.checkTimeout;
    this._context.ports.send({ type: 'ping' });
    this._context.timers.start('pong', this._pongLimit);
  }

  // ---------------------------------------------------------------- actions: choice of transport

  /** See whether a WebSocket can be opened by now. */
  _probe(): void {
    this._choice._probes += 1;
    this._context.ports.probe();
  }

  /** One opening failed (LIFE-6); an event stream gives way at once. */
  _countFailure(occasion: Occasion): void {
    const choice = this._choice;
    if (choice._name === 'sse') choice._change();
    else if ((occasion.timer || unexplained(occasion)) && choice._failed()) this._probeHttp();
  }

  /** One connection died: before it was of any use, that counts as an opening that failed. */
  _countShortLife(occasion: Occasion): void {
    if (!this._stable && !this._works) this._countFailure(occasion);
  }

  /** See whether an event stream would serve where the WebSocket does not. */
  _probeHttp(): void {
    const choice = this._choice;
    if (choice._asking || !choice._mayFallBack || !this._hasToken) return;
    choice._asking = true;
    this._context.ports.probeHttp(compact(this._auth()));
  }

  /** Until a connection is stable, the next time is final. */
  _noteReplaced(): void {
    this._replaced = true;
  }

  _changeTransport(): void {
    this._choice._change();
  }

  _upgrade(): void {
    this._choice._upgrade();
  }

  // ---------------------------------------------------------------- actions: attempts

  /** Wait before the next attempt, longer each time, never less than the server asked. */
  _planRetry(occasion: Occasion): void {
    const { retryAfter = 0, timer } = occasion;
    this._countCall(occasion);
    const late = timer === 'open' ? this._context.options.openTimeout : 0;
    this._retryIn = this.attempts._plan(retryAfter, late, this._publishes.outlasts);
  }

  /** Do not wait before the next attempt. */
  _planNow(): void {
    this._retryIn = this.attempts._skip();
  }

  _startRetry(): void {
    this.attempts._schedule();
  }

  /** A call of the program ends the wait early. */
  _cutWait(): void {
    this.attempts._cut();
  }

  /** Attempts count from 0 again. */
  _resetRetry(): void {
    this.attempts._failed = this.attempts._outage = 0;
  }

  /** The connection is stable: what failed before does not count any more. */
  _noteStable(): void {
    this._stable = true;
    this._replaced = false;
    this.provesWell(true);
  }

  /** Give what is published some time to be settled. */
  _startDrain(): void {
    if (this._draining) return;
    this._draining = true;
    this._context.timers.start('drain', this._context.options.closeTimeout);
  }

  // ---------------------------------------------------------------- actions: timers

  /** A WebSocket that is not open by then gives way. */
  _startFallback(): void {
    const { timers, options } = this._context;
    if (this._choice._mayFallBack && !this._choice._hasOpened) {
      timers.start('fallback', options.fallbackAfter);
    }
  }

  /** Start the timer after which a disconnected session is suspended. */
  _startSuspend(): void {
    const { timers, options } = this._context;
    if (!timers.has('suspend') && !this._overdue) timers.start('suspend', options.suspendAfter);
  }

  _startUpgrade(): void {
    this._choice._startUpgrade();
  }

  // ---------------------------------------------------------------- actions: the end

  /** End with an error that a retry cannot fix. */
  _fail({ code: given, reason: message = '', remedy }: Occasion): void {
    const code = typeof given === 'string' ? given : codeOf(given);
    this._end({ kind: 'rejected', code, message, remedy });
  }

  /** End as asked. */
  _finish(): void {
    this._end();
  }

  // ---------------------------------------------------------------- inside

  /** Close the transport, if there is one. */
  private _hangUp(code: number): void {
    if (!this.linked) return;
    this.linked = false;
    this._context.ports.hangUp(code);
  }

  /** Let no timer, no call and no transport outlive the session; settle what is left. */
  private _end(error?: Rejected): void {
    const unsent: Rejected = error ?? {
      kind: 'rejected',
      code: 'closed',
      message: 'The client was closed before it could send the message.',
    };
    this.over = true;
    this._subscriptions.lost();
    this._context.peer = undefined;
    this._context.timers.stopAll();
    this._credentials._abandon();
    this._hangUp(NORMAL);
    this._publishes.settleAll(unsent);
    this.ownPresence?.settleAll(unsent);
    this._credentials._forget();
    this._context.ports.finished(error);
  }

  private _countCall({ kind }: Occasion): void {
    if (kind === 'tokenFailed') this._credentials._failed += 1;
  }

  /** Who we are, and as which client. */
  private _auth(clientId?: string): Loose<AuthFrame> {
    const { clientName: name, clientVersion: version, clientLang: lang } = this._context.options;
    return {
      type: 'auth',
      token: this._credentials._token() as string,
      version: CLIENT.protocolVersion,
      client: { name, version, lang } as ClientInfo,
      client_id: clientId,
    };
  }
}
