/** What the parts of the hub share. */

import type { Clock } from '../clock.js';
import type { ErrorFrame } from '../generated/wire.js';
import { isWildcard } from '../topics.js';
import { compact } from '../wire/compact.js';
import { IdMaker } from '../wire/ids.js';
import type { Connection } from './connection.js';
import { Store } from './log.js';
import { Presence } from './presence.js';
import { Problem } from './problem.js';
import { ConnectionLimiter, RateLimiter } from './rates.js';
import type { Rules, ServerSettings } from './settings.js';
import { type Identity, Tokens } from './tokens.js';

/** Client ids whose owner is known; of older ones none is resumed. */
const OWNERS_MAX = 10_000;

/** What the server counts, from its beginning. */
export interface Stats {
  /** Connections that are open, and authenticated. */
  authenticated: number;
  /** Patterns of all connections. */
  subscriptions: number;
  /** Connections that were ever opened. */
  connectionsTotal: number;
  /** Tokens that were refused to a new connection. */
  authFailures: number;
  framesIn: number;
  published: number;
  /** Publishes of an id that was known. */
  duplicates: number;
  /** Messages sent to connections as they came. */
  delivered: number;
  /** Messages sent in answer to `subscribe`. */
  replayed: number;
  presenceChanges: number;
  /** Refusals by their code. */
  readonly refused: Record<string, number>;
}

/** One of each. */
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
  /** The authenticated ones, by client id. */
  readonly connections: Map<string, Connection> = new Map();
  readonly tokens: Tokens;
  readonly rates: RateLimiter;
  readonly limiter: ConnectionLimiter;
  readonly store: Store;
  readonly presence: Presence;
  private readonly _ids: IdMaker;
  private _last = 0;
  private _clients = 0;
  /** Whose each client id is. */
  private readonly _owners = new Map<string, Identity>();

  /**
   * @param clock Time.
   * @param settings Limits and deadlines.
   * @param rules Who may do what.
   * @param random Numbers from 0 up to 1, for ids.
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

  /** Unix milliseconds, never going back. */
  wall(): number {
    this._last = Math.max(this._last, this.clock.wallMs());
    return this._last;
  }

  /** When a connection was last heard, Unix milliseconds. */
  lastSeen({ lastHeard }: Connection): number {
    return Math.round(this.wall() - (this.clock.now() - lastHeard));
  }

  /** A new id of a message. */
  messageId(): string {
    return this._ids.messageId();
  }

  /** The id of a new connection: the one to resume if this identity may, else a new one. */
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

  /** Who gets what is published on a topic, each once. */
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

  /** Whether an identity may publish to a topic. */
  mayPublish(identity: Identity, topic: string): boolean {
    return identity.kind === 'admin' || this.rules.mayPublish?.(identity, topic) !== false;
  }

  /** Whether a subscription may stand; what a pattern brings is filtered by topic. */
  mayHold(identity: Identity, pattern: string): boolean {
    return isWildcard(pattern) || this.mayRead(identity, pattern);
  }

  /** What is said to whom publishes too often. */
  tooMany(identity: Identity, topic: string | undefined, retryAfter: number): Problem {
    const said = `more than ${this.rates.rate(identity)} publishes per second`;
    return new Problem('rate_limited', said, { topic, retryAfter });
  }

  /** Send an error; the connection lives. */
  refuse({ sink }: Connection, problem: Problem, ref?: string): void {
    this.count(problem);
    sink.write(compact<ErrorFrame>({ type: 'error', ...problem.info, ref }));
  }

  /** Note that something was refused. */
  count({ code }: Problem): void {
    const { refused } = this.stats;
    refused[code] = (refused[code] ?? 0) + 1;
  }
}
