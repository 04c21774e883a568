/**
 * The own presence of a client on topics: sent until the server has it, and again on a new
 * connection (PRES-3).
 *
 * One update of a topic is on its way at a time, and none while the server has asked to wait;
 * updates that come meanwhile are merged into the next one, in which the newest value of each key
 * counts.
 */

import type { ErrorFrame, JsonObject } from '../generated/wire.js';
import type { Context } from './context.js';
import type { Outcome, Rejected } from './ports.js';
import type { Publishes } from './publishes.js';
import type { Routes } from './routes.js';

/** Topics whose own presence is kept; the oldest gives way. */
const MAX_TOPICS = 10_000;

/** The server acknowledged it, now or at an update that says the same. */
const TAKEN: Outcome = { kind: 'acked', results: [] };

type Topic = string | undefined;

/** An update on its way, with the calls that wait for it. */
interface Update {
  readonly topic: Topic;
  readonly data: JsonObject;
  readonly refs: readonly number[];
}

/** Keys and values by topic; undefined for all topics. */
class Statuses {
  private readonly _byTopic = new Map<Topic, JsonObject>();

  /** Merge an update: the newest value of each key counts; null deletes on the server. */
  update(topic: Topic, data: JsonObject): void {
    if (topic === undefined) {
      for (const [other, said] of this._byTopic) this._leave(other, said, data);
    }
    const said = this._byTopic.get(topic);
    this._byTopic.delete(topic);
    this._byTopic.set(topic, { ...said, ...data });
    for (const oldest of this._byTopic.keys()) {
      if (this._byTopic.size <= MAX_TOPICS) break;
      this._byTopic.delete(oldest);
    }
  }

  /** Merge what is older than all that is here. */
  restore(topic: Topic, data: JsonObject): void {
    const said = this._byTopic.get(topic);
    const newer = { ...this._byTopic.get(undefined), ...said };
    const left = Object.entries(data).filter(([key]) => !Object.hasOwn(newer, key));
    if (left.length) this._byTopic.set(topic, { ...Object.fromEntries(left), ...said });
  }

  /** Forget what was refused. */
  forget(topic: Topic, data: JsonObject): void {
    const said = this._byTopic.get(topic);
    if (said) this._leave(topic, said, data, true);
  }

  /** What to send: first that for all topics, then that for each. */
  items(): [topic: Topic, data: JsonObject][] {
    return [...this._byTopic].sort(([one], [other]) => Number(!other) - Number(!one));
  }

  has(topic: Topic): boolean {
    return this._byTopic.has(topic);
  }

  delete(topic: Topic): void {
    this._byTopic.delete(topic);
  }

  /** Forget the topics that have no subscription any more. */
  keep(wanted: (topic: string) => boolean): void {
    for (const topic of this._byTopic.keys()) {
      if (topic !== undefined && !wanted(topic)) this._byTopic.delete(topic);
    }
  }

  /** Take the keys of `data` out; with `alike` only where the value is the same. */
  private _leave(topic: Topic, said: JsonObject, data: JsonObject, alike = false): void {
    const left = Object.entries(said).filter(
      ([key, value]) => !Object.hasOwn(data, key) || (alike && data[key] !== value),
    );
    if (left.length) this._byTopic.set(topic, Object.fromEntries(left));
    else this._byTopic.delete(topic);
  }
}

/** The part `own presence` of a session. */
export class OwnPresence {
  /** All that is in force. */
  private readonly _own = new Statuses();
  /** What is yet to be sent. */
  private _later = new Statuses();
  /** Calls that wait for what is yet to be sent. */
  private readonly _waiting = new Map<Topic, readonly number[]>();
  private readonly _inFlight = new Map<string, Update>();
  private readonly _busy = new Set<Topic>();
  private _number = 0;

  constructor(
    private readonly _context: Context,
    private readonly _publishes: Publishes,
    private readonly _routes: Routes,
  ) {}

  /** Change it; `ref` is settled when the server has it. */
  update(topic: Topic, data: JsonObject, ref: number | undefined): void {
    this._own.update(topic, data);
    this._later.update(topic, data);
    if (ref !== undefined) this._wait(topic, [ref]);
    this._gather();
    this.flush();
  }

  /** Send all of it on a new connection. */
  resend(): void {
    this._later = new Statuses();
    for (const [topic, data] of this._own.items()) this._later.update(topic, data);
    this._gather();
    this.flush();
  }

  /** Send what waits, as far as it may be sent now. */
  flush(): void {
    const { peer } = this._context;
    if (!peer) return;
    // Beside an event stream an update is a request, which every server answers.
    const needed = peer.incremental ? ['ref', 'ack'] : ['ref'];
    const answers = needed.every((feature) => peer.features.has(feature));
    for (const [topic, data] of this._later.items()) {
      if (answers) {
        // Updates of all topics and of one keep their order.
        const held = topic === undefined ? this._busy.size > 0 : this._busy.has(undefined);
        if (held || this._publishes.paused) return;
        if (this._busy.has(topic)) continue;
      }
      const refs = this._waiting.get(topic) ?? [];
      this._waiting.delete(topic);
      this._later.delete(topic);
      this._number += 1;
      const ref = `m${this._number}`;
      this._context.ports.send({ type: 'presence.update', topic, data, ref });
      if (answers) {
        this._inFlight.set(ref, { topic, data, refs });
        this._busy.add(topic);
      } else {
        this._settle(refs, TAKEN);
      }
    }
  }

  /** The server answered; false if nothing is known under the `ref`. */
  answered(ref: string | undefined): boolean {
    const update = this._take(ref);
    if (!update) return false;
    this._settle(update.refs, TAKEN);
    this.flush();
    return true;
  }

  /** The server refused, permanently; false if nothing is known under the `ref`. */
  refused({ ref, code, message, remedy, topic, field, retry_after_ms }: ErrorFrame): boolean {
    const update = this._take(ref);
    if (!update) return false;
    this._own.forget(update.topic, update.data);
    const { refs, topic: about } = update;
    const error = { code, message, topic: topic ?? about, retryAfter: retry_after_ms };
    if (refs.length) this._settle(refs, { kind: 'rejected', remedy, field, ...error });
    else this._context.ports.problem(error);
    this.flush();
    return true;
  }

  /** The server refused for now: it is sent again; false if nothing is known under the `ref`. */
  postponed(ref: string | undefined): boolean {
    const update = this._take(ref);
    if (!update) return false;
    this._later.restore(update.topic, update.data);
    this._wait(update.topic, update.refs);
    this._gather();
    return true;
  }

  /** The connection is gone: what was not answered is sent again. */
  lost(): void {
    for (const { topic, refs } of this._inFlight.values()) this._wait(topic, refs);
    this._inFlight.clear();
    this._busy.clear();
  }

  /** The session has ended. */
  settleAll(error: Rejected): void {
    this.lost();
    for (const refs of this._waiting.values()) this._settle(refs, error);
    this._waiting.clear();
  }

  /** Forget topics that no subscription takes any more. */
  keepTopics(): void {
    this._own.keep((topic) => this._routes.find(topic).length > 0);
  }

  private _take(ref = ''): Update | undefined {
    const update = this._inFlight.get(ref);
    this._inFlight.delete(ref);
    if (update) this._busy.delete(update.topic);
    return update;
  }

  /** Have calls wait for the next update of a topic. */
  private _wait(topic: Topic, refs: readonly number[]): void {
    const all = [...(this._waiting.get(topic) ?? []), ...refs];
    if (all.length)
      this._waiting.set(
        topic,
        all.sort((a, b) => a - b),
      );
  }

  /** An update of all topics replaced some updates of one: their calls wait for that. */
  private _gather(): void {
    for (const [topic, refs] of [...this._waiting]) {
      if (this._later.has(topic)) continue;
      this._waiting.delete(topic);
      if (this._later.has(undefined)) this._wait(undefined, refs);
      else this._settle(refs, TAKEN);
    }
  }

  private _settle(refs: readonly number[], outcome: Outcome): void {
    for (const ref of refs) this._context.ports.settle(ref, outcome);
  }
}
