/** The content of a JWT, for display only: only the server can verify it. */

/** The displayed claims. */
export interface Claims {
  readonly user: string | undefined;
  readonly kind: string | undefined;
  readonly orgs: readonly string[];
  /** Unix ms. */
  readonly issued?: number | undefined;
  /** Unix ms. */
  readonly expires?: number | undefined;
}

/** The claims of a token; undefined for an API key or anything else that is not a JWT. */
export function readClaims(token: string): Claims | undefined {
  const [, body] = token.split('.');
  if (!body) return undefined;
  try {
    const raw = atob(body.replaceAll('-', '+').replaceAll('_', '/'));
    const utf8 = new TextDecoder().decode(Uint8Array.from(raw, (each) => each.charCodeAt(0)));
    const claims = JSON.parse(utf8) as Record<string, unknown> | null;
    if (typeof claims !== 'object' || claims === null) return undefined;
    const { sub, kind, orgs, iat, exp } = claims;
    return {
      user: typeof sub === 'string' ? sub : undefined,
      kind: typeof kind === 'string' ? kind : undefined,
      orgs: Array.isArray(orgs) ? orgs.filter((each) => typeof each === 'string') : [],
      issued: typeof iat === 'number' ? iat * 1000 : undefined,
      expires: typeof exp === 'number' ? exp * 1000 : undefined,
    };
  } catch {
    return undefined;
  }
}
