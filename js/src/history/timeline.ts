/** The messages of one topic that a page shows: loaded ones, then those that arrived. Pure. */

import type { Message } from '../values.js';

/** @internal Joined messages. */
export interface Joined {
  /** Oldest first, each once. */
  readonly messages: readonly Message[];
  /** Whether older ones were left out, because messages are missing after them. */
  readonly isCut: boolean;
}

/** @internal What identifies a message of a topic: its position, otherwise its sender and id. */
export function keyOf({ seq, id, sender }: Message): string {
  return seq === undefined ? `${sender?.id} ${id}` : `${seq}`;
}

/**
 * @internal Join messages of one topic, each list oldest first: the ones that overlap or follow.
 *
 * If messages may be missing between the lists, only the later one remains.
 */
export function join(earlier: readonly Message[], later: readonly Message[]): Joined {
  const [first] = later;
  const last = earlier.at(-1);
  if (!first || !last) return { messages: first ? later : earlier, isCut: false };
  const places = new Map(earlier.map((message, n) => [keyOf(message), n]));
  const from = later.findIndex((message) => places.has(keyOf(message)));
  if (from < 0) {
    const follows = first.seq !== undefined && first.seq - 1 === last.seq;
    return follows
      ? { messages: [...earlier, ...later], isCut: false }
      : { messages: later, isCut: true };
  }
  const placeOf = (message: Message | undefined): number =>
    message ? (places.get(keyOf(message)) ?? -1) : -1;
  const begin = placeOf(later[from]);
  const end = Math.max(...later.map(placeOf));
  // Nothing has changed: the view keeps its list.
  if (later.every((message) => places.has(keyOf(message)))) {
    return { messages: earlier, isCut: false };
  }
  const messages = [
    ...earlier.slice(0, begin),
    ...later.slice(begin ? from : 0),
    ...earlier.slice(end + 1),
  ];
  return { messages, isCut: false };
}

/** @internal Put a page of history before messages that have arrived, without those they repeat. */
export function prepend(page: readonly Message[], messages: readonly Message[]): Message[] {
  const known = new Set(messages.map(keyOf));
  return [...page.filter((message) => !known.has(keyOf(message))), ...messages];
}
