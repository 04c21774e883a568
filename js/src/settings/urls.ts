/**
 * Where a server is: the address of its socket and of its HTTP API, each derived from the other.
 *
 * HIP-56 has the socket at `wss://HOST:8057/ws` and HTTP at `https://HOST:8056`.
 */

import { DEVELOPMENT } from '../build.js';
import { InsecureUrl } from '../errors.js';
import { invalid, kind } from './checks.js';

const SOCKET_PORT = '8057';
const HTTP_PORT = '8056';
const SOCKET_PATH = '/ws';
const HTTP = ['http:', 'https:'];
const SECRETS = /^(?:(?:access_)?token|auth|(?:api_?)?key|jwt)$/i;
const URL_MAX = 2_048;

const INSTEAD = 'Pass `token` or `getToken` instead.';

/** What can be wrong with an address, in the order of the tests, and the remedy where there is one. */
const WORDS: readonly (readonly [problem: string, remedy?: string])[] = DEVELOPMENT
  ? [
      ['is '],
      ['is empty'],
      ['is longer than 2,048 characters'],
      ['has spaces or control characters'],
      ['has no scheme, or an unknown one', 'Use ….'],
      ['is not a URL'],
      ['names no host'],
      ['has port 0', 'Use the port that the server printed.'],
      ['has a user or a password', INSTEAD],
      ['has a fragment', 'Leave out `#` and everything after it.'],
      ['has a token in its query, where proxies write it into their logs', INSTEAD],
    ]
  : [];

/** Both addresses of one server. */
export interface Endpoints {
  /** URL of the WebSocket, `ws://` or `wss://`. */
  readonly socket: string;
  /** Base URL of REST and the event stream, without a slash at its end. */
  readonly http: string;
}

/**
 * Read the addresses that a program gave.
 *
 * @param url `ws://`, `wss://`, `http://` or `https://`. A socket URL without a path gets `/ws`.
 *   The other address follows: ws ↔ http, port 8057 ↔ 8056.
 * @param restUrl `http://` or `https://`, where the HTTP API is elsewhere.
 * @throws InvalidOption One of them is not such a URL, or holds a user, a password or a token.
 */
export function endpoints(url: unknown, restUrl?: unknown): Endpoints {
  const given = read(url, 'url', ['ws:', 'wss:', ...HTTP]);
  const { protocol, search } = given;
  const path = given.pathname.replace(/\/+$/, '');
  const isHttp = HTTP.includes(protocol);
  const socket = isHttp
    ? `${at(given, protocol.replace('http', 'ws'), HTTP_PORT, SOCKET_PORT)}${path}${SOCKET_PATH}`
    : `${at(given)}${path ? given.pathname : SOCKET_PATH}`;
  const http =
    restUrl !== undefined
      ? base(read(restUrl, 'restUrl', HTTP))
      : isHttp
        ? base(given)
        : at(given, protocol.replace('ws', 'http'), SOCKET_PORT, HTTP_PORT);
  return { socket: socket + search, http };
}

/**
 * Refuse to send a token in the clear to another machine (HIP-56 Security 2, ambiguity E13).
 *
 * @throws InsecureUrl One of the addresses is unencrypted and not on this machine.
 */
export function refusePlaintext({ socket, http }: Endpoints): void {
  for (const [field, url] of Object.entries({ url: socket, restUrl: http })) {
    const { protocol, hostname } = new URL(url);
    if (/^(?:ws|http):/.test(protocol) && !isLoopback(hostname)) {
      throw new InsecureUrl(`The token would go unencrypted to ${hostname} over ${protocol}//.`, {
        field,
      });
    }
  }
}

/** Whether a host is this machine by its very name or address; names are not looked up. */
export function isLoopback(hostname: string): boolean {
  return /^(?:(?:.*\.)?localhost\.?|127(?:\.\d{1,3}){3}\.?|\[::1\]|\[::ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4}\])$/i.test(
    hostname,
  );
}

function read(given: unknown, field: string, schemes: readonly string[]): URL {
  const url = given instanceof URL ? given.href : given;
  const text = typeof url === 'string' ? url.trim() : '';
  const parts = parse(text);
  const problem = [
    typeof url !== 'string',
    !text,
    text.length > URL_MAX,
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it is control characters that are refused
    /[\u0000- \u007f]/.test(text),
    !schemes.includes(/^[a-z][a-z0-9+.-]*:(?=\/\/)/i.exec(text)?.[0].toLowerCase() ?? ''),
    !parts,
    !parts?.hostname,
    parts?.port === '0',
    parts?.username || parts?.password,
    parts?.hash,
    [...(parts?.searchParams.keys() ?? [])].some((name) => SECRETS.test(name)),
  ].findIndex(Boolean);
  if (parts && problem < 0) return parts;
  throw invalid(field, ...(DEVELOPMENT ? wordsOf(problem, url, schemes) : []));
}

/** What the test of this number found, and the remedy. */
function wordsOf(
  problem: number,
  url: unknown,
  schemes: readonly string[],
): readonly [problem: string, remedy: string] {
  const [said = '', remedy = `Write it like ${schemes.at(-1)}//pubsub.example.com.`] =
    WORDS[problem] ?? [];
  const type = problem ? '' : `${kind(url)}, not a string`;
  const listed = schemes.map((one) => `${one}//`).join(', ');
  return [said + type, remedy.replace('…', listed)];
}

function parse(text: string): URL | undefined {
  try {
    return new URL(text);
  } catch {
    return undefined;
  }
}

function base(url: URL): string {
  return at(url) + url.pathname.replace(/\/+$/, '');
}

/** Scheme, host and port, with another port instead of the usual one. */
function at(url: URL, scheme: string = url.protocol, usual?: string, other?: string): string {
  const { port, hostname, host } = url;
  return `${scheme}//${port && port === usual ? `${hostname}:${other}` : host}`;
}
