/**
 * The life of a session: the generated table, what its guards ask and what its actions do.
 *
 * Nothing here has a clock, a socket, a task or randomness of its own: timers are ports by name, and
 * `random` is an argument, drawn once for each delay.
 */

import { CLIENT } from '../generated/defaults.js';
import {
  type Action,
  type Event,
  FINAL,
  INITIAL,
  publicState,
  type State,
  type Steps,
} from '../generated/lifecycle.js';
import type { AuthFrame, AuthOkFrame, ClientInfo } from '../generated/wire.js';
import { compact, type Loose } from '../wire/compact.js';
import { actionOf, codeOf, type Occasion, unexplained } from './causes.js';
import type { Context } from './context.js';
import type { OwnPresence } from './own_presence.js';
import { readPeer } from './peer.js';
import type { Rejected, TimerName, TransportName } from './ports.js';
import type { Publishes } from './publishes.js';
import type { Subscriptions } from './subscriptions.js';
import { ROWS, type Row } from './table.js';

const NORMAL = 1000;

/** Close code of a client that is going to come back, so that its presence is not ended at once. */
const RECONNECTS = 4000;

/** Longest wait that a server may impose, milliseconds. */
const MAX_RETRY_AFTER = 3_600_000;

/** Milliseconds. An outage of 25 s allows waits of up to 4 s, one of 70 s waits of up to 30 s. */
const UNHURRIED = 160_000;

/** Longest timer that every platform has, milliseconds: 24.8 days. */
const MAX_TIMER = 2 ** 31 - 1;

/** Milliseconds between two calls for a token that notices of the server lead to. */
const NOTICE_INTERVAL = 1_000;

/** The option that says how long a timer is. */
const AFTER = {
  fetch: 'fetchTimeout',
  open: 'openTimeout',
  ping: 'pingInterval',
  pong: 'pongTimeout',
  stable: 'stableAfter',
  suspend: 'suspendAfter',
  fallback: 'fallbackAfter',
  drain: 'closeTimeout',
} as const;

const noToken = (): undefined => undefined;

/** Fires rows of the table, and knows what their guards and actions mean. */
export class Lifecycle implements Steps<Occasion> {
  state: State = INITIAL;
  /** Rows that fired, as `state event number`; undefined: not recorded. */
  fired: Set<string> | undefined;
  /** The part that a client without presence does not have. */
  ownPresence: OwnPresence | undefined;
  /** A transport is being opened, or open. */
  linked = false;
  isDraining = false;
  /** Milliseconds the server asked for before it ended the connection, or is about to. */
  stayAway = 0;
  private readonly _steps: Steps<Occasion> = this;
  /** Subscriptions of the transport may come and go one by one. */
  private _incremental = true;
  /** Disconnected longer than history is certain to last. */
  private _overdue = false;
  /** Milliseconds that the token was said to last when it came. */
  private _life: number | undefined;
  /** Milliseconds that it had left when a server first took it. */
  private _span: number | undefined;
  /** When a notice last led to a call for a token, or is about to; Unix milliseconds. */
  private _noticed = Number.NaN;
  /** The number of the call for a token that is not answered; 0 for none (AUTH-1, AUTH-2). */
  private _call = 0;
  private _retryIn: number | undefined;
  /** Milliseconds of the wait that no call of the program saves. */
  private _firmWait = 0;
  private _attempt = 0;
  /** The next attempt is so far away that a call brings it forward. */
  private _sleeping = false;
  /** One came too early for it. */
  private _called = false;
  /** HTTP has answered since the last WebSocket that failed. */
  private _answered = false;
  private _asking = false;
  /** WebSockets that failed one after the other, while HTTP answered between them. */
  private _failures = 0;
  /** A WebSocket has worked in this process. */
  private _hasOpened = false;
  /** The present connection has. */
  private _works = false;
  /** The time within which the first WebSocket should open has passed. */
  private _late = false;
  /**
   * Length of the outage in milliseconds, counted without a clock: waits and late openings since
   * the last connection that was of use.
   */
  private _apart = 0;
  /** Milliseconds of the present wait that a call of the program saves. */
  private _unslept = 0;
  private _probes = 0;
  /** Milliseconds that the pong may take which is awaited. */
  private _pongLimit: number;
  // Inside a function, where no inspector and no serializer shows it.
  private _token: () => string | undefined = noToken;
  private _calls = 0;
  private _failedCalls = 0;
  private _rejected = false;
  private _transport: TransportName;
  private _stable = false;
  private _replaced = false;
  private _clientId: string | undefined;

  constructor(
    private readonly _context: Context,
    private readonly _subscriptions: Subscriptions,
    private readonly _publishes: Publishes,
  ) {
    const { pongTimeout, transport } = _context.options;
    this._pongLimit = pongTimeout;
    this._transport = transport === 'sse' ? 'sse' : 'websocket';
  }

  // ---------------------------------------------------------------- what happens

  /** Whether the session has ended. */
  get over(): boolean {
    return FINAL.has(this.state);
  }

  /** Take the first row whose guards hold; a pair without one has no meaning now. */
  fire(name: Event, occasion: Occasion): void {
    const pair = `${this.state} ${name}`;
    const rows = ROWS.get(pair) ?? [];
    const n = rows.findIndex(({ guards }) => guards.every((guard) => this._steps[guard](occasion)));
    const row = rows[n];
    if (!row) return;
    this.fired?.add(`${pair} ${n}`);
    this._take(row, occasion);
  }

  /** The program wants a connection; `opened`: a WebSocket to this address has worked before. */
  connect(opened: boolean): void {
    this._hasOpened ||= opened;
    this.fire('connect', {});
    this.hurry();
  }

  /** The HTTP address was asked whether it answers as a PubSub service. */
  answered(ok: boolean, occasion: Occasion): void {
    this._asking = false;
    this._answered = ok;
    if (!ok) this._failures = 0;
    this.fire('answered', occasion);
  }

  /** The machine slept, or the network is back; `rested`: the token is as good as it was. */
  woke(rested: boolean): void {
    if (this._life !== undefined && this._context.options.renewable && !rested) {
      this.forgetToken({}); // the length of the sleep is unknown
    }
    this.fire('woke', {});
  }

  /** The token callback answered a call, or failed; other calls have no meaning any more. */
  tokenAnswered(call: number, name: 'token' | 'tokenFailed', occasion: Occasion): void {
    if (call === this._call) {
      this._call = 0;
      this._context.timers.stop('fetch');
      this.fire(name, occasion);
    }
  }

  /** The transport is open. */
  opened(incremental: boolean): void {
    if (!this.linked) return;
    this._incremental = incremental;
    this.fire('opened', {});
  }

  /** The transport is gone, or could not be opened. */
  dropped(occasion: Occasion): void {
    if (!this.linked) return;
    this.linked = false;
    this.fire('dropped', occasion);
  }

  /** A timer of the table, or `hold`, has run out. */
  timerFired(name: Exclude<TimerName, 'pace' | 'rejoin' | 'grace'>, occasion: Occasion): void {
    if (name === 'hold') {
      if (this._called) this.fire('called', occasion);
      return;
    }
    if (name === 'suspend') {
      this._overdue = true;
      this._apart = Math.max(this._apart, this._context.options.suspendAfter);
    }
    this._late ||= name === 'fallback';
    this.fire(`@${name}`, occasion);
  }

  /** The server took the token: what it says of itself. */
  authenticated(frame: AuthOkFrame, at: number): void {
    const peer = readPeer(frame, this._incremental, at);
    this.fire('auth.ok', { at, peer });
  }

  /** The program called: a long wait for the next attempt ends. */
  hurry(): void {
    if (!this._sleeping) return;
    this._called = this._context.timers.has('hold');
    if (!this._called) this.fire('called', {});
  }

  /** The connection is of use: earlier failures do not count any more. */
  provesWell(always = false): void {
    if (this._works && !always) return;
    this._works = true;
    this._apart = 0;
    if (this._transport === 'sse') return;
    this._failures = this._probes = 0;
    this._answered = false;
  }

  private _take({ to, actions }: Row, occasion: Occasion): void {
    const { ports, timers } = this._context;
    const from = this.state;
    this._plan(actions, occasion);
    this.state = to;
    if (to !== from) {
      const { code, reason } = occasion;
      const about = { code, reason, retryIn: this._retryIn, attempt: this._attempt };
      ports.stateChanged({ from, to, public: publicState(to), ...about });
    }
    for (const action of actions) {
      const timer = action.slice(1) as keyof typeof AFTER;
      if (action[0] === '-') timers.stop(timer);
      else if (action[0] === '+') this._start(timer);
      else this._steps[action as Action](occasion);
    }
  }

  /** Compute what a change of state says of the next attempt, before anything is done. */
  private _plan(actions: Row['actions'], occasion: Occasion): void {
    this._retryIn = actions.includes('retryNow') ? 0 : undefined;
    if (actions.includes('resetRetry')) this._attempt = this._apart = 0;
    if (!actions.includes('scheduleRetry')) return;
    const { callInterval, openTimeout } = this._context.options;
    const { retryAfter = 0, timer } = occasion;
    this._countCall(occasion);
    if (timer === 'open') this._apart += openTimeout;
    const asked = Math.min(MAX_RETRY_AFTER, Math.max(retryAfter, this.stayAway));
    const wait = Math.max(this._retryDelay(), asked);
    this._attempt += 1;
    this._apart += wait;
    this._retryIn = wait;
    this._firmWait = Math.max(callInterval, asked);
  }

  // ---------------------------------------------------------------- guards

  /** The error or close code says that the token is at fault. */
  authFault(occasion: Occasion): boolean {
    return actionOf(occasion) === 'reauth';
  }

  /** The token is a fixed one (AUTH-4). */
  cannotRenew(): boolean {
    return !this._context.options.renewable;
  }

  /** The user has asked for the end, after what is published has been settled. */
  draining(): boolean {
    return this.isDraining;
  }

  /** The error or close code says that another try is pointless (LIFE-9). */
  finalError(occasion: Occasion): boolean {
    return actionOf(occasion) === 'stop';
  }

  /** Another connection took our place, though we opened none: once it may be a mistake. */
  firstReplaced({ code }: Occasion): boolean {
    return code === 4409 && !this._replaced;
  }

  /** More than half of the token's life is left: another one might end as soon. */
  fresh({ left }: Occasion): boolean {
    return Number(left) > Number(this._span) / 2;
  }

  /** A token is held. */
  hasToken(): boolean {
    return this._token() !== undefined;
  }

  /** The server answers pings on this transport; an event stream has none. */
  hasPings(): boolean {
    return this._incremental;
  }

  /**
   * Something has come since the ping; an event stream, which has none, is given longer.
   *
   * Without a subscription there is no stream from which anything could come.
   */
  heard({ idle = 0 }: Occasion): boolean {
    if (this._incremental) return idle < this._pongLimit;
    return !this._subscriptions.size || idle < this._pongLimit + this._context.options.pingInterval;
  }

  /** The HTTP address has answered as a PubSub service since a WebSocket failed last. */
  httpAnswers(): boolean {
    return this._answered;
  }

  /** The first WebSocket is not open in the time that it has. */
  late(): boolean {
    return this._late;
  }

  /** The transport is a WebSocket, and the user leaves the choice to us. */
  mayFallBack(): boolean {
    return this._context.options.transport === 'auto' && this._transport === 'websocket';
  }

  /** Disconnected longer than history is certain to last. */
  overdue(): boolean {
    return this._overdue;
  }

  /** A WebSocket could be opened. */
  reachable({ ok }: Occasion): boolean {
    return ok ?? false;
  }

  /** The token callback refuses permanently (AUTH-3). */
  refused({ refused }: Occasion): boolean {
    return refused ?? false;
  }

  /** A publish has no outcome yet. */
  unsettled(): boolean {
    return this._publishes.size > 0;
  }

  // ---------------------------------------------------------------- actions: token

  /**
   * Call for a token, unless a call is in flight, or a fixed token could only come again.
   *
   * A server may send many notices that the token expires; those that come too soon are answered by
   * one call together.
   */
  fetchToken(occasion: Occasion): void {
    const expiring = this.state === 'connected';
    if (this._call || (expiring && this.cannotRenew())) return;
    const { at } = occasion;
    if (at !== undefined) {
      const due = this._noticed > at ? this._noticed : this._noticed + NOTICE_INTERVAL;
      const wait = due - at > 0 && due - at <= NOTICE_INTERVAL ? due - at : 0;
      this._noticed = at + wait;
      if (wait) {
        this._context.timers.start('refresh', wait);
        return;
      }
    }
    this._calls += 1;
    this._call = this._calls;
    const reason = expiring ? 'expiring' : this._rejected ? 'rejected' : 'connect';
    this._context.ports.fetchToken(this._call, reason, this._failedCalls);
    this._start('fetch');
  }

  /** Give the call up. */
  abandonFetch(): void {
    if (!this._call) return;
    this._failedCalls += 1;
    this._context.ports.abandonFetch(this._call);
    this._call = 0;
  }

  /** Call again after a while; until it ends, the token at hand is good. */
  scheduleRefetch(occasion: Occasion): void {
    this._countCall(occasion);
    this._context.timers.start('refresh', this._delay(this._failedCalls - 1));
  }

  /** Hold the token, as long as it lasts. */
  keepToken({ token, expiresIn }: Occasion): void {
    this._token = () => token;
    this._life = expiresIn;
    this._span = undefined;
    this._failedCalls = 0;
    this._rejected = false;
    this._restart('expiry', expiresIn);
  }

  /** Hold none; if the server refused it, tell the callback. */
  forgetToken({ kind }: Occasion): void {
    this._dropToken();
    if (kind === 'dropped' || kind === 'frame') this._rejected = true;
    this._context.timers.stop('expiry', 'refresh');
  }

  /** Present the token, and the name under which presence knows us. */
  sendAuth(): void {
    this._context.ports.send(this._auth(this._clientId));
  }

  // ---------------------------------------------------------------- actions: connection

  /** Open a transport. */
  dial(): void {
    this.linked = true;
    this.stayAway = 0;
    this._sleeping = this._works = false;
    this._context.timers.stop('hold');
    this._context.ports.dial(this._transport);
  }

  /** Close the transport, if there is one. */
  hangUp(): void {
    if (!this.linked) return;
    this.linked = false;
    this._context.ports.hangUp(this.over ? NORMAL : RECONNECTS);
  }

  /** The server knows us; learn what it can do. */
  accept(occasion: Occasion): void {
    this._stable = this._overdue = this._late = false;
    this._hasOpened ||= this._incremental;
    this._meet(occasion);
    this._publishes.connected();
    this._watchToken(occasion);
  }

  /** The server took the new token. */
  renew(occasion: Occasion): void {
    this._meet(occasion);
    this._watchToken(occasion);
  }

  /** Request every subscription, and send the own presence again. */
  rejoin(): void {
    this._subscriptions.connected();
    this.ownPresence?.resend();
  }

  /** Send what waited. */
  flush(): void {
    this._publishes.flush();
  }

  /** The connection has ended, or is about to. */
  leave(): void {
    const { timers } = this._context;
    timers.stop('ping', 'pong', 'stable', 'refresh', 'pace', 'rejoin', 'grace');
    this._subscriptions.lost();
    this._publishes.lost();
    this.ownPresence?.lost();
    this._context.peer = undefined;
    this.startSuspend();
  }

  /** Send a ping; an event stream sends heartbeats unasked. */
  sendPing(): void {
    this._pongLimit = this._context.options.pongTimeout;
    if (this._incremental) this._context.ports.send({ type: 'ping' });
  }

  /** Send a ping with the short timeout: the connection may be gone. */
  check(): void {
    this._pongLimit = this._context.options.checkTimeout;
    this._context.ports.send({ type: 'ping' });
    this._context.timers.start('pong', this._pongLimit);
  }

  /** See whether a WebSocket can be opened by now. */
  probe(): void {
    this._probes += 1;
    this._context.ports.probe();
  }

  // ---------------------------------------------------------------- actions: choice of transport

  /**
   * One opening failed (LIFE-6).
   *
   * An event stream gives way at once. A WebSocket gives way after some failures between which the
   * HTTP address answered: an address that does not answer at all says nothing about WebSockets,
   * and one without event streams offers no alternative.
   */
  countFailure(occasion: Occasion): void {
    if (this._transport === 'sse') {
      this.changeTransport();
      return;
    }
    if (!occasion.timer && !unexplained(occasion)) return;
    const answered = this._answered;
    this._answered = false;
    if (answered || !this._failures) this._failures += 1;
    const { shortLife, fallbackFailures } = this._context.options;
    if (answered && this._failures >= (this._hasOpened ? shortLife : fallbackFailures)) {
      this.changeTransport();
    } else {
      this.probeHttp();
    }
  }

  /** One connection died: before it was of any use, that counts as an opening that failed. */
  countShortLife(occasion: Occasion): void {
    if (!this._stable && !this._works) this.countFailure(occasion);
  }

  /** See whether an event stream would serve where the WebSocket does not. */
  probeHttp(): void {
    if (this._asking || !this.mayFallBack() || !this.hasToken()) return;
    this._asking = true;
    this._context.ports.probeHttp(compact(this._auth()));
  }

  /** Until a connection is stable, the next time is final. */
  noteReplaced(): void {
    this._replaced = true;
  }

  /** Take the event stream; or the WebSocket, on the event stream. */
  changeTransport(): void {
    this._context.timers.stop('upgrade');
    this._failures = 0;
    this._answered = this._hasOpened = false;
    if (this._context.options.transport === 'auto') {
      this._transport = this.mayFallBack() ? 'sse' : 'websocket';
    }
  }

  /** Take the WebSocket while the event stream serves, which one failure brings back. */
  upgrade(): void {
    this.changeTransport();
    this._failures = this._context.options.fallbackFailures - 1;
    this._answered = true;
  }

  // ---------------------------------------------------------------- actions: attempts

  /** Wait before the next attempt, longer each time, never less than the server asked. */
  scheduleRetry(): void {
    const { timers } = this._context;
    const wait = this._retryIn ?? 0;
    timers.start('retry', wait);
    this._called = false;
    this._sleeping = wait > this._firmWait;
    if (!this._sleeping) return;
    this._unslept = wait - this._firmWait;
    timers.start('hold', this._firmWait);
  }

  /** A call of the program ends the wait early. */
  cutWait(): void {
    this._apart -= this._unslept;
  }

  /** Do not wait before the next attempt. */
  retryNow(): void {
    this._context.timers.start('retry', 0);
  }

  /** Attempts count from 0 again, as planned. */
  resetRetry(): void {
    if (this.state === 'connected') {
      this._stable = true;
      this._replaced = false;
      this.provesWell(true);
    }
  }

  /** Give what is published some time to be settled. */
  startDrain(): void {
    if (this.isDraining) return;
    this.isDraining = true;
    this._start('drain');
  }

  // ---------------------------------------------------------------- actions: timers

  /** A WebSocket that is not open by then gives way. */
  startFallback(): void {
    if (this.mayFallBack() && !this._hasOpened) {
      this._start('fallback');
    }
  }

  /** Start the timer after which a disconnected session is suspended. */
  startSuspend(): void {
    if (!this._context.timers.has('suspend') && !this._overdue) {
      this._start('suspend');
    }
  }

  /** Probe for a WebSocket after so long on the fallback, however often its stream is cut. */
  startUpgrade(): void {
    const { options, timers } = this._context;
    const { transport, upgradeAfter, upgradeCap } = options;
    if (this._transport !== 'sse' || transport !== 'auto' || timers.has('upgrade')) return;
    const after = Math.min(upgradeAfter * 2 ** this._probes, Math.max(upgradeAfter, upgradeCap));
    timers.start('upgrade', after);
  }

  // ---------------------------------------------------------------- actions: the end

  /** No timer and no call may outlive the session. */
  stopAll(): void {
    this._subscriptions.lost();
    this._context.peer = undefined;
    this._context.timers.stopAll();
    this.abandonFetch();
  }

  /** End with an error that a retry cannot fix. */
  fail({ code: given, reason: message = '', remedy }: Occasion): void {
    const code = typeof given === 'string' ? given : codeOf(given);
    this._end({ kind: 'rejected', code, message, remedy });
  }

  /** End as asked. */
  finish(): void {
    this._end();
  }

  // ---------------------------------------------------------------- inside

  private _dropToken(): void {
    this._token = noToken;
    this._life = undefined;
  }

  private _end(error?: Rejected): void {
    const unsent: Rejected = error ?? {
      kind: 'rejected',
      code: 'closed',
      message: 'The client was closed before it could send the message.',
    };
    this._publishes.settleAll(unsent);
    this.ownPresence?.settleAll(unsent);
    this._dropToken();
    this._context.ports.finished(error);
  }

  private _meet({ peer }: Occasion): void {
    if (!peer) return;
    this._clientId = [...peer.clientId].slice(0, 64).join('');
    this._context.peer = peer;
    this._context.ports.welcomed(peer);
  }

  private _countCall({ kind }: Occasion): void {
    if (kind === 'tokenFailed') this._failedCalls += 1;
  }

  /** Full jitter (LIFE-2). */
  private _delay(attempt: number, bound = Infinity): number {
    const { retryBase, retryCap } = this._context.options;
    const ceiling = Math.min(retryCap, retryBase * 2 ** Math.min(attempt, 30), bound);
    return Math.floor(this._context.random() * ceiling);
  }

  /**
   * Draw the wait before the next attempt.
   *
   * Its bound grows with the length of the outage, so that clients return soon after a short outage
   * and are spread out after a long one. It stays low while a publish waits.
   */
  private _retryDelay(): number {
    const apart = this._publishes.outlasts ? 0 : this._apart;
    const grown = Math.floor(apart ** 2 / UNHURRIED);
    return this._delay(this._attempt, Math.max(2 * this._context.options.retryBase, grown));
  }

  /** Who we are, and as which client. */
  private _auth(clientId?: string): Loose<AuthFrame> {
    const { clientName: name, clientVersion: version, clientLang: lang } = this._context.options;
    return {
      type: 'auth',
      token: this._token() as string,
      version: CLIENT.protocolVersion,
      client: { name, version, lang } as ClientInfo,
      client_id: clientId,
    };
  }

  /** Renew the token before it ends; forget it when it has. */
  private _watchToken({ peer }: Occasion): void {
    let life = this._life;
    if (peer?.tokenLife !== undefined) {
      life = peer.tokenLife;
      this._restart('expiry', life);
    }
    this._span ??= life;
    const early =
      life === undefined || this.cannotRenew()
        ? 0
        : Math.max(life - this._context.options.refreshMargin, Math.floor((life * 4) / 5));
    this._restart('refresh', early);
  }

  private _start(timer: keyof typeof AFTER): void {
    this._context.timers.start(timer, this._context.options[AFTER[timer]]);
  }

  private _restart(timer: TimerName, after = 0): void {
    this._context.timers.stop(timer);
    if (0 < after && after <= MAX_TIMER) this._context.timers.start(timer, after);
  }
}
