/** Selects the next publish while the rate of a client is used up. */

import type { PublishState } from './publish_state.js';

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
  queue: readonly PublishState[],
  credit: readonly number[],
): [PublishState, readonly number[]] {
  const heads: PublishState[] = [];
  for (const entry of queue) {
    const { background, key } = entry._publish;
    heads[background ? 2 : key === undefined ? 0 : 1] ??= entry;
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
  return [heads[next] as PublishState, then];
}
