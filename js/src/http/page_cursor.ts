/** `PageCursor`: the place in a log that is read page by page, backwards or forwards. Pure. */

import { DEVELOPMENT } from '../build.js';
import { Unsupported } from '../errors.js';
import type { HistoryQuery, Page } from './calls.js';

const NO_POSITIONS = 'The server cannot end a page before a position.';

const TURNS = 'Servers with different positions answer in turn.';

/** The place of the next page. */
export interface PageCursor {
  /** Selects the next page: forwards if it has `after`, otherwise backwards. */
  readonly query: HistoryQuery;
  /** Position or id of the newest entry of the last page; at first, `after`. */
  readonly newest: number | string | undefined;
  /** The positions have fallen. */
  readonly hasFallen?: boolean | undefined;
}

/**
 * The cursor beyond a page; undefined if the page does not move it.
 *
 * Such a page ends the reading: it is empty, or the peer ignores the place and sends a page again.
 *
 * @throws Unsupported The server cannot end a page before a position; or the positions fall a second
 *   time, because servers with different positions answer in turn.
 */
export function beyond(
  { query, newest, hasFallen }: PageCursor,
  { ids, positions }: Page,
  topic: string,
): PageCursor | undefined {
  const { before, before_seq, after } = query;
  const position = positions.at(-1);
  const last = position ?? ids.at(-1);
  if (last === undefined || last === newest) return undefined;
  const falls = (position as number) < (after ?? (before_seq as number));
  if (after === undefined) {
    if (before === undefined && before_seq !== undefined && !falls) {
      throw new Unsupported(DEVELOPMENT ? NO_POSITIONS : undefined, {
        topic,
        field: 'before',
        remedy: 'Pass the id of a message as `before`.',
      });
    }
  } else if (falls && hasFallen) {
    throw new Unsupported(DEVELOPMENT ? TURNS : undefined, {
      topic,
      remedy: 'Let the load balancer send each client to one node.',
    });
  }
  // Several senders can use one id; only some servers read the position.
  const next =
    after === undefined
      ? { before: ids[0], before_seq: positions[0] }
      : { after: position ?? after };
  return {
    query: { ...query, ...next },
    newest: last,
    // Positions fall once if the log has restarted.
    hasFallen: hasFallen || falls,
  };
}
