/** Publishing: limits, rules, the log, and delivery to the readers of the topic. */

import { compact } from '../compact.js';
import type { ErrorFrame, JsonObject, PublishedFrame, PublishResult } from '../generated/wire.js';
import type { Published } from '../values.js';
import { isObject } from '../wire/guard.js';
import type { Attendance } from './attendance.js';
import type { Connection } from './connection.js';
import type { Core } from './core.js';
import type { Entry } from './log.js';
import { Problem } from './problem.js';
import type { Draft } from './requests.js';
import type { Identity } from './tokens.js';

/** The outcome of one message. */
export type Result = Published | Problem;

/** Performs publishes. */
export class Publishing {
  /** Accepted messages, which are sent to readers after the publisher has its answer. */
  private readonly _taken: Entry[] = [];

  constructor(
    private readonly _core: Core,
    private readonly _attendance: Attendance,
  ) {}

  /** Publish in order for a caller without a connection; returns one result per message. */
  publish(identity: Identity, items: readonly (Draft | Problem)[]): Result[] {
    const results = this._all(identity, items);
    this._send();
    return results;
  }

  /** Publish the messages of a frame, and answer it. */
  take(
    connection: Connection,
    identity: Identity,
    items: readonly (Draft | Problem)[],
    batch: boolean,
    ref: string | undefined,
  ): void {
    const { maxBatch } = this._core.settings;
    if (items.length > maxBatch) {
      const detail = `a batch has at most ${maxBatch} messages`;
      throw new Problem('invalid_frame', detail, { field: 'messages' });
    }
    const { sink } = connection;
    const results = this._all(identity, items, connection);
    const isOne = batch && ref !== undefined;
    if (isOne) sink.write({ type: 'published', results: results.map(resultOf), ref });
    for (const result of isOne ? [] : results) {
      if (result instanceof Problem) {
        sink.write(compact<ErrorFrame>({ type: 'error', ...result.info, ref }));
      } else if (ref !== undefined) {
        sink.write(compact<PublishedFrame>({ type: 'published', ...result, ref }));
      }
    }
    this._send();
  }

  /** One result per item. An item that is already an error stays an error. */
  private _all(
    identity: Identity,
    items: readonly (Draft | Problem)[],
    connection?: Connection,
  ): Result[] {
    const count = items.filter((item) => !(item instanceof Problem)).length;
    let [granted, wait] = this._core.rates.take(identity, connection?.clientId, count);
    return items.map((item) => {
      try {
        if (item instanceof Problem) throw item;
        granted -= 1;
        if (granted < 0) throw this._core.tooMany(identity, item.topic, wait);
        return this._one(identity, item, connection);
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        this._core.count(error);
        return error;
      }
    });
  }

  private _one(identity: Identity, draft: Draft, connection: Connection | undefined): Published {
    const { stats, store } = this._core;
    const { topic } = draft;
    if (draft.type.startsWith('presence.')) return this._presence(identity, draft, connection);
    if (!this._core.mayPublish(identity, topic)) {
      throw new Problem('forbidden', 'the access rules do not allow this publish', { topic });
    }
    const sender = { type: identity.kind, id: identity.userId };
    const id = draft.id ?? this._core.messageId();
    const entry = store.append(draft, id, sender, this._core.wall());
    if ('duplicate' in entry) {
      stats.duplicates += 1;
      return entry;
    }
    stats.published += 1;
    this._taken.push(entry);
    const { timestamp, seq } = entry.message;
    return { id, timestamp, seq, duplicate: false };
  }

  private _send(): void {
    for (const { message } of this._taken.splice(0)) {
      const { topic, timestamp, seq } = message;
      const id = seq === undefined ? undefined : `${timestamp}-${topic}@${seq}`;
      for (const { sink } of this._core.readers(topic)) {
        this._core.stats.delivered += 1;
        sink.write({ type: 'message', message }, id);
      }
    }
  }

  private _presence(
    identity: Identity,
    { type, topic, data }: Draft,
    connection: Connection | undefined,
  ): Published {
    if (type !== 'presence.update') {
      const detail = 'presence is announced by the server; send `presence.update`';
      throw new Problem('forbidden', detail, { topic });
    }
    if (!this._core.mayRead(identity, topic)) {
      throw new Problem('forbidden', 'the access rules do not allow this topic', { topic });
    }
    if (!connection) {
      const detail = 'presence belongs to a connection; send `presence.update` on a socket';
      throw new Problem('unsupported', detail, {
        topic,
        remedy: 'Update presence over a WebSocket.',
      });
    }
    if (!isObject(data)) {
      const details = { topic, field: 'data' };
      throw new Problem('invalid_payload', '`data` of presence must be an object', details);
    }
    return this._attendance.update(connection, topic, data as JsonObject);
  }
}

/** The JSON of a result, in frames and responses. */
export function resultOf(result: Result): PublishResult {
  if (result instanceof Problem) return { error: result.info };
  return compact<PublishResult>({ ...result });
}
