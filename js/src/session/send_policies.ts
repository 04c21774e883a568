/**
 * Policies of a send queue beyond its order: drops publishes for others, and shares a rate that is
 * used up.
 *
 * A client loads this module before its first publish with a policy other than `error`, or in the
 * background.
 */

import type { Entry, Publishes } from './publishes.js';
import type { Publish } from './requests.js';

/**
 * The publish that the policy drops for one more: an unsent one of the same key, or the oldest.
 *
 * @returns Its number. The new publish takes the position of the dropped one of its key: at the end
 *   of the queue, a key that changes faster than the queue moves would never be sent.
 */
export function makeRoom(
  publishes: Publishes,
  { ref, messages, size, policy, key }: Publish,
): number | undefined {
  const unsent = (): Entry[] => publishes._queue._all().filter((one) => !one._sent);
  if (policy === 'latest' && key !== undefined) {
    const same = unsent().find((entry) => !entry._tried && entry._publish.key === key);
    if (same) publishes._giveUp(same, 'superseded', `Publish ${ref} took its place.`);
    return same?._number;
  }
  while (policy === 'drop_oldest' && !publishes.hasRoom(messages.length, size)) {
    const [oldest] = unsent();
    if (!oldest) break;
    publishes._giveUp(oldest, 'dropped', 'A newer publish needed its place in the queue.');
  }
  return undefined;
}

/**
 * The next publish of a queue while the rate of the client is used up.
 *
 * Publishes wait in three lanes: messages, the newest values of keys (policy `latest`), and
 * background publishes of the program, such as token streams. The lanes take turns, 4:1:1, by
 * smooth weighted round robin; a single message goes next. Within a lane, publishes keep the order
 * of the calls.
 *
 * @param credit The saved credit by lane; zero if none has waited.
 * @returns The publish, and the credit after it.
 */
export function nextTurn(
  queue: readonly Entry[],
  credit: readonly number[],
): [Entry, readonly number[]] {
  const heads: Entry[] = [];
  for (const entry of queue) {
    const { background, policy, key } = entry._publish;
    heads[background ? 2 : policy === 'latest' && key !== undefined ? 1 : 0] ??= entry;
  }
  let all = 0;
  const then = heads.map((_, lane) => {
    const weight = lane ? 1 : 4;
    all += weight;
    // Keep the credit small, so that a single message goes next.
    return Math.min(credit[lane] ?? 0, 1) + weight;
  });
  const most = Math.max(...then.flat());
  const next = then.indexOf(most);
  then[next] = most - all;
  return [heads[next] as Entry, then];
}
