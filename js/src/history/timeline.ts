/** The messages of one topic that a page shows: loaded ones, then those that arrived. Pure. */

import type { Message } from '../values.js';

/** @internal Joined messages. */
export interface Joined {
  /** Oldest first, each once. */
  readonly messages: readonly Message[];
  /** Whether older ones were left out, because messages are missing after them. */
  readonly isCut: boolean;
}

/**
 * @internal What identifies a message of a topic. A log that restarts uses its positions again, and
 * senders may share ids.
 */
export function keyOf({ seq, id, sender }: Message): string {
  return JSON.stringify([seq, id, sender?.id]);
}

/** Whether the position shows if messages are missing: only stored messages have one. */
function isPlaced({ seq, ttl }: Message): boolean {
  return seq !== undefined && ttl !== 0;
}

/**
 * @internal Join messages of one topic, each list oldest first.
 *
 * If positions show that messages are missing between the lists, only the later list remains.
 */
export function join(earlier: readonly Message[], later: readonly Message[]): Joined {
  const places = new Map(earlier.map((message, n) => [keyOf(message), n]));
  const messages: Message[] = [];
  const put = (list: readonly Message[]): void => {
    for (const message of list) messages.push(message);
  };
  /** New messages since the last one that both lists have. */
  let arrived: Message[] = [];
  /** Place of the first earlier message that is not put yet. */
  let next = 0;
  let isNew = false;
  let overlaps = false;
  for (const message of later) {
    const place = places.get(keyOf(message));
    if (place === undefined) {
      isNew = true;
      arrived.push(message);
      continue;
    }
    overlaps ||= isPlaced(message);
    if (place < next) continue;
    put(earlier.slice(next, place));
    put(arrived);
    put([message]);
    arrived = [];
    next = place + 1;
  }
  // The view keeps its list.
  if (!isNew) return { messages: earlier, isCut: false };
  if (!overlaps && isMissing(earlier, later)) return { messages: later, isCut: true };
  const rest = earlier.slice(next);
  put(next ? arrived : rest);
  put(next ? rest : arrived);
  return { messages, isCut: false };
}

/** Whether positions show that messages are missing between two lists. */
function isMissing(earlier: readonly Message[], later: readonly Message[]): boolean {
  const first = later.find(isPlaced)?.seq;
  const last = [...earlier].reverse().find(isPlaced)?.seq;
  return first !== undefined && last !== undefined && first - 1 !== last;
}

/** @internal Put a page of history before messages that have arrived, without those they repeat. */
export function prepend(page: readonly Message[], messages: readonly Message[]): Message[] {
  const known = new Set(messages.map(keyOf));
  return [...page.filter((message) => !known.has(keyOf(message))), ...messages];
}
