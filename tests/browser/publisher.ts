/** A publisher in Node that does not depend on the readers. */

import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';

import { bounded, type Server } from '../js/runtime/server.js';
import { atEnd } from './ending.js';

/** Server settings for it: no rate limit rejects a message, and the history retains all of them. */
export const GENEROUS: readonly string[] = [
  ...['--publish-rate-service', '100000', '--publish-burst', '100000'],
  ...['--history-max-messages', '100000'],
];

/** Publishes 0, 1, 2, … to a topic, several every few milliseconds. */
export interface Publisher {
  /** Wait until this many more are published. */
  more(messages: number): Promise<void>;
  /** Stop; returns all numbers that were published. */
  stop(): Promise<number[]>;
}

export function publishNumbers(t: TestContext, server: Server, topic: string): Publisher {
  const client = server.client({ token: server.token('--user', 'publisher', '--service') });
  let count = 0;
  let on = true;
  let waiting: { readonly from: number; readonly resolve: () => void }[] = [];
  const run = async (): Promise<void> => {
    while (on) {
      await client.publish(topic, { type: 'number', data: { index: count } });
      count += 1;
      for (const { from, resolve } of waiting) if (count >= from) resolve();
      waiting = waiting.filter(({ from }) => count < from);
      await pause(12);
    }
  };
  const done = run();
  done.catch(() => {});
  const stop = async (): Promise<number[]> => {
    on = false;
    await done;
    return Array.from({ length: count }, (_, index) => index);
  };
  atEnd(t, stop);
  return {
    more: (messages) =>
      bounded(
        new Promise((resolve) => waiting.push({ from: count + messages, resolve })),
        `${messages} more numbers`,
      ),
    stop,
  };
}
