/**
 * What a send queue does beyond its order: gives up publishes for others, and shares a rate that is
 * used up.
 *
 * A client loads it before its first publish with another policy than `error`, or in the background.
 */

import type { Entry, Publishes } from './publishes.js';
import type { Publish } from './requests.js';

/**
 * What the policy gives up for one more publish: an unsent one of its key, or the oldest.
 *
 * @returns The number of the one of its key: at the end of the queue, the newest of a key that
 *   changes faster than the queue moves would never be sent.
 */
export function makeRoom(
  publishes: Publishes,
  { ref, messages, size, policy, key }: Publish,
): number | undefined {
  const unsent = (): Entry[] => [...publishes._queue._entries.values()].filter((one) => !one._sent);
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
 * The publish of a queue that goes next where the rate of the client is used up.
 *
 * Publishes wait in three lanes: messages, the newest values of keys (policy `latest`), and what the
 * program publishes in the background, such as token streams. The lanes take turns, 4:1:1, by smooth
 * weighted round robin; a message that comes alone goes next. Within a lane the order is that of the
 * calls.
 *
 * @param credit What the lanes have saved up, by lane; nothing where none waited.
 * @returns It, and the credit once it has gone.
 */
export function turnOf(
  queue: Iterable<Entry>,
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
    // What is saved up stays small, so that a message that comes alone goes next.
    return Math.min(credit[lane] ?? 0, 1) + weight;
  });
  const most = Math.max(...then.flat());
  const next = then.indexOf(most);
  then[next] = most - all;
  return [heads[next] as Entry, then];
}
