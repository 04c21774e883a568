/** Identity of connections: authentication, renewal, expiry of tokens, heartbeats. */

import { compact } from '../compact.js';
import type { SessionInfo } from '../generated/http.js';
import type { AuthExpiringFrame, AuthOkFrame, Limits } from '../generated/wire.js';
import type { Connection } from './connection.js';
import type { Core } from './core.js';
import { Problem } from './problem.js';
import type { Identity } from './tokens.js';

const FEATURES = ['ref', 'ack', 'seq', 'idempotency', 'batch', 'resume', 'meta'];

/** Assigns an identity to a connection, and closes the connection when the identity expires. */
export class Admission {
  /**
   * @param _core The parts of the hub.
   * @param _end Ends a connection with an error and its close code.
   * @param _drop Ends a subscription that is no longer allowed.
   */
  constructor(
    private readonly _core: Core,
    private readonly _end: (connection: Connection, problem: Problem) => void,
    private readonly _drop: (connection: Connection, pattern: string) => void,
  ) {}

  /** Start the authentication deadline of a new connection. */
  expect(connection: Connection): void {
    const { clock, settings } = this._core;
    connection.deadline = clock.now() + settings.authDeadline;
    this._watch(connection);
  }

  /**
   * Authenticate a connection, or renew its token.
   *
   * @throws Problem `token_invalid`, `token_expired`, `connection_limit`.
   */
  admit(connection: Connection, token: string, clientId?: string): AuthOkFrame {
    const identity = this._core.tokens.authenticate(token);
    if (connection.identity) this._renew(connection, connection.identity, identity);
    else this._enter(connection, identity, clientId);
    return { type: 'auth.ok', ...this.describe(identity, connection.clientId) };
  }

  /** The content of `auth.ok` and of `GET /v1/session`. */
  describe(identity: Identity, clientId: string): SessionInfo & { readonly client_id: string } {
    const { clock, rates, settings } = this._core;
    const limits: Limits = {
      publish_rate: rates.rate(identity),
      max_payload: settings.maxPayload,
      history_max: settings.historyMaxMessages,
      max_subscriptions: settings.maxSubscriptions,
      max_batch: settings.maxBatch,
    };
    return compact<SessionInfo & { readonly client_id: string }>({
      client_id: clientId,
      user_id: identity.userId,
      version: 1,
      features: FEATURES,
      expires_at: identity.expiresAt,
      server_time: clock.wallMs(),
      limits,
    });
  }

  private _enter(connection: Connection, identity: Identity, clientId: string | undefined): void {
    const { connections, limiter, presence, stats } = this._core;
    const id = this._core.clientId(identity, clientId);
    const replaced = connections.get(id);
    if (replaced) {
      // The client reconnected before the server noticed that its old connection is dead.
      this._end(replaced, new Problem('replaced', 'another connection replaced this one'));
    }
    limiter.acquire(identity);
    connection.clientId = id;
    connection.identity = identity;
    connections.set(connection.clientId, connection);
    stats.authenticated += 1;
    presence.refresh(connection.clientId, identity);
    this._setEnd(connection, identity);
  }

  private _renew(connection: Connection, held: Identity, identity: Identity): void {
    if (held.userId !== identity.userId || held.kind !== identity.kind) {
      const detail = 'this token names another user than the connection; open a new connection';
      throw new Problem('token_invalid', detail, { field: 'token' });
    }
    connection.identity = identity;
    this._core.presence.refresh(connection.clientId, identity);
    this._setEnd(connection, identity);
    this._review(connection, identity);
  }

  /** End the subscriptions that the renewed identity may not have. */
  private _review(connection: Connection, identity: Identity): void {
    for (const topic of [...connection.patterns.keys()]) {
      if (this._core.mayHold(identity, topic)) continue;
      this._drop(connection, topic);
      const detail = 'the access rules no longer allow this subscription; it has ended';
      this._core.refuse(connection, new Problem('forbidden', detail, { topic }));
    }
  }

  private _setEnd(connection: Connection, { expiresAt }: Identity): void {
    const { clock, settings } = this._core;
    const left =
      expiresAt === undefined ? Number.POSITIVE_INFINITY : Math.max(0, expiresAt - clock.wallMs());
    connection.deadline = clock.now() + left;
    connection.noticeAt = clock.now() + Math.max(left / 2, left - settings.expiringNotice);
    this._watch(connection);
  }

  /** Schedule the next check of a connection. */
  private _watch(connection: Connection): void {
    const { clock } = this._core;
    connection.timer?.cancel();
    const wait = this._next(connection) - clock.now();
    // Add a margin, so that rounding cannot fire the timer too early.
    connection.timer = clock.callLater(Math.max(0, wait) + 0.01, () => this._expire(connection));
  }

  private _next(connection: Connection): number {
    const { clock, settings } = this._core;
    const { deadline, lastReceived, identity, noticeAt, sink } = connection;
    if (!identity) return deadline;
    const now = clock.now();
    const notice = Math.min(deadline, Math.max(now, noticeAt));
    if (sink.isStream) return Math.min(notice, now + settings.sseKeepalive);
    const { serverPingInterval, presenceTimeout } = settings;
    const isQuiet = now - lastReceived >= serverPingInterval;
    return Math.min(notice, lastReceived + (isQuiet ? presenceTimeout : serverPingInterval));
  }

  private _expire(connection: Connection): void {
    const { clock, settings } = this._core;
    const { deadline, identity, lastReceived, sink } = connection;
    const now = clock.now();
    if (now >= deadline) {
      const problem = identity
        ? new Problem('token_expired', 'the token has expired, and no new one arrived')
        : new Problem('auth_timeout', 'the client did not send `auth` in time');
      this._end(connection, problem);
      return;
    }
    const silence = now - lastReceived;
    if (identity) {
      if (now >= connection.noticeAt) {
        connection.noticeAt = Number.POSITIVE_INFINITY;
        const expires_in = Math.max(0, Math.floor(deadline - now));
        const { expiresAt: expires_at } = identity;
        sink.write(compact<AuthExpiringFrame>({ type: 'auth.expiring', expires_in, expires_at }));
      }
      if (!sink.isStream && silence >= settings.presenceTimeout) {
        const detail = 'the client sent nothing for too long';
        this._end(connection, new Problem('idle_timeout', detail));
        return;
      }
      if (sink.isStream || silence >= settings.serverPingInterval) sink.ping();
    }
    this._watch(connection);
  }
}
