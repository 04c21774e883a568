/** The hub: joins connections, rules, logs and presence as the reference server does, in memory. */

import { compact } from '../compact.js';
import type { HistoryPage, SessionInfo, TopicInfo } from '../generated/http.js';
import type {
  AuthErrorFrame,
  AuthOkFrame,
  ErrorFrame,
  PongFrame,
  PresenceMember,
  PublishedFrame,
} from '../generated/wire.js';
import { isWildcard } from '../topics.js';
import { Admission } from './admission.js';
import { Attendance } from './attendance.js';
import { Connection, type Sink } from './connection.js';
import type { Core } from './core.js';
import type { PageQuery } from './log.js';
import { Problem } from './problem.js';
import { Publishing } from './publishing.js';
import { parseObject, type Request, readRequest, refOf } from './requests.js';
import { Subscriptions } from './subscriptions.js';
import type { Identity } from './tokens.js';

/** Close codes of clients that will not reconnect: their members leave at once. */
const CLEAN: readonly (number | undefined)[] = [1000, 1001, 4408];

/** Codes that are sent as `auth.error`; every other code is sent as `error`. */
const ABOUT_AUTH: readonly string[] = [
  'auth_timeout',
  'token_expired',
  'token_invalid',
  'connection_limit',
];

/** Maximum topics of one listing. */
const TOPICS_MAX = 1_000;

/** The server behind its connections. */
export class Hub {
  readonly publishing: Publishing;
  readonly subscriptions: Subscriptions;
  private readonly _attendance: Attendance;
  private readonly _admission: Admission;

  /** @param core The shared state. */
  constructor(readonly core: Core) {
    this._attendance = new Attendance(core);
    this.publishing = new Publishing(core, this._attendance);
    this.subscriptions = new Subscriptions(core, this._attendance);
    this._admission = new Admission(
      core,
      (connection, problem) => this._end(connection, problem),
      (connection, pattern) => this.subscriptions.drop(connection, pattern),
    );
  }

  // ---------------------------------------------------------------- connections

  /** Add a connection. */
  open(sink: Sink): Connection {
    const { clock, open, stats } = this.core;
    const connection = new Connection(sink, clock.now());
    open.add(connection);
    stats.connectionsTotal += 1;
    this._admission.expect(connection);
    return connection;
  }

  /** Record that data arrived from the client. */
  touch(connection: Connection): void {
    connection.lastReceived = this.core.clock.now();
  }

  /** Authenticate a connection, or renew its token. Throws Problem. */
  admit(connection: Connection, token: string, clientId?: string): AuthOkFrame {
    return this._admission.admit(connection, token, clientId);
  }

  /** Remove a connection that has ended. No code means that it was lost. */
  closed(connection: Connection, code?: number): void {
    if (connection.closed) return;
    const { open, stats, limiter, rates, connections, settings } = this.core;
    connection.closed = true;
    connection.timer?.cancel();
    open.delete(connection);
    stats.subscriptions -= connection.patterns.size;
    connection.patterns.clear();
    const { identity, clientId } = connection;
    if (!identity) return;
    stats.authenticated -= 1;
    limiter.release(identity);
    rates.forget(identity, clientId);
    if (connections.get(clientId) !== connection) return;
    connections.delete(clientId);
    const { presenceGrace } = settings;
    if (CLEAN.includes(code) || !presenceGrace) this._attendance.depart(clientId);
    else this._attendance.lose(connection, presenceGrace);
  }

  /** Close all connections. */
  drain(): void {
    for (const connection of [...this.core.open]) {
      this._end(connection, new Problem('going_away', 'the server is shutting down'));
    }
    this.core.presence.stop();
  }

  /** Send the error, and close the connection with the close code of the error. */
  private _end(connection: Connection, problem: Problem, ref?: string): void {
    if (connection.closed) return;
    this.core.count(problem);
    const { sink, identity } = connection;
    const isAboutAuth = !identity || ABOUT_AUTH.includes(problem.code);
    if (isAboutAuth && !sink.isStream) sink.write(authError(problem, ref));
    else sink.write(compact<ErrorFrame>({ type: 'error', ...problem.info, ref }));
    this.closed(connection, problem.close);
    sink.close(problem.close, problem.code);
  }

  // ---------------------------------------------------------------- frames

  /** Process one frame. */
  receive(connection: Connection, text: string): void {
    if (connection.closed) return;
    const { core } = this;
    core.stats.framesIn += 1;
    let ref: string | undefined;
    try {
      const frame = parseObject(text);
      ref = refOf(frame);
      this._perform(connection, readRequest(frame, core.settings.maxPayload), ref);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const isKnown = connection.identity || error.code === 'invalid_frame';
      core.refuse(connection, isKnown ? error : notYet(), ref);
    }
  }

  private _perform(connection: Connection, request: Request, ref: string | undefined): void {
    const { identity, sink } = connection;
    if (request.kind === 'auth') {
      this._authenticate(connection, request.token, request.clientId, ref);
    } else if (!identity) {
      throw notYet();
    } else if (request.kind === 'subscribe') {
      this.subscriptions.subscribe(connection, identity, request.wanted);
    } else if (request.kind === 'unsubscribe') {
      this.subscriptions.unsubscribe(connection, request.topics, ref);
    } else if (request.kind === 'publish') {
      this.publishing.take(connection, identity, request.items, request.batch, ref);
    } else if (request.kind === 'presence') {
      const { topic, data } = request;
      const [granted, wait] = this.core.rates.take(identity, connection.clientId, 1);
      if (!granted) throw this.core.tooMany(identity, topic, wait);
      const { id, timestamp } = this._attendance.update(connection, topic, data);
      if (ref === undefined) return;
      const answer: PublishedFrame = { type: 'published', id, timestamp, duplicate: false, ref };
      sink.write(answer);
    } else {
      const server_time = this.core.wall();
      sink.write(compact<PongFrame>({ type: 'pong', server_time, ref }));
    }
  }

  private _authenticate(
    connection: Connection,
    token: string,
    clientId: string | undefined,
    ref: string | undefined,
  ): void {
    const { sink, identity } = connection;
    try {
      sink.write(compact<AuthOkFrame>({ ...this.admit(connection, token, clientId), ref }));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (!identity) {
        this.core.stats.authFailures += 1;
        this._end(connection, error, ref);
        return;
      }
      // The old token stays valid until it expires.
      this.core.count(error);
      sink.write(authError(error, ref));
    }
  }

  // ---------------------------------------------------------------- operations of the HTTP API

  /** @throws Problem `forbidden`, `invalid_option`. */
  history(identity: Identity, topic: string, query: PageQuery, limit?: number): HistoryPage {
    this._checkRead(identity, topic);
    const { historyPageDefault, historyPageMax } = this.core.settings;
    const count = limit ?? historyPageDefault;
    if (!(count >= 1 && count <= historyPageMax)) {
      const detail = `\`limit\` is 1 to ${historyPageMax}`;
      throw new Problem('invalid_option', detail, { field: 'limit' });
    }
    if (query.after !== undefined && query.before !== undefined) {
      const detail = '`after` cannot be used together with `before` or `before_seq`';
      throw new Problem('invalid_option', detail, { field: 'after' });
    }
    return this.core.store.page(topic, query, count, this.core.wall());
  }

  /** @throws Problem `forbidden`. */
  members(identity: Identity, topic: string): PresenceMember[] {
    this._checkRead(identity, topic);
    return this.core.presence.members(topic);
  }

  /** @throws Problem `forbidden`. */
  topics(
    identity: Identity,
    prefix: string,
    limit: number,
  ): { readonly topics: readonly TopicInfo[]; readonly has_more: boolean } {
    if (!this.core.mayList(identity)) {
      throw new Problem('forbidden', 'only an administrator may list topics');
    }
    const reports = this.core.store.reports(this.core.wall());
    const held = [...this.core.open].flatMap(({ patterns }) => [...patterns.keys()]);
    const names = new Set([...reports.keys(), ...held.filter((name) => !isWildcard(name))]);
    const all = [...names].filter((name) => name.startsWith(prefix)).sort();
    const chosen = all.slice(0, Math.min(limit, TOPICS_MAX));
    const topics = chosen.map((topic) => {
      const { messages = 0, position, last } = reports.get(topic) ?? {};
      const subscribers = this.core.readers(topic).length;
      return compact<TopicInfo>({ topic, subscribers, messages, position, last_message_at: last });
    });
    return { topics, has_more: all.length > chosen.length };
  }

  /** The content that `auth.ok` would have. */
  session(identity: Identity, clientId?: string): SessionInfo {
    return this._admission.describe(identity, this.core.clientId(identity, clientId));
  }

  private _checkRead(identity: Identity, topic: string): void {
    if (this.core.mayRead(identity, topic)) return;
    throw new Problem('forbidden', 'the access rules do not allow reading this topic', { topic });
  }
}

function notYet(): Problem {
  return new Problem('unauthenticated', 'send `auth` with a token first');
}

function authError({ info }: Problem, ref: string | undefined): AuthErrorFrame {
  const { topic: _, ...answer } = info;
  return compact<AuthErrorFrame>({ ...answer, type: 'auth.error', ref });
}
