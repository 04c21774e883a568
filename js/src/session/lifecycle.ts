/**
 * What the actions of the lifecycle table do.
 *
 * An action appends effects; nothing here has a clock, a socket, a task or randomness of its own:
 * timers are effects by name, and `random` is an argument, drawn once for each delay.
 */

import { CLIENT } from '../generated/defaults.js';
import { CODES } from '../generated/errors.js';
import type { Action, Steps } from '../generated/lifecycle.js';
import type {
  AuthFrame,
  AuthOkFrame,
  ClientInfo,
  JsonObject,
  PresenceUpdateFrame,
} from '../generated/wire.js';
import { compact } from '../wire/compact.js';
import { cause, errorOf, retryAfter, unexplained } from './causes.js';
import { MAX_TIMER } from './credentials.js';
import type { Rejected } from './effects.js';
import type { Event, TimerName } from './events.js';
import { Machine } from './machine.js';
import { readPeer } from './peer.js';

const NORMAL = 1000;

/** Close code of a client that is going to come back, so that its presence is not ended at once. */
const RECONNECTS = 4000;

/** Longest wait that a server may impose, milliseconds. */
const MAX_RETRY_AFTER = 3_600_000;

/** Timers that end with a connection. */
const LEAVING: readonly TimerName[] = [
  'ping',
  'pong',
  'stable',
  'refresh',
  'upgrade',
  'pace',
  'rejoin',
];

/** A machine that knows what to do. */
export abstract class Lifecycle extends Machine implements Steps<Event> {
  protected override _act(action: Action, event: Event): void {
    this[action](event);
  }

  // ---------------------------------------------------------------- actions: token

  /** Call for a token, unless a call is in flight. */
  fetchToken(_event: Event): void {
    const fetch = this._credentials.ask(this.state === 'connected');
    if (fetch) {
      this._out.push(fetch);
      this._start('fetch', this._options.fetchTimeout);
    }
  }

  /** Give the call up. */
  abandonFetch(_event: Event): void {
    const id = this._credentials.abandon();
    if (id !== undefined) {
      this._credentials.attempt += 1;
      this._out.push({ kind: 'abandonFetch', id });
    }
  }

  /** Call again after a while; until it ends, the token at hand is good. */
  scheduleRefetch(event: Event): void {
    if (event.kind === 'tokenFailed') this._credentials.attempt += 1;
    this._start('refresh', this._delay(this._credentials.attempt - 1));
  }

  /** Hold the token, as long as it lasts. */
  keepToken(event: Event): void {
    if (event.kind === 'token') {
      this._credentials.keep(event);
      this._stop('expiry');
      this._liveFor(event.expiresIn, 'expiry');
    }
  }

  /** Hold none; if the server refused it, the callback is told. */
  forgetToken(event: Event): void {
    this._credentials.forget();
    if (event.kind === 'dropped' || event.kind === 'received') this._credentials.rejected = true;
    this._stop('expiry');
    this._stop('refresh');
  }

  /** Present the token, and the name under which presence knows us. */
  sendAuth(_event: Event): void {
    const { clientName: name, clientVersion: version, clientLang: lang } = this._options;
    const { token } = this._credentials;
    if (token !== undefined) {
      const frame = compact<AuthFrame>({
        type: 'auth',
        token,
        version: CLIENT.protocolVersion,
        client: compact<ClientInfo>({ name, version, lang }),
        client_id: this._clientId,
      });
      this._out.push({ kind: 'send', frame });
    }
  }

  // ---------------------------------------------------------------- actions: connection

  /** Open a transport. */
  dial(_event: Event): void {
    this._linked = true;
    this._out.push({ kind: 'dial', transport: this._transport });
  }

  /** Close the transport, if there is one. */
  hangUp(_event: Event): void {
    if (this._linked) {
      this._linked = false;
      const ended = this.state === 'closed' || this.state === 'failed';
      this._out.push({ kind: 'hangUp', code: ended ? NORMAL : RECONNECTS });
    }
  }

  /** The server knows us; learn what it can do. */
  accept(event: Event): void {
    const frame = authOk(event);
    if (frame) {
      this._online = true;
      this._stable = false;
      this._clientId = Array.from(frame.client_id).slice(0, 64).join('');
      this._peer = readPeer(frame, this._incremental);
      this.outbox.connected(this._peer, this._out);
      this._last(frame, event);
    }
  }

  /** The server took the new token. */
  renew(event: Event): void {
    const frame = authOk(event);
    if (frame) {
      this.outbox.renew(readPeer(frame, this._incremental));
      this._last(frame, event);
    }
  }

  /** Ask for every subscription, and say again what was said of our presence. */
  rejoin(_event: Event): void {
    this.joins.connected(this._peer, this._out);
    for (const [topic, data] of this._own.items()) this._sendPresence(topic, data);
  }

  /** Send what waited. */
  flush(_event: Event): void {
    this.outbox.flush(this._out);
  }

  /** The connection has ended, or is about to. */
  leave(event: Event): void {
    this._online = false;
    for (const timer of LEAVING) this._stop(timer);
    this.joins.lost();
    this.outbox.lost(this._out);
    this.startSuspend(event);
  }

  /** Ask for a sign of life; an event stream gives it unasked. */
  sendPing(_event: Event): void {
    if (this._incremental) this._out.push({ kind: 'send', frame: { type: 'ping' } });
  }

  /** See whether a WebSocket can be opened by now. */
  probe(_event: Event): void {
    this._out.push({ kind: 'probe' });
  }

  // ---------------------------------------------------------------- actions: choice of transport

  /** One opening failed: after some, the other transport is tried (LIFE-6). */
  countFailure(event: Event): void {
    if (event.kind === 'dropped' && !unexplained(event)) return;
    this._failures += 1;
    if (this._transport === 'sse' || this._failures >= this._options.fallbackFailures) {
      this._changeTransport();
    }
  }

  /** One connection died young: after some in a row, the other transport is tried. */
  countShortLife(event: Event): void {
    if (this._stable || event.kind !== 'dropped' || !unexplained(event)) return;
    this._shortLives += 1;
    if (this._shortLives >= this._options.shortLife) this._changeTransport();
  }

  /** Take the event stream. */
  useFallback(_event: Event): void {
    this._changeTransport();
  }

  /** Take the WebSocket. */
  useWebsocket(_event: Event): void {
    this._changeTransport();
  }

  private _changeTransport(): void {
    this._failures = this._shortLives = 0;
    if (this._options.transport === 'auto') {
      this._transport = this._transport === 'websocket' ? 'sse' : 'websocket';
    }
  }

  // ---------------------------------------------------------------- actions: attempts

  /** Wait before the next attempt, longer each time, never less than the server asked. */
  scheduleRetry(event: Event): void {
    if (event.kind === 'tokenFailed') this._credentials.attempt += 1;
    const wished = Math.min(MAX_RETRY_AFTER, retryAfter(event));
    const delay = Math.max(this._delay(this._attempt), wished);
    this._attempt += 1;
    this._retryIn = delay;
    this._start('retry', delay);
  }

  /** Do not wait before the next attempt. */
  retryNow(_event: Event): void {
    this._retryIn = 0;
    this._start('retry', 0);
  }

  /** Count attempts anew. */
  resetRetry(_event: Event): void {
    this._attempt = 0;
    if (this.state === 'connected') {
      this._stable = true;
      this._failures = this._shortLives = 0;
    }
  }

  /** Give what is published some time to be settled. */
  startDrain(_event: Event): void {
    if (!this._draining) {
      this._draining = true;
      this._start('drain', this._options.closeTimeout);
    }
  }

  // ---------------------------------------------------------------- actions: timers

  /** A WebSocket that is not open by then gives way. */
  startFallback(event: Event): void {
    if (this.mayFallBack(event)) this._start('fallback', this._options.fallbackAfter);
  }

  /** Dialing and authenticating take so long at most. */
  startOpen(_event: Event): void {
    this._start('open', this._options.openTimeout);
  }

  /** Ping after so long. */
  startPing(_event: Event): void {
    this._start('ping', this._options.pingInterval);
  }

  /** The answer takes so long at most. */
  startPong(_event: Event): void {
    this._start('pong', this._options.pongTimeout);
  }

  /** Connected for so long counts as stable. */
  startStable(_event: Event): void {
    this._start('stable', this._options.stableAfter);
  }

  /** Apart for so long counts as suspended. */
  startSuspend(_event: Event): void {
    if (!this._timers.has('suspend') && !this._overdue) {
      this._start('suspend', this._options.suspendAfter);
    }
  }

  /** Probe for a WebSocket after so long on the fallback. */
  startUpgrade(_event: Event): void {
    if (this._transport === 'sse' && this._options.transport === 'auto') {
      this._start('upgrade', this._options.upgradeAfter);
    }
  }

  /** Together again. */
  stopApart(_event: Event): void {
    this._stop('suspend');
    this._stop('fallback');
    this._overdue = false;
  }

  /** Opening has come to an end. */
  stopOpen(_event: Event): void {
    this._stop('open');
  }

  /** No pings any more. */
  stopPing(_event: Event): void {
    this._stop('ping');
    this._stop('pong');
  }

  /** The sign of life has come; a ping that was due is not. */
  stopPong(_event: Event): void {
    this._stop('pong');
    this._stop('ping');
  }

  /** The next attempt is not going to wait. */
  stopRetry(_event: Event): void {
    this._stop('retry');
  }

  // ---------------------------------------------------------------- actions: the end

  /** No timer and no call may outlive the session. */
  stopAll(_event: Event): void {
    this._online = false;
    this.joins.lost();
    for (const timer of [...this._timers]) this._stop(timer);
    const id = this._credentials.abandon();
    if (id !== undefined) this._out.push({ kind: 'abandonFetch', id });
  }

  /** End by an error that no retry mends. */
  fail(event: Event): void {
    let [code, message] = cause(event);
    if (event.kind === 'dropped') {
      const known = [...CODES.values()].find(({ close }) => close !== null && close === event.code);
      code = known?.code ?? 'connection_failed';
    }
    message ??= '';
    const remedy = errorOf(event)?.remedy;
    this._end({ kind: 'rejected', code: String(code), message, remedy });
  }

  /** End as asked. */
  finish(_event: Event): void {
    this._end(undefined);
  }

  // ---------------------------------------------------------------- inside

  private _end(error: Rejected | undefined): void {
    const message = 'The client was closed before it could be sent.';
    this.outbox.settleAll(error ?? { kind: 'rejected', code: 'closed', message }, this._out);
    this._credentials.forget();
    this._out.push({ kind: 'finished', error });
  }

  /** Renew the token before it ends; forget it when it has. */
  private _last(frame: AuthOkFrame, event: Event): void {
    let { life } = this._credentials;
    if (frame.expires_at !== undefined && event.kind === 'received') {
      life = frame.expires_at - (frame.server_time ?? event.at);
      this._stop('expiry');
      this._liveFor(life, 'expiry');
    }
    this._stop('refresh');
    if (life !== undefined && this._credentials.renewable) {
      const early = Math.max(life - this._options.refreshMargin, Math.floor((life * 4) / 5));
      this._liveFor(early, 'refresh');
    }
  }

  private _liveFor(life: number | undefined, timer: TimerName): void {
    if (life !== undefined && 0 < life && life <= MAX_TIMER) this._start(timer, life);
  }

  protected _sendPresence(topic: string | undefined, data: JsonObject): void {
    this._refs += 1;
    const ref = this._peer.ref ? `m${this._refs}` : undefined;
    const frame = compact<PresenceUpdateFrame>({ type: 'presence.update', topic, data, ref });
    this._out.push({ kind: 'send', frame });
  }
}

function authOk(event: Event): AuthOkFrame | undefined {
  return event.kind === 'received' && event.frame.type === 'auth.ok' ? event.frame : undefined;
}
