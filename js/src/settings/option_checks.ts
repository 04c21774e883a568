/** Checks of options with full error messages; the production build omits them. */

import { DEVELOPMENT } from '../build.js';
import { InvalidOption } from '../errors.js';
import { CLIENT } from '../generated/defaults.js';
import { historyPageMax } from '../generated/limits.js';
import {
  checkGroup,
  checkName,
  checkValues,
  invalid,
  type Kind,
  kind,
  type Range,
  TIME,
} from './checks.js';
import type { Optional, PubSubOptions, ReceiveQueue, Settings } from './options.js';
import { checkUrl } from './url_checks.js';

const COUNT: Range = [1, 1_000_000, 'a number'];
const BYTES: Range = [1, 2 ** 30, 'a number of bytes'];
const MESSAGES: Range = [1, 1_000_000, 'a number of messages'];
/** Times below this number of milliseconds may be in seconds. */
const LEAST = 500;
const QUEUE = {
  messages: MESSAGES,
  bytes: BYTES,
};
const RETRY = {
  base: TIME,
  cap: TIME,
  stableAfter: TIME,
};
const RECEIVE_QUEUE = { ...QUEUE, policy: ['gap', 'error'] } as const;

/** Options that have one of these kinds. */
const KINDS = {
  transport: ['auto', 'websocket', 'sse'],
  getToken: 'function',
  echo: 'boolean',
  allowInsecure: 'boolean',
  WebSocket: 'function',
  fetch: 'function',
  shareTabs: 'name',
  recover: 'name',
  sendQueue: { ...QUEUE, policy: ['error', 'block', 'drop_oldest', 'latest'] },
  receiveQueue: RECEIVE_QUEUE,
  retry: RETRY,
  fetchTimeout: TIME,
  openTimeout: TIME,
  operationTimeout: TIME,
  closeTimeout: TIME,
  pingInterval: TIME,
  pongTimeout: TIME,
  suspendAfter: TIME,
  refreshMargin: TIME,
  fallbackAfter: TIME,
  upgradeAfter: TIME,
  fallbackFailures: COUNT,
  shortLife: COUNT,
  rememberedIds: COUNT,
  rememberedTopics: COUNT,
  heldMessages: COUNT,
  overlap: [0, 3_600_000, 'milliseconds'],
  maxFrame: [1_024, 2 ** 30, 'a number of bytes'],
  maxPayload: BYTES,
  restAttempts: [1, 100, 'a number'],
  historyPage: [1, historyPageMax, 'a number of messages'],
} as const satisfies Partial<Record<keyof PubSubOptions, Kind>> & Record<keyof Settings, Kind>;

/** Names of the options of `new PubSub`. */
export const NAMES: readonly string[] = [
  'url',
  'token',
  'restUrl',
  'name',
  'logger',
  ...Object.keys(KINDS),
];

/**
 * Check the options of `new PubSub`, except the form of the token.
 *
 * @param given Only `NAMES`, completed from the environment.
 * @throws InvalidOption A value has a wrong type or is out of range, a required one is missing, or
 *   a name is unknown; `field` names it.
 */
export function checkOptions(
  given: PubSubOptions,
  environ: Readonly<Record<string, string | undefined>>,
): void {
  // Browsers have no environment, or an empty one that a bundler provides.
  const orSet = (name: string) => (Object.keys(environ).length ? `, or set ${name}` : '');
  const { url, restUrl, token, getToken, name, logger, shareTabs, recover } = given;
  if (url === undefined) {
    throw missing(
      'url',
      'No URL was',
      `Pass \`url\`, for example wss://pubsub.example.com/ws${orSet('HANZO_PUBSUB_URL')}.`,
    );
  }
  checkUrl(url, 'url', ['ws:', 'wss:', 'http:', 'https:']);
  if (restUrl !== undefined) checkUrl(restUrl, 'restUrl', ['http:', 'https:']);
  checkValues(given, KINDS);
  const hasToken = (token ?? undefined) !== undefined;
  if (getToken && hasToken) {
    throw missing('token', 'Both `token` and `getToken` were', 'Pass one of them.');
  }
  if (!getToken && !hasToken) {
    const remedy = `Pass \`token\` or \`getToken\`${orSet('HANZO_PUBSUB_TOKEN')}.`;
    throw missing('token', 'No token was', remedy);
  }
  if (shareTabs && recover) {
    throw missing('recover', 'Both `recover` and `shareTabs` were', 'Pass one of them.');
  }
  if (name !== undefined) checkName(name);
  const { base = CLIENT.retryBase, cap = CLIENT.retryCap } = given.retry ?? {};
  if (cap < base)
    throw invalid('retry.cap', 'is below `retry.base`', 'Raise `cap` or lower `base`.');
  if (logger === undefined) return;
  if (typeof logger?.warn === 'function' && typeof logger.error === 'function') return;
  throw invalid(
    'logger',
    `is ${kind(logger)} without \`warn\` and \`error\``,
    'Pass console, or an object with functions of these names.',
  );
}

/** Warn of times that are probably in seconds, if there is one that may be. */
export function checkUnits(given: PubSubOptions): void {
  const values: readonly unknown[] = Object.values({ ...given, ...given.retry });
  if (!values.some((value) => typeof value === 'number' && value < LEAST)) return;
  // Without the condition, the production build would contain the chunk, and never load it.
  if (DEVELOPMENT)
    import('./hints.js').then(
      ({ warnOfSeconds }) => warnOfSeconds(given),
      () => {}, // only a warning is missing
    );
}

/** Check the queue limits of a subscription. */
export function checkReceiveQueue(given: Optional<ReceiveQueue>): void {
  if (DEVELOPMENT) checkGroup('queue', given, RECEIVE_QUEUE);
}

/** An error about an option that is missing or given twice. */
function missing(field: string, problem: string, remedy: string): InvalidOption {
  return new InvalidOption(`${problem} given.`, { remedy, field });
}
