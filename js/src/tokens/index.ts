/**
 * Sign tokens in your backend, for browsers and services that connect to Hanzo PubSub.
 *
 *     const signer = await TokenSigner.create(process.env.PUBSUB_KEY, { keyId: '2026-11' });
 *
 *     app.get('/.well-known/jwks.json', async (_, response) => response.json(await signer.jwks()));
 *     app.post('/pubsub-token', async (request, response) => {
 *       const { value: token, expiresAt } = await signer.sign(request.session.user);
 *       response.json({ token, expiresAt });
 *     });
 *
 * Needs `crypto.subtle`: Node 20 or later, Deno, Bun, workers. Create a key with
 * `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`.
 */

import type { InvalidOption, InvalidPayload } from '../errors.js';
import {
  checkChoice,
  checkNames,
  checkType,
  kind as kindOf,
  TOKEN_MAX,
} from '../settings/checks.js';
import type { Token } from '../values.js';
import { isObject } from '../wire/guard.js';
import { checkData, inWords } from '../wire/payloads.js';
import { invalid, type Key, loadKey } from './keys.js';

/** Default lifetime of a token in milliseconds. */
const TTL = 900_000;

const TTL_MAX = 366 * 86_400_000;

const KINDS: readonly SignOptions['kind'][] = ['user', 'service', 'admin', 'agent'];

const RESERVED: ReadonlySet<string> = new Set([
  ...['iss', 'aud', 'iat', 'nbf', 'exp', 'jti', 'sub', 'kind', 'name', 'picture', 'orgs'],
  ...['sessions_owned', 'sessions_shared', 'agents', 'bulk'],
]);

/** Options of `TokenSigner.create` in addition to the key. */
export interface TokenSignerOptions {
  /**
   * Id of the key. Give every key its own id, so that the server finds the right one during a
   * rotation.
   */
  readonly keyId: string;
  /** `iss` of the tokens; the server checks it if `jwt_issuer` is set. */
  readonly issuer?: string | undefined;
  /** `aud` of the tokens; the server checks it if `jwt_audience` is set. */
  readonly audience?: string | readonly string[] | undefined;
}

/** Options of `sign` in addition to the user id. */
export interface SignOptions {
  /**
   * Purpose of the token; default `user`. A `service` may publish to every topic without a rule, an
   * `admin` may do everything.
   */
  readonly kind?: 'user' | 'service' | 'admin' | 'agent' | undefined;
  /**
   * Milliseconds until the token expires, above 0 and at most 366 days; default 900,000. Keep it
   * short: a token cannot be revoked.
   */
  readonly ttl?: number | undefined;
  /** Display name in presence; default the user id. */
  readonly name?: string | undefined;
  /** Picture in presence. */
  readonly avatarUrl?: string | undefined;
  /** Organizations the user is a member of. */
  readonly orgs?: readonly string[] | undefined;
  /** Chat sessions the user owns. */
  readonly sessionsOwned?: readonly string[] | undefined;
  /** Chat sessions shared with the user. */
  readonly sessionsShared?: readonly string[] | undefined;
  /** Agents that the user has access to. */
  readonly agents?: readonly string[] | undefined;
  /** Whether batches over REST have their own publish rate; default false. */
  readonly bulk?: boolean | undefined;
  /** Claims of your application; the server ignores them. */
  readonly extra?: Readonly<Record<string, unknown>> | undefined;
}

/** A token in the form that `getToken` returns. */
export interface SignedToken extends Token {
  /** Expiry, in Unix milliseconds. */
  readonly expiresAt: number;
}

/** A public key in the form that the server reads. */
export interface PublicJwk {
  readonly kty: string;
  readonly kid: string;
  readonly alg: string;
  readonly use: 'sig';
  readonly [member: string]: unknown;
}

const SIGN_OPTIONS = [
  ...['kind', 'ttl', 'name', 'avatarUrl', 'orgs', 'sessionsOwned', 'sessionsShared', 'agents'],
  ...['bulk', 'extra'],
];

/** Signs tokens with a private key, and publishes the public key. */
export class TokenSigner {
  /** @internal Use `TokenSigner.create`. */
  private constructor(
    /** Id of the key. */
    readonly keyId: string,
    private readonly _common: Readonly<Record<string, unknown>>,
    key: Key,
  ) {
    // The key can sign, so hide it from inspectors and serializers.
    Object.defineProperties(this, { _key: { value: key } });
  }

  declare private readonly _key: Key;

  /**
   * Read a private key.
   *
   * @param privateKey PEM (PKCS #8, `BEGIN PRIVATE KEY`) of an Ed25519, P-256 or RSA key of at
   *   least 2,048 bits. Before version 24, Node warns that Ed25519 is experimental.
   * @throws InvalidOption The key cannot be read or is of another kind, or an option is empty or has
   *   another type; the error names it.
   * @throws Unsupported The platform cannot use the key, for example in a simulated browser.
   */
  static async create(privateKey: string, options: TokenSignerOptions): Promise<TokenSigner> {
    checkNames('options', options, ['keyId', 'issuer', 'audience']);
    const { keyId, issuer, audience } = options;
    if (typeof keyId !== 'string' || !keyId)
      throw invalid('keyId', '`keyId` is empty.', 'Name the key, for example by its date.');
    checkCommon('issuer', issuer);
    checkCommon('audience', audience);
    const common = { iss: issuer, aud: audience };
    return new TokenSigner(keyId, common, await loadKey(privateKey));
  }

  /** `EdDSA`, `ES256` or `RS256`, depending on the key. */
  get algorithm(): 'EdDSA' | 'ES256' | 'RS256' {
    return this._key.algorithm;
  }

  /**
   * Sign a token.
   *
   * @param user The id of the user, service or agent: 1 to 128 characters.
   * @returns A token in the form that `getToken` returns; `value` is the JWT.
   * @throws InvalidOption `user` or an option is invalid, or the token would have more than 16,384
   *   characters; the error names the option.
   */
  async sign(user: string, options: SignOptions = {}): Promise<SignedToken> {
    checkNames('options', options, SIGN_OPTIONS);
    const { kind = 'user', ttl = TTL, extra = {} } = options;
    if (typeof user !== 'string' || !user || [...user].length > 128)
      throw invalid('user', '`user` is not a user id.', 'Pass a string of 1 to 128 characters.');
    checkChoice('kind', kind, KINDS);
    if (typeof ttl !== 'number' || !(ttl > 0 && ttl <= TTL_MAX))
      throw invalid('ttl', `\`ttl\` is ${ttl} ms.`, 'Pass a value above 0 and at most 366 days.');
    for (const field of ['orgs', 'sessionsOwned', 'sessionsShared', 'agents'] as const) {
      const names: unknown = options[field] ?? [];
      if (!Array.isArray(names) || names.some((name) => typeof name !== 'string'))
        throw invalid(
          field,
          `\`${field}\` is not an array of strings.`,
          `Pass ${field}: […], with each id as a string.`,
        );
    }
    for (const field of ['name', 'avatarUrl'] as const)
      if (typeof (options[field] ?? '') !== 'string')
        throw invalid(field, `\`${field}\` is not a string.`, 'Pass a string, or leave it out.');
    checkType('bulk', options.bulk, 'boolean');
    if (!isObject(extra))
      throw invalid('extra', `\`extra\` is ${kindOf(extra)}.`, 'Pass your claims by name.');
    const taken = Object.keys(extra).find((name) => RESERVED.has(name));
    if (taken !== undefined)
      throw invalid(
        'extra',
        `\`extra\` has the claim \`${taken}\`.`,
        'Pass it by its own option, or give your claim another name.',
      );
    checkPlain(extra);
    const now = Date.now();
    const claims = {
      ...this._common,
      sub: user,
      kind,
      ...optionalClaims(options),
      iat: Math.floor(now / 1000),
      exp: (now + ttl) / 1000,
      jti: crypto.randomUUID(),
      ...extra,
    };
    const header = { alg: this.algorithm, typ: 'JWT', kid: this.keyId };
    const text = `${encoded(header)}.${encoded(claims)}`;
    const signature = await this._key.sign(new TextEncoder().encode(text));
    const value = `${text}.${base64url(signature)}`;
    if (value.length > TOKEN_MAX) throw tooLong(value.length, options);
    return { value, expiresAt: now + ttl };
  }

  /**
   * The public keys, as JSON to serve at the server's `iam_jwks_url`.
   *
   * @param others The signers of your other keys, while you replace a key: publish both keys, sign
   *   with the new one, and remove the old one when its last token has expired.
   */
  async jwks(...others: readonly TokenSigner[]): Promise<{ readonly keys: readonly PublicJwk[] }> {
    return { keys: await Promise.all([this, ...others].map((signer) => signer.jwk())) };
  }

  /** The public key as a JWK with `kid`, `alg` and `use`. */
  async jwk(): Promise<PublicJwk> {
    const { kty = '', crv, x, y, n, e } = await this._key.publicJwk();
    const jwk = { kty, crv, x, y, n, e, kid: this.keyId, alg: this.algorithm, use: 'sig' } as const;
    return JSON.parse(JSON.stringify(jwk)) as PublicJwk;
  }
}

/** Check a claim that the server compares with a setting: a string, or several as `audience`. */
function checkCommon(field: 'issuer' | 'audience', given: unknown): void {
  if (given === undefined) return;
  const isList = field === 'audience' && Array.isArray(given);
  const names: readonly unknown[] = isList ? given : [given];
  if (names.length && names.every((name) => typeof name === 'string' && name)) return;
  const other = names.findIndex((name) => typeof name !== 'string');
  const kind = `${isList ? 'contains' : 'is'} ${kindOf(names[other])}, not a string`;
  throw invalid(
    field,
    `\`${field}\` ${other < 0 ? 'is empty' : kind}.`,
    `Pass the \`jwt_${field}\` of the server's settings, or leave it out.`,
  );
}

/** Check claims that are sent as JSON, which writes NaN as null. */
function checkPlain(extra: object): void {
  try {
    checkData(extra, Number.POSITIVE_INFINITY, undefined, 'extra');
  } catch (error) {
    const { message, remedy } = error as InvalidPayload;
    throw invalid('extra', message, remedy);
  }
}

/** The error of a token that clients and servers reject; it names the longest option. */
function tooLong(length: number, options: SignOptions): InvalidOption {
  const size = (name: string) => JSON.stringify(options[name as keyof SignOptions] ?? '').length;
  const field = SIGN_OPTIONS.reduce((longest, name) =>
    size(name) > size(longest) ? name : longest,
  );
  return invalid(
    field,
    `The token has ${inWords(length)} characters, more than ${inWords(TOKEN_MAX)}; the longest part is \`${field}\`.`,
    'Pass less: for example, only the sessions that the user opens now.',
  );
}

/** The claims of the identity, without empty ones. */
function optionalClaims(about: SignOptions): Record<string, unknown> {
  const claims = {
    name: about.name,
    picture: about.avatarUrl,
    orgs: about.orgs,
    sessions_owned: about.sessionsOwned,
    sessions_shared: about.sessionsShared,
    agents: about.agents,
    bulk: about.bulk,
  };
  const isGiven = (value: unknown): boolean =>
    Array.isArray(value) ? value.length > 0 : Boolean(value);
  return Object.fromEntries(Object.entries(claims).filter(([, value]) => isGiven(value)));
}

function encoded(part: object): string {
  return base64url(new TextEncoder().encode(JSON.stringify(part)));
}

function base64url(bytes: Uint8Array): string {
  // A spread of all bytes would exceed the stack of calls.
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
  return text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
