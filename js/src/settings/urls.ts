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

/** What is wrong with an address, and the remedy where it is not to write it in another form. */
const WORDS = {
  type: ['is '],
  empty: ['is empty'],
  long: ['is longer than 2,048 characters'],
  blank: ['has blanks or control characters'],
  scheme: ['has no scheme, or one that is not known here', 'Use ….'],
  form: ['is not a URL'],
  host: ['names no host'],
  port: ['has port 0', 'Use the port that the server printed.'],
  user: ['has a user or a password', INSTEAD],
  fragment: ['has a fragment', 'Leave out `#` and what follows it.'],
  secret: ['has a token in its query, where proxies write it into their logs', INSTEAD],
} satisfies Readonly<Record<string, readonly [string, string?]>>;

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
  const refuse = (problem: keyof typeof WORDS): never => {
    const [said = '', remedy] = DEVELOPMENT ? WORDS[problem] : [];
    const [usual] = schemes.slice(-1);
    const listed = schemes.map((one) => `${one}//`).join(', ');
    const type = problem === 'type' ? `${kind(url)}, not a string` : '';
    throw invalid(field, said + type, remedy?.replace('…', listed) ?? likeThis(usual));
  };
  if (typeof url !== 'string') return refuse('type');
  const text = url.trim();
  if (!text) refuse('empty');
  if (text.length > URL_MAX) refuse('long');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is control characters that are refused
  if (/[\u0000- \u007f]/.test(text)) refuse('blank');
  const scheme = /^[a-z][a-z0-9+.-]*:(?=\/\/)/i.exec(text)?.[0].toLowerCase() ?? '';
  if (!schemes.includes(scheme)) refuse('scheme');
  const parts = parse(text) ?? refuse('form');
  const { hostname, port, username, password, hash, searchParams } = parts;
  if (!hostname) refuse('host');
  if (port === '0') refuse('port');
  if (username || password) refuse('user');
  if (hash) refuse('fragment');
  if ([...searchParams.keys()].some((name) => SECRETS.test(name))) refuse('secret');
  return parts;
}

function likeThis(scheme = ''): string {
  return DEVELOPMENT ? `Write it like ${scheme}//pubsub.example.com.` : '';
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
