/** Requests to subscribe that the server has not answered, oldest first. */

import type { SubscribedFrame } from '../generated/wire.js';
import type { Join } from './join.js';

/** Requests remembered; a peer that echoes no `ref` may owe answers for ever. */
const MAX_ASKS = 10_000;

/** Unanswered requests by `ref`, which a plain peer never sees (H-042). */
export class Asks {
  private readonly _asks = new Map<string, { join: Join; asked: ReadonlySet<string> }>();
  private _number = 0;

  /** A `ref` that was not used before. */
  nextRef(kind: string): string {
    this._number += 1;
    return `${kind}${this._number}`;
  }

  /** A request for all patterns of a subscription; its `ref`. */
  add(join: Join): string {
    if (this._asks.size >= MAX_ASKS) {
      for (const oldest of this._asks.keys()) {
        this._asks.delete(oldest);
        break;
      }
    }
    const ref = this.nextRef('s');
    this._asks.set(ref, { join, asked: new Set(join.patterns) });
    return ref;
  }

  /** Who asked. */
  get(ref: string): Join | undefined {
    return this._asks.get(ref)?.join;
  }

  /** It is answered, or nobody waits for the answer. */
  drop(ref: string): void {
    this._asks.delete(ref);
  }

  /** The connection is gone, and the answers with it. */
  clear(): void {
    this._asks.clear();
  }

  /** The request that a `subscribed` answers: by its `ref`, or the oldest of its topics. */
  answeredBy(frame: SubscribedFrame): string | undefined {
    if (frame.ref !== undefined) return this._asks.has(frame.ref) ? frame.ref : undefined;
    const topics = new Set(frame.topics);
    const within = (asked: ReadonlySet<string>) => frame.topics.every((topic) => asked.has(topic));
    for (const [ref, { asked }] of this._asks) {
      if (asked.size === topics.size && within(asked)) return ref;
    }
    for (const [ref, { asked }] of this._asks) {
      if (topics.size && topics.size < asked.size && within(asked)) return ref;
    }
    return undefined;
  }

  /** The request that an `error` without a `ref` is about: the oldest that names its topic. */
  refusedBy(topic: string | undefined): string | undefined {
    for (const [ref, { asked }] of this._asks) {
      if (topic === undefined || asked.has(topic)) return ref;
    }
    return undefined;
  }
}
