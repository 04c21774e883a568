/** Options of a client: the given values, the environment, and the defaults, as one flat object. */

import { DEVELOPMENT } from '../build.js';
import { CLIENT } from '../generated/defaults.js';
import { maxPayload } from '../generated/limits.js';
import type { Logger } from '../values.js';
import { VERSION } from '../version.js';
import { checkToken, merged } from './checks.js';
import { checkOptions } from './option_checks.js';
import type { ClientOptions, PubSubOptions, ReceiveQueue } from './options.js';
import { sessionOptions } from './session.js';
import { endpoints, refusePlaintext } from './urls.js';

const CONSOLE: Logger = {
  warn: (...said) => console.warn(...said),
  error: (...said) => console.error(...said),
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
  if (DEVELOPMENT) checkOptions(given, environ);
  const { getToken, sendQueue = {}, retry = {} } = given;
  let { url, token, restUrl } = given;
  if (url === undefined) {
    url = environ['HANZO_PUBSUB_URL'];
    restUrl ??= environ['HANZO_PUBSUB_REST_URL'] || undefined;
  }
  const { socket: socketUrl, http: httpUrl } = endpoints(url, restUrl);
  if (!given.allowInsecure) refusePlaintext({ url: socketUrl, restUrl: httpUrl });
  token = getToken ? undefined : checkToken(token ?? environ['HANZO_PUBSUB_TOKEN']);
  return {
    ...sessionOptions(),
    maxPayload,
    echo: true,
    fetch: (input, init) => globalThis.fetch(input, init),
    logger: CONSOLE,
    ...merged<object>(given, {}),
    renewable: !token,
    clientName: given.name ?? '@hanzoai/pubsub',
    clientVersion: VERSION,
    socketUrl,
    httpUrl,
    httpDerived: restUrl === undefined && !/^\s*http/i.test(String(url)),
    token,
    shareTabs: nameOf(given.shareTabs),
    recover: nameOf(given.recover),
    sendPolicy: sendQueue.policy ?? 'error',
    sendQueueMessages: sendQueue.messages ?? CLIENT.sendQueueMessages,
    sendQueueBytes: sendQueue.bytes ?? CLIENT.sendQueueBytes,
    receiveQueue: readReceiveQueue(given.receiveQueue),
    retryBase: retry.base ?? CLIENT.retryBase,
    retryCap: retry.cap ?? CLIENT.retryCap,
    stableAfter: retry.stableAfter ?? CLIENT.stableAfter,
  };
}

/** @internal Check the queue limits of one subscription; the client's limits are the defaults. */
export function readReceiveQueue(
  given: Partial<ReceiveQueue> = {},
  { messages, bytes, policy }: ReceiveQueue = {
    messages: CLIENT.receiveQueueMessages,
    bytes: CLIENT.receiveQueueBytes,
    policy: 'gap',
  },
): ReceiveQueue {
  return {
    messages: given.messages ?? messages,
    bytes: given.bytes ?? bytes,
    policy: given.policy ?? policy,
  };
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
