/** State that the parts of the hub share. */

import type { Clock } from '../clock.js';
import { compact } from '../compact.js';
import type { ErrorFrame } from '../generated/wire.js';
import { isWildcard } from '../topics.js';
import { IdMaker } from '../wire/ids.js';
import type { Connection } from './connection.js';
import { Store } from './log.js';
import { Presence } from './presence.js';
import { Problem } from './problem.js';
import { ConnectionLimiter, RateLimiter } from './rates.js';
import type { Rules, ServerSettings } from './settings.js';
import { type Identity, Tokens } from './tokens.js';

/** Maximum client ids whose owner is remembered. Older ids cannot be resumed. */
const OWNERS_MAX = 10_000;

/** Counters of the server since its start. */
export interface Stats {
  /** Connections that are open and authenticated. */
  authenticated: number;
  /** Patterns of all connections. */
  subscriptions: number;
  /** All connections that were opened. */
  connectionsTotal: number;
  /** New connections that were rejected because of their token. */
  authFailures: number;
  /** Frames received from clients. */
  framesIn: number;
  /** Messages published. */
  published: number;
  /** Publishes whose id the server already knew. */
  duplicates: number;
  /** Live messages sent to connections. */
  delivered: number;
  /** Messages sent as replay, in answer to `subscribe`. */
  replayed: number;
  /** Joins, updates and leaves. */
  presenceChanges: number;
  /** Number of errors by code. */
  readonly refused: Record<string, number>;
}

/** The shared state: connections, tokens, limits, logs and presence. */
export class Core {
  readonly stats: Stats = {
    authenticated: 0,
    subscriptions: 0,
    connectionsTotal: 0,
    authFailures: 0,
    framesIn: 0,
    published: 0,
    duplicates: 0,
    delivered: 0,
    replayed: 0,
    presenceChanges: 0,
    refused: {},
  };
  /** All connections. */
  readonly open: Set<Connection> = new Set();
  /** The authenticated connections, by client id. */
  readonly connections: Map<string, Connection> = new Map();
  readonly tokens: Tokens;
  readonly rates: RateLimiter;
  readonly limiter: ConnectionLimiter;
  readonly store: Store;
  readonly presence: Presence;
  private readonly _ids: IdMaker;
  private _last = 0;
  private _clients = 0;
  /** The identity that owns each client id. */
  private readonly _owners = new Map<string, Identity>();

  /**
   * @param clock The clock of the server.
   * @param settings Limits and deadlines.
   * @param rules The access rules.
   * @param random Returns numbers from 0 inclusive to 1 exclusive, for ids.
   */
  constructor(
    readonly clock: Clock,
    readonly settings: ServerSettings,
    readonly rules: Rules,
    random: () => number,
  ) {
    this.tokens = new Tokens(clock);
    this.rates = new RateLimiter(settings, () => clock.now());
    this.limiter = new ConnectionLimiter(settings.connectionsPerUser);
    this.store = new Store(settings);
    this.presence = new Presence((clientId) => {
      const connection = this.connections.get(clientId);
      return connection && this.lastSeen(connection);
    });
    this._ids = new IdMaker(
      () => this.wall(),
      (count) => Uint8Array.from({ length: count }, () => Math.floor(random() * 256)),
    );
  }

  /** Unix milliseconds that never decrease. */
  wall(): number {
    this._last = Math.max(this._last, this.clock.wallMs());
    return this._last;
  }

  /** When data last arrived from the client, in Unix milliseconds. */
  lastSeen({ lastReceived }: Connection): number {
    return Math.round(this.wall() - (this.clock.now() - lastReceived));
  }

  /** Create a message id. */
  messageId(): string {
    return this._ids.messageId();
  }

  /** The client id of a new connection: `resumed` if this identity owns it, otherwise a new one. */
  clientId(identity: Identity, resumed?: string): string {
    const owner = resumed === undefined ? undefined : this._owners.get(resumed);
    const { userId, kind } = identity;
    if (resumed && owner?.userId === userId && owner.kind === kind) return resumed;
    this._clients += 1;
    const issued = `cl_${this._clients}`;
    this._owners.set(issued, identity);
    for (const oldest of this._owners.keys()) {
      if (this._owners.size <= OWNERS_MAX) break;
      this._owners.delete(oldest);
    }
    return issued;
  }

  /** The connections that receive messages of a topic, each once. */
  readers(topic: string): Connection[] {
    return [...this.open].filter((connection) => {
      const { identity } = connection;
      return identity && connection.takes(topic) && this.mayRead(identity, topic);
    });
  }

  /** Whether an identity may read a topic. */
  mayRead(identity: Identity, topic: string): boolean {
    return identity.kind === 'admin' || this.rules.maySubscribe?.(identity, topic) !== false;
  }

  /** Whether an identity may list topics. Without rules, a service may do everything. */
  mayList({ kind }: Identity): boolean {
    const { maySubscribe, mayPublish } = this.rules;
    return kind === 'admin' || (kind === 'service' && !maySubscribe && !mayPublish);
  }

  /** Whether an identity may publish to a topic. */
  mayPublish(identity: Identity, topic: string): boolean {
    return identity.kind === 'admin' || this.rules.mayPublish?.(identity, topic) !== false;
  }

  /**
   * Whether a subscription is allowed. A pattern with wildcards always is: its messages are
   * filtered by topic.
   */
  mayHold(identity: Identity, pattern: string): boolean {
    return isWildcard(pattern) || this.mayRead(identity, pattern);
  }

  /** The error for a publish above the rate limit. */
  tooMany(identity: Identity, topic: string | undefined, retryAfter: number): Problem {
    const detail = `more than ${this.rates.rate(identity)} publishes per second`;
    return new Problem('rate_limited', detail, { topic, retryAfter });
  }

  /** Send an error and keep the connection open. */
  refuse({ sink }: Connection, problem: Problem, ref?: string): void {
    this.count(problem);
    sink.write(compact<ErrorFrame>({ type: 'error', ...problem.info, ref }));
  }

  /** Count an error. */
  count({ code }: Problem): void {
    const { refused } = this.stats;
    refused[code] = (refused[code] ?? 0) + 1;
  }
}
