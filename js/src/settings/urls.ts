/**
 * Addresses of a server: the URLs of its socket and of its HTTP API, each derived from the other.
 *
 * HIP-56 has the socket at `wss://HOST:8057/ws` and HTTP at `https://HOST:8056`.
 */

import { DEVELOPMENT } from '../build.js';
import { InsecureUrl } from '../errors.js';
import { invalid } from './checks.js';

export const SOCKET_PORT: string = '8057';
export const HTTP_PORT: string = '8056';
const SOCKET_PATH = '/ws';

/** Query parameters that carry a token, which proxies would write into their logs. */
export const SECRETS: RegExp = /^(?:(?:access_)?token|auth|(?:api_?)?key|jwt)$/i;

/** Both addresses of one server. */
export interface Endpoints {
  /** URL of the WebSocket, `ws://` or `wss://`. */
  readonly socket: string;
  /** Base URL of REST and the event stream, without a slash at its end. */
  readonly http: string;
}

/**
 * Read the addresses that the program passed.
 *
 * @param url `ws://`, `wss://`, `http://` or `https://`. A socket URL without a path gets `/ws`,
 *   and a URL that ends with `/ws` is a socket URL with any scheme. The other address is derived
 *   from it: ws ↔ http, port 8057 ↔ 8056.
 * @param restUrl `http://` or `https://`, if the HTTP API has another address.
 * @throws InvalidOption One of them is not such a URL, or contains a user, a password or a token.
 */
export function endpoints(url: unknown, restUrl?: unknown): Endpoints {
  const { protocol, host, hostname, port, pathname, search } = read(url, 'url', /^(ws|http)s?:/);
  const path = withoutSlash(pathname);
  const isHttp = protocol.startsWith('h') && !path.endsWith(SOCKET_PATH);
  const [usual, other] = isHttp ? [HTTP_PORT, SOCKET_PORT] : [SOCKET_PORT, HTTP_PORT];
  const scheme = (name: string): string => `${protocol.replace(/ws|http/, name)}//`;
  const there = port === usual ? `${hostname}:${other}` : host;
  const socketPath = isHttp || !path ? path + SOCKET_PATH : pathname;
  const rest = restUrl === undefined ? undefined : read(restUrl, 'restUrl', /^https?:/);
  return {
    socket: scheme('ws') + (isHttp ? there : host) + socketPath + search,
    http: rest
      ? rest.origin + withoutSlash(rest.pathname)
      : scheme('http') + (isHttp ? host + path : there),
  };
}

/**
 * Refuse to send a token unencrypted to another machine (HIP-56 Security 2, ambiguity E13).
 *
 * @param urls By the name of the option.
 * @throws InsecureUrl One of the addresses is unencrypted and not on this machine.
 */
export function refusePlaintext(urls: Readonly<Record<string, string>>): void {
  for (const field in urls) {
    const { protocol, hostname } = new URL(urls[field] as string);
    if (/^(ws|http):/.test(protocol) && !isLoopback(hostname)) {
      throw new InsecureUrl(
        `${protocol}// would send the token to ${hostname} without encryption.`,
        {
          field,
          ...(DEVELOPMENT &&
            globalThis.location?.protocol === 'https:' && {
              remedy: 'Use wss:// or https://: browsers require them on an HTTPS page.',
            }),
        },
      );
    }
  }
}

/** Whether the host of a URL, in lower case, is a fixed name or address of this machine. */
function isLoopback(hostname: string): boolean {
  return /^((.*\.)?localhost\.?|127(\.\d{1,3}){3}\.?|\[::1\]|\[::ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4}\])$/.test(
    hostname,
  );
}

/**
 * A URL with one of the schemes and without secrets; `url_checks` describes the problems of others.
 */
function read(given: unknown, field: string, schemes: RegExp): URL {
  try {
    const url = new URL(String(given).trim());
    const { protocol, hostname, username, password, hash, searchParams } = url;
    const isSecret =
      username || password || [...searchParams.keys()].some((it) => SECRETS.test(it));
    if (schemes.test(protocol) && hostname && !hash && !isSecret) return url;
  } catch {
    // An invalid URL is rejected like an unusable one.
  }
  throw invalid(field);
}

function withoutSlash(path: string): string {
  return path.replace(/\/+$/, '');
}
