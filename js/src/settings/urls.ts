/**
 * Where a server is: the address of its socket and of its HTTP API, each derived from the other.
 *
 * HIP-56 has the socket at `wss://HOST:8057/ws` and HTTP at `https://HOST:8056`.
 */

import { InsecureUrl, InvalidOption } from '../errors.js';
import { kind } from './checks.js';

const SOCKET_PORT = '8057';
const HTTP_PORT = '8056';
const SOCKET_PATH = '/ws';
const TO_HTTP: ReadonlyMap<string, string> = new Map([
  ['ws:', 'http:'],
  ['wss:', 'https:'],
]);
const TO_SOCKET: ReadonlyMap<string, string> = new Map([
  ['http:', 'ws:'],
  ['https:', 'wss:'],
]);
const SECRETS = new Set(['token', 'access_token', 'auth', 'api_key', 'apikey', 'key', 'jwt']);
const URL_MAX = 2_048;

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
  const given = split(url, 'url', ['ws:', 'wss:', 'http:', 'https:']);
  let socket: string;
  let http: string;
  const path = given.pathname.replace(/\/+$/, '');
  const toHttp = TO_HTTP.get(given.protocol);
  if (toHttp !== undefined) {
    socket = `${given.protocol}//${given.host}${path ? given.pathname : SOCKET_PATH}${given.search}`;
    http = `${toHttp}//${host(given, SOCKET_PORT, HTTP_PORT)}`;
  } else {
    const toSocket = TO_SOCKET.get(given.protocol);
    http = `${given.protocol}//${given.host}${path}`;
    socket = `${toSocket}//${host(given, HTTP_PORT, SOCKET_PORT)}${path}${SOCKET_PATH}${given.search}`;
  }
  if (restUrl !== undefined) {
    const apart = split(restUrl, 'restUrl', ['http:', 'https:']);
    http = `${apart.protocol}//${apart.host}${apart.pathname.replace(/\/+$/, '')}`;
  }
  return { socket, http };
}

/**
 * Refuse to send a token in the clear to another machine (HIP-56 Security 2, ambiguity E13).
 *
 * @throws InsecureUrl One of the addresses is unencrypted and not on this machine.
 */
export function refusePlaintext(found: Endpoints): void {
  for (const [field, url] of [
    ['url', found.socket],
    ['restUrl', found.http],
  ] as const) {
    const { protocol, hostname } = new URL(url);
    if ((protocol === 'ws:' || protocol === 'http:') && !isLoopback(hostname)) {
      throw new InsecureUrl(`The token would go unencrypted to ${hostname} over ${protocol}//.`, {
        field,
      });
    }
  }
}

/** Whether a host is this machine by its very name or address; names are not looked up. */
export function isLoopback(hostname: string): boolean {
  const name = hostname.toLowerCase().replace(/\.$/, '');
  return (
    name === 'localhost' ||
    name.endsWith('.localhost') ||
    /^127(?:\.\d{1,3}){3}$/.test(name) ||
    name === '[::1]' ||
    /^\[::ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4}\]$/.test(name)
  );
}

function split(url: unknown, field: string, schemes: readonly string[]): URL {
  const accepted = `Write it like ${schemes[schemes.length - 1]}//pubsub.example.com.`;
  if (url instanceof URL) return split(url.href, field, schemes);
  if (typeof url !== 'string') throw invalid(field, `is ${kind(url)}, not a string`, accepted);
  const text = url.trim();
  if (!text) throw invalid(field, 'is empty', accepted);
  if (text.length > URL_MAX) throw invalid(field, 'is longer than 2,048 characters', accepted);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is control characters that are refused
  if (/[\u0000- \u007f]/.test(text)) {
    throw invalid(field, 'has blanks or control characters', accepted);
  }
  const scheme = /^[a-z][a-z0-9+.-]*:(?=\/\/)/i.exec(text)?.[0].toLowerCase();
  if (scheme === undefined || !schemes.includes(scheme)) {
    const listed = schemes.map((one) => `${one}//`).join(', ');
    throw invalid(field, 'has no scheme, or one that is not known here', `Use ${listed}.`);
  }
  let parts: URL;
  try {
    parts = new URL(text);
  } catch {
    throw invalid(field, 'is not a URL', accepted);
  }
  if (!parts.hostname) throw invalid(field, 'names no host', accepted);
  if (parts.port === '0')
    throw invalid(field, 'has port 0', 'Use the port that the server printed.');
  if (parts.username || parts.password) {
    throw invalid(field, 'has a user or a password', 'Pass `token` or `getToken` instead.');
  }
  if (parts.hash) throw invalid(field, 'has a fragment', 'Leave out `#` and what follows it.');
  for (const name of parts.searchParams.keys()) {
    if (SECRETS.has(name.toLowerCase())) {
      throw invalid(
        field,
        'has a token in its query, where proxies write it into their logs',
        'Pass `token` or `getToken` instead.',
      );
    }
  }
  return parts;
}

/** The value is left out: it may hold a secret. */
function invalid(field: string, problem: string, remedy: string): InvalidOption {
  return new InvalidOption(`\`${field}\` ${problem}.`, { remedy, field });
}

function host(parts: URL, port: string, other: string): string {
  return parts.port === port ? `${parts.hostname}:${other}` : parts.host;
}
