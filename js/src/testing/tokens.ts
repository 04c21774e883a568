/** Tokens that exist in memory alone, and whom they name. */

import type { Clock } from '../clock.js';
import { bareToken } from '../settings/checks.js';
import { Problem } from './problem.js';

/** What kind of identity a token names. */
export type Kind = 'user' | 'service' | 'admin' | 'agent';

/** Whom a token names. */
export interface Identity {
  readonly userId: string;
  readonly kind: Kind;
  readonly name: string;
  readonly orgs: readonly string[];
  /** Unix milliseconds; undefined for never. */
  readonly expiresAt: number | undefined;
}

/** What a token says beside the user. */
export interface TokenClaims {
  /** Default `user`; a `service` may publish more often, an `admin` may list topics, too. */
  readonly kind?: Kind | undefined;
  /** Milliseconds by the server's clock until it ends; default never. */
  readonly ttl?: number | undefined;
  /** Organizations of the user. */
  readonly orgs?: readonly string[] | undefined;
  /** Display name; default the user. */
  readonly name?: string | undefined;
}

/** Identities without a token of their own. */
export function identityOf(userId: string, kind: Kind): Identity {
  return { userId, kind, name: userId, orgs: [], expiresAt: undefined };
}

/** Makes tokens, and knows those that it made. */
export class Tokens {
  private readonly _known = new Map<string, Identity>();

  constructor(private readonly _clock: Clock) {}

  /** A token for an identity. */
  make(userId: string, { kind = 'user', ttl, orgs = [], name = userId }: TokenClaims): string {
    const token = `memory-${this._known.size + 1}-${userId.replace(/[^!-~]/g, '_')}`;
    const expiresAt = ttl === undefined ? undefined : this._clock.wallMs() + Math.round(ttl);
    this._known.set(token, { userId, kind, name, orgs, expiresAt });
    return token;
  }

  /** Every token ends now. */
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
