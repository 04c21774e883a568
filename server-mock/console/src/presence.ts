/** The users present on the watched topics, and who joined and left. */

import { matches, type PresenceChange, type PresenceMember } from '@hanzoai/pubsub';

import { Signal } from './reactive.js';

/** Maximum entries of the log. */
const LOG_MAX = 30;
/** Maximum topics whose members are stored. */
const TOPICS_MAX = 500;

/** A member joined, changed or left. */
export interface Movement {
  readonly at: number;
  readonly topic: string;
  readonly change: 'join' | 'connect' | 'update' | 'disconnect' | 'leave';
  readonly member: PresenceMember;
}

/** Members by topic. */
export class People {
  readonly topics: Signal<ReadonlyMap<string, readonly PresenceMember[]>> = new Signal(new Map());
  readonly log: Signal<readonly Movement[]> = new Signal<readonly Movement[]>([]);
  /** The subscription whose changes count for a topic that several subscriptions cover. */
  private readonly _source = new Map<string, string>();

  /** Apply a change that a subscription reported. */
  take(pattern: string, { topic, members, change, member }: PresenceChange): void {
    const source = this._source.get(topic) ?? pattern;
    if (source !== pattern) return;
    const known = this.topics.peek();
    if (!known.has(topic) && known.size >= TOPICS_MAX) return;
    const next = new Map(known);
    if (members.length) {
      this._source.set(topic, pattern);
      next.set(topic, members);
    } else {
      this._source.delete(topic);
      next.delete(topic);
    }
    this.topics.value = next;
    if (change === 'snapshot') return;
    const movement: Movement = { at: Date.now(), topic, change, member };
    this.log.value = [movement, ...this.log.peek()].slice(0, LOG_MAX);
  }

  /** Remove a subscription that has ended. */
  forget(pattern: string, left: readonly string[]): void {
    const next = new Map(this.topics.peek());
    for (const [topic, source] of this._source) {
      if (source !== pattern) continue;
      const successor = left.find((each) => matches(each, topic));
      if (successor) this._source.set(topic, successor);
      else {
        this._source.delete(topic);
        next.delete(topic);
      }
    }
    this.topics.value = next;
  }
}
