/** Checks of options with full error messages; the production build omits them. */

import { DEVELOPMENT } from '../build.js';
import { InvalidOption } from '../errors.js';
import { CLIENT } from '../generated/defaults.js';
import { historyPageMax } from '../generated/limits.js';
import {
  checkChoice,
  checkFlag,
  checkFunction,
  checkGroup,
  checkName,
  checkNames,
  checkValues,
  invalid,
  type Kind,
  kind,
  type Range,
  TIME,
} from './checks.js';
import type { PubSubOptions, ReceiveQueue, Settings } from './options.js';
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

const SETTINGS: Readonly<Record<keyof Settings, Kind>> = {
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
};

const NAMES = [
  'url',
  'token',
  'getToken',
  'transport',
  'restUrl',
  'allowInsecure',
  'name',
  'echo',
  'shareTabs',
  'recover',
  'sendQueue',
  'receiveQueue',
  'retry',
  'WebSocket',
  'fetch',
  'logger',
  ...Object.keys(SETTINGS),
];

/**
 * Check the options of `new PubSub`, except the token.
 *
 * @throws InvalidOption A value has a wrong type or is out of range, a required one is missing, or
 *   a name is unknown; `field` names it.
 */
export function checkOptions(
  given: PubSubOptions,
  environ: Readonly<Record<string, string | undefined>>,
): void {
  checkNames('options', given, NAMES);
  // Browsers have no environment, or an empty one that a bundler provides.
  const orSet = (name: string) => (Object.keys(environ).length ? `, or set ${name}` : '');
  const { getToken, name, transport, logger, shareTabs, recover } = given;
  const url = given.url ?? (environ['HANZO_PUBSUB_URL'] || undefined);
  if (url === undefined) {
    throw missing(
      'url',
      'No URL was',
      `Pass \`url\`, for example wss://pubsub.example.com/ws${orSet('HANZO_PUBSUB_URL')}.`,
    );
  }
  checkUrl(url, 'url', ['ws:', 'wss:', 'http:', 'https:']);
  let { restUrl } = given;
  if (given.url === undefined) restUrl ??= environ['HANZO_PUBSUB_REST_URL'] || undefined;
  if (restUrl !== undefined) checkUrl(restUrl, 'restUrl', ['http:', 'https:']);
  checkFunction('getToken', getToken);
  const token = given.token ?? (getToken ? undefined : environ['HANZO_PUBSUB_TOKEN'] || undefined);
  if (getToken && token !== undefined) {
    throw missing('token', 'Both `token` and `getToken` were', 'Pass one of them.');
  }
  if (!getToken && token === undefined) {
    const remedy = `Pass \`token\` or \`getToken\`${orSet('HANZO_PUBSUB_TOKEN')}.`;
    throw missing('token', 'No token was', remedy);
  }
  if (transport !== undefined) checkChoice('transport', transport, ['auto', 'websocket', 'sse']);
  for (const field of ['echo', 'allowInsecure'] as const) checkFlag(field, given[field] ?? true);
  for (const field of ['shareTabs', 'recover'] as const) {
    const value = given[field] ?? false;
    if (typeof value === 'string') checkName(value, field);
    else checkFlag(field, value);
  }
  if ((shareTabs ?? false) !== false && (recover ?? false) !== false) {
    throw missing('recover', 'Both `recover` and `shareTabs` were', 'Pass one of them.');
  }
  checkFunction('WebSocket', given.WebSocket);
  checkFunction('fetch', given.fetch);
  checkValues<Settings>(given, SETTINGS);
  if (name !== undefined) checkName(name);
  checkSendQueue(given.sendQueue ?? {});
  checkReceiveQueue(given.receiveQueue ?? {}, 'receiveQueue');
  checkRetry(given.retry ?? {});
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
export function checkReceiveQueue(given: Partial<ReceiveQueue>, field: string): void {
  if (DEVELOPMENT) checkGroup(field, given, { ...QUEUE, policy: ['gap', 'error'] });
}

function checkSendQueue(given: NonNullable<PubSubOptions['sendQueue']>): void {
  const policy: Kind = ['error', 'block', 'drop_oldest', 'latest'];
  checkGroup('sendQueue', given, { ...QUEUE, policy });
}

function checkRetry(given: NonNullable<PubSubOptions['retry']>): void {
  checkGroup('retry', given, RETRY);
  const { base = CLIENT.retryBase, cap = CLIENT.retryCap } = given;
  if (cap < base)
    throw invalid('retry.cap', 'is below `retry.base`', 'Raise `cap` or lower `base`.');
}

/** An error about an option that is missing or given twice. */
function missing(field: string, problem: string, remedy: string): InvalidOption {
  return new InvalidOption(`${problem} given.`, { remedy, field });
}
