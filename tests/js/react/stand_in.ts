/** A message store whose client, frames and timers are controlled by the test. */

import type { Published, PublishOptions, PubSub } from '../../../js/src/index.js';
import {
  createStore,
  type Pace,
  type TopicOptions,
  type TopicStore,
} from '../../../js/src/react/topic_store.js';
import type { Outgoing, SubscriptionEvent } from '../../../js/src/values.js';

/** Animation frames and timers that run when the test triggers them. */
export class Beat implements Pace {
  frames: (() => void)[] = [];
  private _now = 0;
  private readonly _timers = new Set<{ readonly at: number; readonly callback: () => void }>();

  frame(callback: () => void): void {
    this.frames.push(callback);
  }

  later(milliseconds: number, callback: () => void): () => void {
    const timer = { at: this._now + milliseconds, callback };
    this._timers.add(timer);
    return () => this._timers.delete(timer);
  }

  draw(): void {
    for (const callback of this.frames.splice(0)) callback();
  }

  pass(milliseconds: number): void {
    this._now += milliseconds;
    for (const timer of this._timers) {
      if (timer.at > this._now) continue;
      this._timers.delete(timer);
      timer.callback();
    }
  }
}

export interface Asked {
  readonly topics: unknown;
  readonly options: TopicOptions & { readonly presence: boolean; readonly signal: AbortSignal };
  /** Deliver a message or gap to the subscription. */
  readonly bring: (...events: SubscriptionEvent[]) => Promise<void>;
  /** End the subscription with an error. */
  readonly fail: (error: Error) => Promise<void>;
  /** End the subscription as a closed client does. */
  readonly end: () => Promise<void>;
}

const END = new Error('the end');

/** A publish that the test settles. */
export interface Sent {
  readonly topic: string;
  readonly message: Outgoing;
  readonly options: PublishOptions;
  /** Accept the publish, as the server does. */
  readonly accept: (seq?: number) => Promise<void>;
  readonly reject: (error: Error) => Promise<void>;
}

/** A client whose subscriptions deliver what the test sends. */
function standIn(): {
  readonly client: Pick<PubSub, 'subscribe' | 'publish' | 'on' | 'state' | 'lastFailure'>;
  readonly asked: Asked[];
  readonly sent: Sent[];
} {
  const asked: Asked[] = [];
  const sent: Sent[] = [];
  const publish = (topic: string, message: Outgoing, options: PublishOptions): Promise<Published> =>
    new Promise((resolve, reject) => {
      sent.push({
        topic,
        message,
        options,
        accept: (seq) => {
          resolve({ id: message.id ?? '', timestamp: 1, seq, duplicate: false });
          return settle();
        },
        reject: (error) => {
          reject(error);
          return settle();
        },
      });
    });
  const subscribe = async (topics: unknown, options: unknown): Promise<unknown> => {
    const waiting: (SubscriptionEvent | Error)[] = [];
    let wake = (): void => {};
    const put = async (...events: (SubscriptionEvent | Error)[]): Promise<void> => {
      waiting.push(...events);
      wake();
      await settle();
    };
    asked.push({
      topics,
      options: options as Asked['options'],
      bring: put,
      fail: put,
      end: () => put(END),
    });
    await settle();
    return {
      positions: { 'a.b': 7 },
      async *events() {
        while (true) {
          for (const event of waiting.splice(0)) {
            if (event === END) return;
            if (event instanceof Error) throw event;
            yield event;
          }
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      },
    };
  };
  const on = (): (() => void) => () => {};
  const client = { subscribe, publish, on, state: 'connected', lastFailure: undefined };
  return { client: client as unknown as PubSub, asked, sent };
}

/** Run everything that is ready. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

export function message(data: number): SubscriptionEvent {
  const envelope = { id: `msg_${data}`, topic: 'a.b', type: 'message', data, timestamp: 1 };
  return { kind: 'message', message: envelope };
}

/** A store of `a.b` with a controlled client and frames. */
export function makeStore(): {
  readonly store: TopicStore;
  readonly beat: Beat;
  readonly asked: Asked[];
  readonly sent: Sent[];
  readonly ended: () => number;
} {
  const { client, asked, sent } = standIn();
  const beat = new Beat();
  let ended = 0;
  const store = createStore(client, ['a.b'], beat, () => {
    ended += 1;
  });
  return { store, beat, asked, sent, ended: () => ended };
}
