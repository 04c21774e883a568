/** Options of a client: the given values, the environment, and the defaults, as one flat object. */

import { DEVELOPMENT } from '../build.js';
import { compact } from '../compact.js';
import { CLIENT } from '../generated/defaults.js';
import { maxPayload } from '../generated/limits.js';
import type { Logger } from '../values.js';
import { VERSION } from '../version.js';
import { checkNames, checkToken, merged } from './checks.js';
import { checkOptions, NAMES } from './option_checks.js';
import type { ClientOptions, PubSubOptions, ReceiveQueue } from './options.js';
import { sessionOptions } from './session.js';
import { endpoints, refusePlaintext } from './urls.js';

const RECEIVE_QUEUE: ReceiveQueue = {
  messages: CLIENT.receiveQueueMessages,
  bytes: CLIENT.receiveQueueBytes,
  policy: 'gap',
};

/**
 * @internal Combine the given options, the environment and the defaults, and check them.
 *
 * @throws InvalidOption A value has a wrong type or is out of range, a required one is missing, or
 *   a name is unknown; `field` names it. The production build checks only URLs and the token.
 * @throws InsecureUrl A token would be sent unencrypted to another machine.
 */
export function readOptions(
  given: PubSubOptions,
  environ: Readonly<Record<string, string | undefined>> = environment(),
): ClientOptions {
  if (DEVELOPMENT) checkNames('options', given, NAMES);
  const { getToken, sendQueue = {}, receiveQueue = {}, retry = {} } = given;
  let { url, token, restUrl } = given;
  if (url === undefined) {
    url = environ['HANZO_PUBSUB_URL'] || undefined;
    restUrl ??= environ['HANZO_PUBSUB_REST_URL'] || undefined;
  }
  if (!getToken) token ??= environ['HANZO_PUBSUB_TOKEN'] || undefined;
  if (DEVELOPMENT) checkOptions({ ...given, url, restUrl, token }, environ);
  const { socket: socketUrl, http: httpUrl } = endpoints(url, restUrl);
  if (!given.allowInsecure) refusePlaintext({ url: socketUrl, restUrl: httpUrl });
  token = getToken ? undefined : checkToken(Object(token).value ?? token);
  const client = { name: given.name ?? '@hanzoai/pubsub', version: VERSION, lang: 'typescript' };
  const flat = {
    ...given,
    sendPolicy: sendQueue.policy,
    sendQueueMessages: sendQueue.messages,
    sendQueueBytes: sendQueue.bytes,
    retryBase: retry.base,
    retryCap: retry.cap,
    stableAfter: retry.stableAfter,
  };
  return {
    ...sessionOptions({ client }),
    maxPayload,
    echo: true,
    sendPolicy: 'error',
    fetch: (input, init) => globalThis.fetch(input, init),
    ...compact<object>(flat),
    logger: afterwards(given.logger),
    renewable: !token,
    socketUrl,
    httpUrl,
    httpDerived: DEVELOPMENT && restUrl === undefined && !/^\s*http/i.test(String(url)),
    token,
    shareTabs: nameOf(given.shareTabs),
    recover: nameOf(given.recover),
    receiveQueue: merged(receiveQueue, RECEIVE_QUEUE),
  };
}

/**
 * A logger that is called after the current step of the session, so that it may use the client. The
 * console, which is the default, gets only warnings and errors.
 */
function afterwards(logger?: Logger): Logger {
  const later = {} as Required<Logger>;
  for (const level of (['debug', 'info', 'warn', 'error'] as const).slice(logger ? 0 : 2))
    later[level] = (...given) => queueMicrotask(() => (logger ?? console)[level]?.(...given));
  return later;
}

/** The name for sharing or keeping: true means the empty name, false none. */
function nameOf(given: boolean | string = false): string | undefined {
  return given === true ? '' : given || undefined;
}

/** The environment, if the platform has one. */
function environment(): Readonly<Record<string, string | undefined>> {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env ?? {};
}
