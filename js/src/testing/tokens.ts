/** Tokens of the server in memory, and the identities they represent. */

import type { Clock } from '../clock.js';
import { bareToken } from '../settings/checks.js';
import { Problem } from './problem.js';

/** The kind of identity that a token represents. */
export type Kind = 'user' | 'service' | 'admin' | 'agent';

/** The identity that a token represents. */
export interface Identity {
  /** Id of the user or service. */
  readonly userId: string;
  /** Kind of the token. */
  readonly kind: Kind;
  /** Display name. */
  readonly name: string;
  /** Organizations of the user. */
  readonly orgs: readonly string[];
  /** Chat sessions that the user owns. */
  readonly sessionsOwned: readonly string[];
  /** Chat sessions that are shared with the user. */
  readonly sessionsShared: readonly string[];
  /** Agents that the user has access to. */
  readonly agents: readonly string[];
  /** Unix milliseconds; undefined if it does not expire. */
  readonly expiresAt: number | undefined;
}

/** Claims of a token in addition to the user. */
export interface TokenClaims {
  /**
   * Default `user`. A `service` may have a higher publish rate, and on a server without `rules`, it
   * may list topics. An `admin` may do everything.
   */
  readonly kind?: Kind | undefined;
  /** Lifetime in milliseconds by the server's clock; default: it does not expire. */
  readonly ttl?: number | undefined;
  /** Organizations of the user. */
  readonly orgs?: readonly string[] | undefined;
  /** Chat sessions that the user owns. */
  readonly sessionsOwned?: readonly string[] | undefined;
  /** Chat sessions that are shared with the user. */
  readonly sessionsShared?: readonly string[] | undefined;
  /** Agents that the user has access to. */
  readonly agents?: readonly string[] | undefined;
  /** Display name; default the user id. */
  readonly name?: string | undefined;
}

/** An identity that has no token. */
export function identityOf(userId: string, kind: Kind): Identity {
  const access = { orgs: [], sessionsOwned: [], sessionsShared: [], agents: [] };
  return { userId, kind, name: userId, ...access, expiresAt: undefined };
}

/** Creates tokens, and authenticates them. */
export class Tokens {
  private readonly _known = new Map<string, Identity>();

  constructor(private readonly _clock: Clock) {}

  /** Create a token for an identity. */
  make(userId: string, { kind = 'user', ttl, name = userId, ...claims }: TokenClaims): string {
    const token = `memory-${this._known.size + 1}-${userId.replace(/[^!-~]/g, '_')}`;
    const expiresAt = ttl === undefined ? undefined : this._clock.wallMs() + Math.round(ttl);
    const { orgs = [], sessionsOwned = [], sessionsShared = [], agents = [] } = claims;
    const access = { orgs, sessionsOwned, sessionsShared, agents };
    this._known.set(token, { userId, kind, name, ...access, expiresAt });
    return token;
  }

  /** Expire all tokens. */
  expireAll(): void {
    const expiresAt = this._clock.wallMs();
    for (const [token, identity] of this._known) this._known.set(token, { ...identity, expiresAt });
  }

  /** @throws Problem `token_invalid`, `token_expired`. */
  authenticate(token: string): Identity {
    const identity = this._known.get(bareToken(token.trim()));
    if (!identity) throw new Problem('token_invalid', 'this server did not issue the token');
    if (identity.expiresAt !== undefined && identity.expiresAt <= this._clock.wallMs()) {
      throw new Problem('token_expired', 'the token has expired');
    }
    return identity;
  }
}
