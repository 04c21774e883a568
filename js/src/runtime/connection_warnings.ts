/** Warnings about the connection of a client; only for the development build. */

import { logText } from '../log_text.js';
import type { ClientOptions } from '../settings/options.js';
import { HTTP_PORT, SOCKET_PORT } from '../settings/urls.js';
import type { Client } from './environment.js';
import { lastRemedy, reasonOf } from './failures.js';

/** The options of clients that have logged a fallback since their last stable WebSocket. */
const warned = new WeakSet<ClientOptions>();

/** The options of clients that have logged their present outage. */
const outages = new WeakSet<ClientOptions>();

/** The reasons that clients have logged since their last stable connection. */
const reasons = new WeakMap<ClientOptions, Set<string>>();

/** Maximum reasons that a client logs before it has a stable connection. */
const REASONS_MAX = 8;

/** Failures before a client logs an outage that may be the restart of a server. */
const PATIENCE = 4;

/** Log why there is no connection, or why it does not use the WebSocket. */
export function warnOfConnection(client: Client): void {
  const { options, environment, tokenFailure, over, state } = client;
  // The failure of a callback is reported as an error.
  if (tokenFailure || over.aborted) return;
  if (environment.hasWebSocket?.(options) === false) warnOfPlatform(options);
  if (state === 'connected') warnOfFallback(client);
  else warnOfOutage(client);
}

function warnOfPlatform(options: ClientOptions): void {
  if (options.transport !== 'auto' || warned.has(options)) return;
  warned.add(options);
  options.logger.warn(
    'This platform has no WebSocket. The client uses server-sent events instead. Pass `WebSocket` of the package `ws`.',
  );
}

function warnOfOutage(client: Client): void {
  const { options, lastFailure, peer, session } = client;
  const {
    _name: name,
    _httpWorks: httpWorks,
    _isProbingHttp: isProbing,
  } = session.lifecycle._choice;
  // Server-sent events may still replace a WebSocket that has failed, unless there is none.
  const { transport } = session.context.options;
  const mayFallBack = transport === 'auto' && (name === 'sse' || httpWorks || isProbing);
  const patience = peer || mayFallBack ? PATIENCE : 1;
  if (!lastFailure) return;
  const { attempt } = lastFailure;
  // Connections that are lost again and again must not fill the log.
  const logged = (attempt > 1 && reasons.get(options)) || new Set();
  reasons.set(options, logged);
  if (attempt === 1 && name === 'websocket') warned.delete(options);
  if (attempt < patience || outages.has(options)) return;
  outages.add(options);
  const why = logText(reasonOf(client));
  if (logged.has(why) || logged.size >= REASONS_MAX) return;
  logged.add(why);
  const remedy = portRemedy(options) ?? lastRemedy(client).remedy;
  const words = [`No connection to ${options.socketUrl}:`, why, remedy];
  options.logger.warn([...words, 'The client keeps trying.'].filter(Boolean).join(' '));
}

function warnOfFallback(client: Client): void {
  const { options, socketFailure = 'it did not open in time' } = client;
  const { transport, socketUrl, logger } = options;
  outages.delete(options);
  if (client.transport !== 'sse' || transport !== 'auto' || warned.has(options)) return;
  warned.add(options);
  const remedy =
    portRemedy(options) ??
    'Check the port and path of `url`, and that proxies pass WebSocket upgrades.';
  logger.warn(
    `The WebSocket ${socketUrl} failed (${logText(socketFailure.replace(/\.$/, ''))}); using server-sent ` +
      `events instead. ${remedy}`,
  );
}

/** The remedy for a WebSocket at the usual port of the HTTP API. */
function portRemedy({ socketUrl }: ClientOptions): string | undefined {
  const url = new URL(socketUrl);
  if (url.port !== HTTP_PORT) return undefined;
  url.port = SOCKET_PORT;
  return `Port ${HTTP_PORT} is that of the HTTP API: set \`url\` to ${url}, or to the port of your WebSockets.`;
}
