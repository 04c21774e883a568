/**
 * The client's own presence on topics: sent until the server acknowledges it, and again on each new
 * connection (PRES-3).
 *
 * At most one update per topic is in flight, within the rate of publishes. Updates that arrive
 * meanwhile are merged into the next one; the newest value of each key wins.
 */

import type { ErrorFrame, JsonObject } from '../generated/wire.js';
import { RATE_LIMITED } from './events.js';
import type { Context, Outcome, OutcomePort, Rejected } from './ports.js';
import { type Publishes, UNKNOWN } from './publishes.js';
import type { Routes } from './routes.js';

/** Maximum topics with own presence; updates of others are rejected. */
const MAX_TOPICS = 10_000;

/** The server acknowledged it, or will with a pending update of the same values. */
const ACKNOWLEDGED: Outcome = { kind: 'acked', results: [] };

type Topic = string | undefined;

/** An update in flight, with the calls that wait for it. */
interface Update {
  readonly topic: Topic;
  readonly data: JsonObject;
  readonly refs: readonly number[];
}

/** Keys and values by topic; undefined for all topics. */
class PresenceValues {
  _byTopic: Map<Topic, JsonObject> = new Map();

  /** Merge an update: the newest value of each key counts; null deletes on the server. */
  _update(topic: Topic, data: JsonObject): void {
    if (topic === undefined) {
      for (const other of this._byTopic.keys()) this._forget(other, data);
    }
    const earlier = this._byTopic.get(topic);
    this._byTopic.delete(topic);
    this._byTopic.set(topic, { ...earlier, ...data });
  }

  /** Merge older values: existing keys win. */
  _restore(topic: Topic, data: JsonObject): void {
    const left = this._missing(topic, data);
    if (!Object.keys(left).length) return;
    this._byTopic.set(topic, { ...left, ...this._byTopic.get(topic) });
  }

  /** The values that no value here replaces. */
  _missing(topic: Topic, data: JsonObject): JsonObject {
    return without(data, { ...this._byTopic.get(undefined), ...this._byTopic.get(topic) });
  }

  /** Forget the values under the keys of `data`. */
  _forget(topic: Topic, data: JsonObject): void {
    const left = without(this._byTopic.get(topic) ?? {}, data);
    if (Object.keys(left).length) this._byTopic.set(topic, left);
    else this._byTopic.delete(topic);
  }

  /** The updates to send: first the one for all topics, then one per topic. */
  _items(): [topic: Topic, data: JsonObject][] {
    return [...this._byTopic].sort(([one], [other]) => Number(!other) - Number(!one));
  }
}

function without(data: JsonObject, others: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(data).filter(([key]) => !Object.hasOwn(others, key)));
}

/** Updates the presence of this client. */
export class OwnPresence {
  /** All values in force. */
  private readonly _own = new PresenceValues();
  /** Values to send. */
  private readonly _later = new PresenceValues();
  /** Calls that wait for the values to send. */
  private readonly _waiting = new Map<Topic, readonly number[]>();
  /** Updates without an answer, by `ref`; at most one for each topic. */
  private readonly _inFlight = new Map<string | undefined, Update>();
  /** Calls without an outcome. */
  private readonly _calls = new Set<number>();
  private _number = 0;

  constructor(
    private readonly _context: Context,
    private readonly _publishes: Publishes,
    private readonly _routes: Routes,
    private readonly _outcomes: OutcomePort,
  ) {}

  /** Change it; `ref` is settled when the server acknowledges the change. */
  update(topic: Topic, data: JsonObject, ref: number): void {
    const { _byTopic: own } = this._own;
    if (topic && !own.has(topic) && own.size >= MAX_TOPICS) {
      this._outcomes.settle(ref, {
        kind: 'rejected',
        code: 'queue_full',
        message: 'This client has already set presence on 10,000 topics.',
        remedy: 'Unsubscribe from some of these topics, or use several clients.',
        topic,
      });
      return;
    }
    this._calls.add(ref);
    this._own._update(topic, data);
    this._later._update(topic, data);
    this._wait(topic, [ref]);
    if (!topic) this._mergeWaiting();
    this.flush();
  }

  /** Calls have ended: settle them as unknown. Their updates are still sent. */
  expire(refs: readonly number[]): void {
    this._settle(refs, UNKNOWN);
    this.flush();
  }

  /** Send all values on a new connection, also those that the last one left unanswered. */
  connected(): void {
    this._later._byTopic = new Map(this._own._byTopic);
    for (const { topic, refs } of this._inFlight.values()) this._wait(topic, refs);
    this._inFlight.clear();
    this._mergeWaiting();
    this.flush();
  }

  /** Send pending updates, as far as limits allow. */
  flush(): void {
    const { peer } = this._context;
    if (!peer) return;
    const busy = new Set([...this._inFlight.values()].map(({ topic }) => topic));
    const answers = peer.acks && peer.features.has('ref');
    for (const [topic, data] of this._later._items()) {
      // Keep the order between updates of all topics and updates of one.
      if (topic ? busy.has(undefined) : busy.size) return;
      if (busy.has(topic)) continue;
      if (!this._publishes._takeTurn()) return;
      const refs = this._waiting.get(topic) ?? [];
      this._waiting.delete(topic);
      this._later._byTopic.delete(topic);
      const ref = `m${++this._number}`;
      this._context.ports.send({ type: 'presence.update', topic, data, ref });
      if (answers) {
        this._inFlight.set(ref, { topic, data, refs });
        busy.add(topic);
      } else {
        this._settle(refs, ACKNOWLEDGED);
      }
    }
  }

  acknowledged(ref: string | undefined): void {
    const update = this._take(ref);
    if (!update) return;
    this._settle(update.refs, ACKNOWLEDGED);
    this.flush();
  }

  /** The server rejected the update with the `ref`, if there is one. */
  rejected(frame: ErrorFrame): void {
    const update = this._take(frame.ref);
    if (!update) return;
    const { topic, data, refs } = update;
    if (frame.code === RATE_LIMITED) {
      this._later._restore(topic, data);
      this._wait(topic, refs);
    } else {
      this._own._forget(topic, this._later._missing(topic, data));
      const error = { ...frame, topic: frame.topic ?? topic };
      // Its calls may have ended.
      if (!this._settle(refs, { ...error, kind: 'rejected' })) this._context.ports.problem(error);
    }
    this.flush();
  }

  /** The session has ended, and its connection is lost. */
  settleAll(error: Rejected): void {
    this._settle([...this._calls], error);
  }

  /**
   * A subscription has ended: drop updates of topics that no other one names. Subscribers of a
   * pattern that matches a topic are not its members.
   */
  dropTopics(patterns: readonly string[]): void {
    for (const topic of patterns) {
      if (!this._routes.byPattern.has(topic)) this._own._byTopic.delete(topic);
    }
  }

  private _take(ref: string | undefined): Update | undefined {
    const update = this._inFlight.get(ref);
    this._inFlight.delete(ref);
    return update;
  }

  /** Let calls wait for the next update of a topic, or for one of all topics in its place. */
  private _wait(topic: Topic, refs: readonly number[]): void {
    const { _byTopic } = this._later;
    const later = _byTopic.has(topic) ? topic : undefined;
    const all = [...(this._waiting.get(later) ?? []), ...refs].filter((ref) =>
      this._calls.has(ref),
    );
    if (_byTopic.has(later)) this._waiting.set(later, all);
    else this._settle(refs, ACKNOWLEDGED);
  }

  /** Let calls whose updates were replaced wait for what took their place. */
  private _mergeWaiting(): void {
    const waiting = [...this._waiting];
    this._waiting.clear();
    for (const [topic, refs] of waiting) this._wait(topic, refs);
  }

  /** Settle those of the calls that have no outcome yet; returns whether there are any. */
  private _settle(refs: readonly number[], outcome: Outcome): boolean {
    const settled = refs.filter((ref) => this._calls.delete(ref)).sort((a, b) => a - b);
    for (const ref of settled) this._outcomes.settle(ref, outcome);
    return settled.length > 0;
  }
}
