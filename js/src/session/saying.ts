/**
 * What the user says of itself on topics: sent gently, until the server has it, and again on a new
 * connection (PRES-3).
 *
 * One update of a topic is on its way at a time, and none while the server has asked to wait; what is
 * said meanwhile is one update more, in which the last word on each key counts.
 */

import type { ErrorFrame, JsonObject } from '../generated/wire.js';
import type { Outcome, Rejected } from './effects.js';
import type { Lifecycle } from './lifecycle.js';

/** Topics of which is kept what was said; the oldest gives way. */
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

/** What was said, by topic; undefined for all topics. */
export class OwnPresence {
  private readonly _said = new Map<Topic, JsonObject>();

  /** Merge an update: the last word on each key counts; null deletes on the server. */
  update(topic: Topic, data: JsonObject): void {
    if (topic === undefined) {
      for (const [other, said] of this._said) this._leave(other, said, data);
    }
    const said = this._said.get(topic);
    this._said.delete(topic);
    this._said.set(topic, { ...said, ...data });
    for (const oldest of this._said.keys()) {
      if (this._said.size <= MAX_TOPICS) break;
      this._said.delete(oldest);
    }
  }

  /** Merge what was said before all that is here. */
  restore(topic: Topic, data: JsonObject): void {
    const said = this._said.get(topic);
    const newer = { ...this._said.get(undefined), ...said };
    const left = Object.entries(data).filter(([key]) => !Object.hasOwn(newer, key));
    if (left.length) this._said.set(topic, { ...Object.fromEntries(left), ...said });
  }

  /** Forget what was refused. */
  forget(topic: Topic, data: JsonObject): void {
    const said = this._said.get(topic);
    if (said) this._leave(topic, said, data, true);
  }

  /** What to say: first that for all topics, then that for each. */
  items(): [topic: Topic, data: JsonObject][] {
    return [...this._said].sort(([one], [other]) => Number(!other) - Number(!one));
  }

  has(topic: Topic): boolean {
    return this._said.has(topic);
  }

  delete(topic: Topic): void {
    this._said.delete(topic);
  }

  /** Forget what was said on topics that nobody wants any more. */
  keep(wanted: (topic: string) => boolean): void {
    for (const topic of this._said.keys()) {
      if (topic !== undefined && !wanted(topic)) this._said.delete(topic);
    }
  }

  /** Take the keys of `data` out of what was said; with `alike` only where the value is the same. */
  private _leave(topic: Topic, said: JsonObject, data: JsonObject, alike = false): void {
    const left = Object.entries(said).filter(
      ([key, value]) => !Object.hasOwn(data, key) || (alike && data[key] !== value),
    );
    if (left.length) this._said.set(topic, Object.fromEntries(left));
    else this._said.delete(topic);
  }
}

/** What the user says of itself. */
export class Saying {
  private readonly _own = new OwnPresence();
  private _later = new OwnPresence();
  private readonly _waiting = new Map<Topic, readonly number[]>();
  private readonly _asked = new Map<string, Update>();
  private readonly _busy = new Set<Topic>();
  private _number = 0;

  constructor(private readonly _session: Lifecycle) {}

  /** Say something; `ref` is settled when the server has it. */
  _say(topic: Topic, data: JsonObject, ref: number | undefined): void {
    this._own.update(topic, data);
    this._later.update(topic, data);
    if (ref !== undefined) this._wait(topic, [ref]);
    this._gather();
    this._flush();
  }

  /** Say on a new connection what was said before. */
  _sayAgain(): void {
    this._later = new OwnPresence();
    for (const [topic, data] of this._own.items()) this._later.update(topic, data);
    this._gather();
    this._flush();
  }

  /** Say what waits, as far as it may be said now. */
  _flush(): void {
    const { _peer, outbox } = this._session;
    if (!_peer) return;
    // Beside an event stream an update is a request, which every server answers.
    const needed = _peer.incremental ? ['ref', 'ack'] : ['ref'];
    const answers = needed.every((feature) => _peer.features?.includes(feature));
    for (const [topic, data] of this._later.items()) {
      if (answers) {
        // What is said of all topics goes neither before nor after what is said of one by chance.
        const held = topic === undefined ? this._busy.size > 0 : this._busy.has(undefined);
        if (held || outbox._paused) return;
        if (this._busy.has(topic)) continue;
      }
      const refs = this._waiting.get(topic) ?? [];
      this._waiting.delete(topic);
      this._later.delete(topic);
      this._number += 1;
      const ref = `m${this._number}`;
      this._session._send({ type: 'presence.update', topic, data, ref });
      if (answers) {
        this._asked.set(ref, { topic, data, refs });
        this._busy.add(topic);
      } else {
        this._settle(refs, TAKEN);
      }
    }
  }

  /** The server answered; false if nothing is known under the `ref`. */
  _answered(ref: string | undefined): boolean {
    const update = this._take(ref);
    if (!update) return false;
    this._settle(update.refs, TAKEN);
    this._flush();
    return true;
  }

  /** The server refused, for good; false if nothing is known under the `ref`. */
  _refused({ ref, code, message, remedy, topic, retry_after_ms }: ErrorFrame): boolean {
    const update = this._take(ref);
    if (!update) return false;
    this._own.forget(update.topic, update.data);
    const { refs, topic: about } = update;
    const error = { code, message, topic: topic ?? about, retryAfter: retry_after_ms };
    if (refs.length) this._settle(refs, { kind: 'rejected', remedy, ...error });
    else this._session._tell({ kind: 'problem', ...error });
    this._flush();
    return true;
  }

  /** The server refused for now: it is said again; false if nothing is known under the `ref`. */
  _postponed(ref: string | undefined): boolean {
    const update = this._take(ref);
    if (!update) return false;
    this._later.restore(update.topic, update.data);
    this._wait(update.topic, update.refs);
    this._gather();
    return true;
  }

  /** The connection is gone: what was not answered is said again. */
  _lost(): void {
    for (const { topic, refs } of this._asked.values()) this._wait(topic, refs);
    this._asked.clear();
    this._busy.clear();
  }

  /** The session has ended. */
  _settleAll(error: Rejected): void {
    this._lost();
    for (const refs of this._waiting.values()) this._settle(refs, error);
    this._waiting.clear();
  }

  /** Forget what was said on topics that no subscription takes any more. */
  _keep(): void {
    this._own.keep((topic) => this._session.joins._routes._find(topic).length > 0);
  }

  private _take(ref = ''): Update | undefined {
    const update = this._asked.get(ref);
    this._asked.delete(ref);
    if (update) this._busy.delete(update.topic);
    return update;
  }

  /** Have calls wait for what is going to be said on a topic. */
  private _wait(topic: Topic, refs: readonly number[]): void {
    const all = [...(this._waiting.get(topic) ?? []), ...refs];
    if (all.length)
      this._waiting.set(
        topic,
        all.sort((a, b) => a - b),
      );
  }

  /** What was said for all topics since took the words of some: their calls wait for that. */
  private _gather(): void {
    for (const [topic, refs] of [...this._waiting]) {
      if (this._later.has(topic)) continue;
      this._waiting.delete(topic);
      if (this._later.has(undefined)) this._wait(undefined, refs);
      else this._settle(refs, TAKEN);
    }
  }

  private _settle(refs: readonly number[], outcome: Outcome): void {
    for (const ref of refs) this._session._tell({ kind: 'settle', ref, outcome });
  }
}
