/**
 * What the guards of the lifecycle table ask, and what its actions do.
 *
 * An action tells effects; nothing here has a clock, a socket, a task or randomness of its own:
 * timers are effects by name, and `random` is an argument, drawn once for each delay.
 */

import { CLIENT } from '../generated/defaults.js';
import { FINAL, type Steps } from '../generated/lifecycle.js';
import type { AuthExpiringFrame, AuthFrame, AuthOkFrame, ClientInfo } from '../generated/wire.js';
import { compact, type Loose } from '../wire/compact.js';
import { actionOf, causeOf, codeOf, forNow, unexplained } from './causes.js';
import type { Rejected, TransportName } from './effects.js';
import type {
  Dropped,
  Event,
  Probed,
  Received,
  TimerFired,
  TimerName,
  Token,
  TokenFailed,
} from './events.js';
import { Joins } from './joins.js';
import { Machine } from './machine.js';
import { Outbox } from './outbox.js';
import { readPeer } from './peer.js';

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

type Welcome = Received & { readonly frame: AuthOkFrame };
type Notice = Received & { readonly frame: AuthExpiringFrame };

/** A machine that knows what to do. */
export class Lifecycle extends Machine implements Steps<Event> {
  readonly outbox: Outbox = new Outbox(this);
  readonly joins: Joins = new Joins(this);
  /** Here for the part that needs it: a part that imports what the core has takes that from it. */
  readonly _forNow: typeof forNow = forNow;
  /** A transport is being opened, or open. */
  protected _linked = false;
  protected _incremental = true;
  protected _draining = false;
  /** Apart for so long that history may be gone. */
  protected _overdue = false;
  /** Milliseconds that the token was said to last when it came. */
  protected _life: number | undefined;
  /** Milliseconds that it had left when a server first took it. */
  private _span: number | undefined;
  /** When a notice last led to a call for a token, or is about to; Unix milliseconds. */
  private _noticed = Number.NaN;
  /** The number of the call for a token that is not answered; 0 for none (AUTH-1, AUTH-2). */
  protected _call = 0;
  protected _retryIn: number | undefined;
  /** Milliseconds the server asked for before it ended the connection, or is about to. */
  protected _stayAway = 0;
  protected _attempt = 0;
  /** The next attempt is so far away that a call brings it forward. */
  protected _sleeping = false;
  /** One came too early for it. */
  protected _called = false;
  /** HTTP has answered since the last WebSocket that failed. */
  protected _answered = false;
  protected _asking = false;
  /** WebSockets that failed one after the other, while HTTP answered between them. */
  protected _failures = 0;
  /** A WebSocket has worked in this process. */
  protected _hasOpened = false;
  /** The present connection has. */
  protected _works = false;
  /** The time within which the first WebSocket should open has passed. */
  protected _late = false;
  /**
   * Length of the outage in milliseconds, counted without a clock: waits and late openings since
   * the last connection that was of use.
   */
  protected _apart = 0;
  /** Milliseconds of the present wait that a call of the program saves. */
  private _unslept = 0;
  private _upgrades = 0;
  /** Milliseconds that the pong may take which is awaited. */
  private _pongLimit = this._options.pongTimeout;
  // A private field: no inspector and no serializer shows it.
  #token: string | undefined;
  private _calls = 0;
  private _failedCalls = 0;
  private _rejected = false;
  private _transport: TransportName = this._options.transport === 'sse' ? 'sse' : 'websocket';
  private _stable = false;
  private _replaced = false;
  private _clientId: string | undefined;

  // ---------------------------------------------------------------- guards

  /** The error or close code says that the token is at fault. */
  authFault(event: Event): boolean {
    return actionOf(causeOf(event)) === 'reauth';
  }

  /** The token is a fixed one (AUTH-4). */
  cannotRenew(): boolean {
    return !this._options.renewable;
  }

  /** The user has asked for the end, after what is published has been settled. */
  draining(): boolean {
    return this._draining;
  }

  /** The error or close code says that another try is pointless (LIFE-9). */
  finalError(event: Event): boolean {
    return actionOf(causeOf(event)) === 'stop';
  }

  /** Another connection took our place, though we opened none: once it may be a mistake. */
  firstReplaced({ code }: Dropped): boolean {
    return code === 4409 && !this._replaced;
  }

  /** More than half of the token's life is left: another one might end as soon. */
  fresh({ frame, at }: Notice): boolean {
    const { expires_at = Number.NaN, expires_in: left = expires_at - at } = frame;
    return left > Number(this._span) / 2;
  }

  /** A token is held. */
  hasToken(): boolean {
    return this.#token !== undefined;
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
  heard({ idle }: TimerFired): boolean {
    if (this._incremental) return idle < this._pongLimit;
    return !this.joins._joins.size || idle < this._pongLimit + this._options.pingInterval;
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
    return this._options.transport === 'auto' && this._transport === 'websocket';
  }

  /** Apart for so long that history may be gone. */
  overdue(): boolean {
    return this._overdue;
  }

  /** A WebSocket could be opened. */
  reachable(event: Probed): boolean {
    return event.ok;
  }

  /** The token callback refuses for good (AUTH-3). */
  refused(event: TokenFailed): boolean {
    return event.refused;
  }

  /** A publish has no outcome yet. */
  unsettled(): boolean {
    return this.outbox.size > 0;
  }

  // ---------------------------------------------------------------- actions: token

  /**
   * Call for a token, unless a call is in flight, or a fixed token could only come again.
   *
   * A server may send many notices that the token expires; those that come too soon are answered by
   * one call together.
   */
  fetchToken(event: Event): void {
    const expiring = this.state === 'connected';
    if (this._call || (expiring && this.cannotRenew())) return;
    if (event.kind === 'received') {
      const { at } = event;
      const due = this._noticed > at ? this._noticed : this._noticed + NOTICE_INTERVAL;
      const wait = due - at > 0 && due - at <= NOTICE_INTERVAL ? due - at : 0;
      this._noticed = at + wait;
      if (wait) {
        this._start('refresh', wait);
        return;
      }
    }
    this._calls += 1;
    this._call = this._calls;
    const reason = expiring ? 'expiring' : this._rejected ? 'rejected' : 'connect';
    this._tell({ kind: 'fetch', id: this._call, reason, attempt: this._failedCalls });
    this._start('fetch', this._options.fetchTimeout);
  }

  /** Give the call up. */
  abandonFetch(): void {
    if (!this._call) return;
    this._failedCalls += 1;
    this._tell({ kind: 'abandonFetch', id: this._call });
    this._call = 0;
  }

  /** Call again after a while; until it ends, the token at hand is good. */
  scheduleRefetch(event: Event): void {
    this._countCall(event);
    this._start('refresh', this._delay(this._failedCalls - 1));
  }

  /** Hold the token, as long as it lasts. */
  keepToken(event: Token): void {
    this.#token = event.value;
    this._life = event.expiresIn;
    this._span = undefined;
    this._failedCalls = 0;
    this._rejected = false;
    this._restart('expiry', event.expiresIn);
  }

  /** Hold none; if the server refused it, the callback is told. */
  forgetToken({ kind }: Event): void {
    this.#token = this._life = undefined;
    if (kind === 'dropped' || kind === 'received') this._rejected = true;
    this._stop('expiry', 'refresh');
  }

  /** Present the token, and the name under which presence knows us. */
  sendAuth(): void {
    this._send(this._auth(this._clientId));
  }

  // ---------------------------------------------------------------- actions: connection

  /** Open a transport. */
  dial(): void {
    this._linked = true;
    this._stayAway = 0;
    this._sleeping = this._works = false;
    this._stop('hold');
    this._tell({ kind: 'dial', transport: this._transport });
  }

  /** Close the transport, if there is one. */
  hangUp(): void {
    if (!this._linked) return;
    this._linked = false;
    this._tell({ kind: 'hangUp', code: FINAL.has(this.state) ? NORMAL : RECONNECTS });
  }

  /** The server knows us; learn what it can do. */
  accept(event: Welcome): void {
    this._stable = this._overdue = this._late = false;
    this._hasOpened ||= this._incremental;
    this._meet(event);
    this.outbox.connected();
    this._watchToken(event);
  }

  /** The server took the new token. */
  renew(event: Welcome): void {
    this._meet(event);
    this._watchToken(event);
  }

  /** Ask for every subscription, and say again what was said of our presence. */
  rejoin(): void {
    this.joins.connected();
    this._parts.presence?._saying._sayAgain();
  }

  /** Send what waited. */
  flush(): void {
    this.outbox.flush();
  }

  /** The connection has ended, or is about to. */
  leave(): void {
    this._stop('ping', 'pong', 'stable', 'refresh', 'upgrade', 'pace', 'rejoin');
    this.joins.lost();
    this.outbox.lost();
    this._parts.presence?._saying._lost();
    this._peer = undefined;
    this.startSuspend();
  }

  /** Ask for a sign of life; an event stream gives it unasked. */
  sendPing(): void {
    this._pongLimit = this._options.pongTimeout;
    if (this._incremental) this._send({ type: 'ping' });
  }

  /** Ask for a sign of life that has to come soon: the connection may be gone. */
  check(): void {
    this._pongLimit = this._options.checkTimeout;
    this._send({ type: 'ping' });
    this._start('pong', this._pongLimit);
  }

  /** See whether a WebSocket can be opened by now. */
  probe(): void {
    this._tell({ kind: 'probe' });
  }

  // ---------------------------------------------------------------- actions: choice of transport

  /**
   * One opening failed (LIFE-6).
   *
   * An event stream gives way at once. A WebSocket gives way after some failures between which the
   * HTTP address answered: an address that does not answer at all says nothing about WebSockets,
   * and one without event streams is no way out.
   */
  countFailure(event: Event): void {
    if (this._transport === 'sse') {
      this.changeTransport();
      return;
    }
    if (event.kind !== 'timerFired' && (event.kind !== 'dropped' || !unexplained(event))) return;
    const answered = this._answered;
    this._answered = false;
    if (answered || !this._failures) this._failures += 1;
    const { shortLife, fallbackFailures } = this._options;
    if (answered && this._failures >= (this._hasOpened ? shortLife : fallbackFailures)) {
      this.changeTransport();
    } else {
      this.probeHttp();
    }
  }

  /** One connection died: before it was of any use, that counts as an opening that failed. */
  countShortLife(event: Dropped): void {
    if (!this._stable && !this._works) this.countFailure(event);
  }

  /** See whether an event stream would serve where the WebSocket does not. */
  probeHttp(): void {
    if (this._asking || !this.mayFallBack() || !this.hasToken()) return;
    this._asking = true;
    this._tell({ kind: 'probeHttp', auth: compact(this._auth()) });
  }

  /** Until a connection is stable, the next time is final. */
  noteReplaced(): void {
    this._replaced = true;
  }

  /** Take the event stream; or the WebSocket, on the event stream. */
  changeTransport(): void {
    this._failures = 0;
    this._answered = this._hasOpened = false;
    if (this._options.transport === 'auto') {
      this._transport = this.mayFallBack() ? 'sse' : 'websocket';
    }
  }

  /** Take the WebSocket while the event stream serves, which one failure brings back. */
  upgrade(): void {
    this.changeTransport();
    this._failures = this._options.fallbackFailures - 1;
    this._answered = true;
  }

  // ---------------------------------------------------------------- actions: attempts

  /** Wait before the next attempt, longer each time, never less than the server asked. */
  scheduleRetry(event: Event): void {
    this._countCall(event);
    const { retryAfter = 0 } = causeOf(event);
    const { callInterval, openTimeout } = this._options;
    if (event.kind === 'timerFired' && event.name === 'open') this._apart += openTimeout;
    const asked = Math.min(MAX_RETRY_AFTER, Math.max(retryAfter, this._stayAway));
    const wait = Math.max(this._retryDelay(), asked);
    this._attempt += 1;
    this._apart += wait;
    this._retryIn = wait;
    this._start('retry', wait);
    const hold = Math.max(callInterval, asked);
    this._called = false;
    this._sleeping = wait > hold;
    if (!this._sleeping) return;
    this._unslept = wait - hold;
    this._start('hold', hold);
  }

  /** A call of the program ends the wait early. */
  cutWait(): void {
    this._apart -= this._unslept;
  }

  /** Do not wait before the next attempt. */
  retryNow(): void {
    this._retryIn = 0;
    this._start('retry', 0);
  }

  /** Count attempts anew. */
  resetRetry(): void {
    this._attempt = this._apart = 0;
    if (this.state === 'connected') {
      this._stable = true;
      this._replaced = false;
      this._provesWell();
    }
  }

  /** Give what is published some time to be settled. */
  startDrain(): void {
    if (this._draining) return;
    this._draining = true;
    this._start('drain', this._options.closeTimeout);
  }

  // ---------------------------------------------------------------- actions: timers

  /** A WebSocket that is not open by then gives way. */
  startFallback(): void {
    if (this.mayFallBack() && !this._hasOpened) {
      this._start('fallback', this._options.fallbackAfter);
    }
  }

  /** Apart for so long counts as suspended. */
  startSuspend(): void {
    if (!this._timers.has('suspend') && !this._overdue) {
      this._start('suspend', this._options.suspendAfter);
    }
  }

  /** Probe for a WebSocket after so long on the fallback. */
  startUpgrade(): void {
    const { transport, upgradeAfter, upgradeCap } = this._options;
    if (this._transport !== 'sse' || transport !== 'auto') return;
    const after = Math.min(upgradeAfter * 2 ** this._upgrades, Math.max(upgradeAfter, upgradeCap));
    this._upgrades += 1;
    this._start('upgrade', after);
  }

  // ---------------------------------------------------------------- actions: the end

  /** No timer and no call may outlive the session. */
  stopAll(): void {
    this.joins.lost();
    this._peer = undefined;
    this._stop(...this._timers);
    this.abandonFetch();
  }

  /** End by an error that no retry mends. */
  fail(event: Event): void {
    const { code: said, reason: message = '', remedy } = causeOf(event);
    const code = event.kind === 'dropped' ? codeOf(said) : String(said);
    this._end({ kind: 'rejected', code, message, remedy });
  }

  /** End as asked. */
  finish(): void {
    this._end();
  }

  // ---------------------------------------------------------------- inside

  private _end(error?: Rejected): void {
    const message = 'The client was closed before it could be sent.';
    const unsent = error ?? ({ kind: 'rejected', code: 'closed', message } as const);
    this.outbox.settleAll(unsent);
    this._parts.presence?._saying._settleAll(unsent);
    this.#token = this._life = undefined;
    this._tell({ kind: 'finished', error });
  }

  private _meet({ frame }: Welcome): void {
    this._clientId = [...frame.client_id].slice(0, 64).join('');
    this._peer = readPeer(frame, this._incremental);
  }

  private _countCall({ kind }: Event): void {
    if (kind === 'tokenFailed') this._failedCalls += 1;
  }

  /** Full jitter (LIFE-2). */
  private _delay(attempt: number, bound = Infinity): number {
    const { retryBase, retryCap } = this._options;
    const ceiling = Math.min(retryCap, retryBase * 2 ** Math.min(attempt, 30), bound);
    return Math.floor(this._random() * ceiling);
  }

  /**
   * Draw the wait before the next attempt.
   *
   * Its bound grows with the length of the outage, so that clients return soon after a short outage
   * and are spread out after a long one. It stays low while a publish waits.
   */
  private _retryDelay(): number {
    const apart = this.unsettled() ? 0 : this._apart;
    const grown = Math.floor(apart ** 2 / UNHURRIED);
    return this._delay(this._attempt, Math.max(2 * this._options.retryBase, grown));
  }

  /** Who we are, and as which client. */
  private _auth(clientId?: string): Loose<AuthFrame> {
    const { clientName: name, clientVersion: version, clientLang: lang } = this._options;
    return {
      type: 'auth',
      token: this.#token as string,
      version: CLIENT.protocolVersion,
      client: { name, version, lang } as ClientInfo,
      client_id: clientId,
    };
  }

  /** The connection is of use: what failed before says nothing about the way any more. */
  protected _provesWell(): void {
    this._works = true;
    this._apart = 0;
    if (this._transport === 'sse') return;
    this._failures = this._upgrades = 0;
    this._answered = false;
  }

  /** Renew the token before it ends; forget it when it has. */
  private _watchToken({ frame, at }: Welcome): void {
    const { expires_at, server_time = at } = frame;
    let life = this._life;
    if (expires_at !== undefined) {
      life = expires_at - server_time;
      this._restart('expiry', life);
    }
    this._span ??= life;
    const early =
      life === undefined || this.cannotRenew()
        ? 0
        : Math.max(life - this._options.refreshMargin, Math.floor((life * 4) / 5));
    this._restart('refresh', early);
  }

  private _restart(timer: TimerName, after = 0): void {
    this._stop(timer);
    if (0 < after && after <= MAX_TIMER) this._start(timer, after);
  }
}
