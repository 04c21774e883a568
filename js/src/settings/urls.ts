/**
 * Where a server is: the address of its socket and of its HTTP API, each derived from the other.
 *
 * HIP-56 has the socket at `wss://HOST:8057/ws` and HTTP at `https://HOST:8056`.
 */

import { InsecureUrl } from '../errors.js';
import { invalid, kind } from './checks.js';

const SOCKET_PORT = '8057';
const HTTP_PORT = '8056';
const SOCKET_PATH = '/ws';
const HTTP = ['http:', 'https:'];
const SECRETS = /^(?:(?:access_)?token|auth|(?:api_?)?key|jwt)$/i;
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
  const [usual] = schemes.slice(-1);
  const refuse = (
    problem: string,
    remedy = `Write it like ${usual}//pubsub.example.com.`,
  ): never => {
    throw invalid(field, problem, remedy);
  };
  if (typeof url !== 'string') return refuse(`is ${kind(url)}, not a string`);
  const text = url.trim();
  if (!text) refuse('is empty');
  if (text.length > URL_MAX) refuse('is longer than 2,048 characters');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is control characters that are refused
  if (/[\u0000- \u007f]/.test(text)) refuse('has blanks or control characters');
  const scheme = /^[a-z][a-z0-9+.-]*:(?=\/\/)/i.exec(text)?.[0].toLowerCase() ?? '';
  if (!schemes.includes(scheme)) {
    const listed = schemes.map((one) => `${one}//`).join(', ');
    refuse('has no scheme, or one that is not known here', `Use ${listed}.`);
  }
  const parts = parse(text) ?? refuse('is not a URL');
  const { hostname, port, username, password, hash, searchParams } = parts;
  const instead = 'Pass `token` or `getToken` instead.';
  if (!hostname) refuse('names no host');
  if (port === '0') refuse('has port 0', 'Use the port that the server printed.');
  if (username || password) refuse('has a user or a password', instead);
  if (hash) refuse('has a fragment', 'Leave out `#` and what follows it.');
  if ([...searchParams.keys()].some((name) => SECRETS.test(name))) {
    refuse('has a token in its query, where proxies write it into their logs', instead);
  }
  return parts;
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

/** Scheme, host and port, with another port in place of the usual one. */
function at(url: URL, scheme: string = url.protocol, usual?: string, other?: string): string {
  const { port, hostname, host } = url;
  return `${scheme}//${port && port === usual ? `${hostname}:${other}` : host}`;
}
