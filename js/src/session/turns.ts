/**
 * Whose publish goes next where the rate of a client is used up.
 *
 * Publishes wait in three lanes: messages, the newest values of keys (policy `latest`), and what the
 * program publishes in the background, such as token streams. The lanes take turns, 4:1:1, by smooth
 * weighted round robin; a message that comes alone goes next. Within a lane the order is that of the
 * calls.
 */

import type { Publish } from './requests.js';

/**
 * The publish of a queue that goes next.
 *
 * @param credit What the lanes have saved up, by lane; nothing where none waited.
 * @returns It, and the credit once it has gone.
 */
export function turnOf<Entry extends { readonly _publish: Publish }>(
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
