/** Describes missing messages, in errors and in the log. */

import { DEVELOPMENT } from '../build.js';
import { fromCode, type PubSubError } from '../errors.js';
import { logText } from '../log_text.js';
import type { Peer } from '../session/peer.js';
import type { Subscribe } from '../session/requests.js';
import type { ClientOptions } from '../settings/options.js';
import type { Gap, GapReason, Logger } from '../values.js';

/**
 * Maximum remembered topics with a logged gap; above it, a gap of the oldest may be logged again.
 */
const LOGGED = 1_000;

const REASONS: Readonly<Record<GapReason, string>> = {
  history_trimmed:
    'the history of the server no longer reaches that far back, or one replay cannot contain them',
  log_reset: 'the server lost its history, or messages of other nodes',
  node_changed: 'the client moved to a node that has its own history',
  slow_consumer: 'the program reads too slowly, and the queue of the subscription was full',
  unproven: 'the server cannot prove that none is missing',
};

/** The error of `onGap: 'raise'`: the missing messages and the reason, in one sentence. */
export function missed(gap: Gap): PubSubError {
  const { topic, from, to, missed: count, reason } = gap;
  const about = { topic, ...{ gap } };
  if (!DEVELOPMENT) {
    return fromCode('messages_missed', `Missed messages of topic ${topic}: ${reason}.`, about);
  }
  const possible = reason === 'unproven' || reason === 'node_changed';
  const unknown = possible ? 'Perhaps messages' : 'Messages';
  const what = count === undefined ? unknown : `${inWords(count)} message${count === 1 ? '' : 's'}`;
  const known = count !== undefined && from !== undefined && to !== undefined;
  const where = known ? ` (positions ${from} to ${to})` : '';
  const verb = count === 1 ? 'was' : 'were';
  const message = `${what} of topic ${topic}${where} ${verb} missed: ${REASONS[reason]}.`;
  return fromCode('messages_missed', message, about);
}

/** Warn of a `history` that exceeds what the server retains. */
export function checkHistory(
  { peer, options }: { readonly peer: Peer | undefined; readonly options: ClientOptions },
  { topics, history = 0 }: Subscribe,
): void {
  const most = peer?.limits?.history_max ?? history;
  if (history <= most) return;
  options.logger.warn(
    DEVELOPMENT
      ? `subscribe() to ${topics[0]} asks for \`history\` of ${inWords(history)} messages, and ` +
          `the server retains ${inWords(most)} messages of a topic, unless its settings say otherwise ` +
          'for this topic (`ps.limits.history_max`).'
      : `\`history\` of ${history} is over the limit of ${most}.`,
  );
}

function inWords(count: number): string {
  return count.toLocaleString('en-US');
}

/** Log the first gap of each topic that no handler receives. */
export function warn(gap: Gap, logged: Set<string>, logger: Logger): void {
  if (logged.has(gap.topic)) return;
  logged.add(gap.topic);
  if (logged.size > LOGGED) logged.delete(logged.values().next().value as string);
  const message = logText(missed(gap).message);
  logger.warn(
    DEVELOPMENT
      ? `${message} To handle gaps, pass \`onGap\` (a function, or 'raise') or ` +
          "`stateLoader` to subscribe(), listen to `ps.on('gap')`, or iterate `sub.events()`. " +
          'Further gaps of this topic are not logged for this subscription; `sub.stats` counts them.'
      : message,
  );
}
