/** The signed-in identity, and the source of its next token. */

import { AuthRefused, type Token, type TokenCallback } from '@hanzoai/pubsub';

import { type Claims, readClaims } from './claims.js';
import { Signal } from './reactive.js';
import { recall, remember } from './storage.js';

/** Kinds of tokens that a development server issues. */
export const KINDS = ['admin', 'service', 'agent', 'user'] as const;
/** Purpose of a token. */
export type Kind = (typeof KINDS)[number];

/** Lifetime of the current token. */
export interface TokenLife {
  /** When the page received it, Unix ms of this machine. */
  readonly from: number;
  /** Its expiry, Unix ms of this machine; undefined if it has none or it is unknown. */
  readonly until: number | undefined;
  /** Number of renewals. */
  readonly renewals: number;
}

/** A way to sign in. */
export interface Credentials {
  readonly way: 'dev' | 'pasted';
  /** The claims of the token, for display only. */
  readonly claims: Signal<Claims>;
  readonly life: Signal<TokenLife>;
  /** Options for `new PubSub`. */
  readonly options: { readonly token: string } | { readonly getToken: TokenCallback };
  /** The current token. */
  current(): string | undefined;
}

/** Tokens of a development server, renewed while the page is open. */
export function devCredentials(user: string, kind: Kind): Credentials {
  const claims = new Signal<Claims>({ user, kind, orgs: [] });
  const life = new Signal<TokenLife>({ from: Date.now(), until: undefined, renewals: -1 });
  let current: string | undefined;
  const getToken: TokenCallback = async (_context, { signal }): Promise<Token> => {
    const answer = await fetch('console/token', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ user, kind }),
      credentials: 'omit',
      signal,
    });
    const body: unknown = await answer.json();
    if (answer.status < 500 && !answer.ok) throw new AuthRefused(text(body, 'detail'));
    const value = text(body, 'token');
    const until = (body as { expires_at?: unknown } | null)?.expires_at;
    if (!answer.ok || !value || typeof until !== 'number') throw new Error('No token was given.');
    current = value;
    claims.value = readClaims(value) ?? claims.peek();
    life.value = { from: Date.now(), until, renewals: life.peek().renewals + 1 };
    return { value, expiresAt: until };
  };
  return { way: 'dev', claims, life, options: { getToken }, current: () => current };
}

/** A token that the user has pasted. */
export function pastedCredentials(token: string): Credentials {
  const value = token.trim().replace(/^bearer\s+/i, '');
  const claims = readClaims(value) ?? { user: undefined, kind: undefined, orgs: [] };
  const { issued, expires } = claims;
  return {
    way: 'pasted',
    claims: new Signal(claims),
    life: new Signal({ from: issued ?? Date.now(), until: expires, renewals: 0 }),
    options: { token: value },
    current: () => value,
  };
}

const KEY = 'signed-in';

/** Store the identity for a reload of this tab. It is deleted with the tab. */
export function keepSignedIn(credentials: Credentials | undefined): void {
  const { user, kind } = credentials?.claims.peek() ?? {};
  const kept =
    credentials === undefined
      ? { out: true }
      : credentials.way === 'dev'
        ? { user, kind }
        : { token: credentials.current() };
  remember('sessionStorage', KEY, JSON.stringify(kept));
}

/** The identity before the reload; `out` after a sign-out; undefined in a new tab. */
export function signedInBefore(dev: boolean): Credentials | 'out' | undefined {
  const kept: unknown = parse(recall('sessionStorage', KEY) ?? 'null');
  const token = text(kept, 'token');
  if (token) return pastedCredentials(token);
  const user = text(kept, 'user');
  const kind = KINDS.find((each) => each === text(kept, 'kind'));
  if (user && kind && dev) return devCredentials(user, kind);
  return kept === null ? undefined : 'out';
}

function text(value: unknown, name: string): string {
  const found = (value as Record<string, unknown> | null)?.[name];
  return typeof found === 'string' ? found : '';
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return null;
  }
}
