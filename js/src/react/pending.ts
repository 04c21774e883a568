/** Pending messages: sent, and shown immediately, until the server delivers them. */

import type { PubSub } from '../client.js';
import { InvalidPayload, type PubSubError, UsageError } from '../errors.js';
import type { PublishOptions } from '../runtime/publishing.js';
import type { AnyPayload, Gap, JsonObject, Message, Outgoing } from '../values.js';
import { messageId } from '../wire/ids.js';

/** Maximum pending messages of one store; above it, `send` throws. */
const PENDING_MAX = 1_000;

/** In transit to the server, accepted, or rejected. */
export type PendingStatus = 'sending' | 'sent' | 'failed';

/** A message that `send` published and that the server has not delivered yet. */
export interface PendingMessage<Data = AnyPayload> {
  /** Id of the message; the delivered message has the same one. */
  readonly id: string;
  /** The topic. */
  readonly topic: string;
  /** Type of the message. */
  readonly type: string;
  /** The payload. */
  readonly data: Data;
  /** `meta` of the message. */
  readonly meta: JsonObject | undefined;
  /** Time of `send` by the clock of this page, Unix milliseconds. */
  readonly timestamp: number;
  /** `sending`; `sent`: the server has accepted it; `failed`. */
  readonly status: PendingStatus;
  /** Why the publish failed, with the status `failed`. */
  readonly error: PubSubError | undefined;
  /** Publish a failed message again with the same id, so that the server publishes it only once. */
  readonly retry: () => void;
  /**
   * Remove it from the list, and cancel the publish if it has not been sent yet. A sent message is
   * still delivered.
   */
  readonly discard: () => void;
}

/** Options of `send`. */
export type SendOptions = Omit<PublishOptions, 'id' | 'signal'>;

interface Entry {
  shown: PendingMessage;
  /** Its position, once the server has accepted it. */
  seq?: number;
  leave?: AbortController;
}

/** @internal The pending messages of one topic. */
export class PendingMessages {
  private readonly _entries = new Map<string, Entry>();
  /** Newest received position. */
  private _reached = -1;

  /**
   * @param _client Publishes the messages.
   * @param _topic The topic of the messages.
   * @param _changed Called when `list` changes.
   */
  constructor(
    private readonly _client: Pick<PubSub, 'publish'>,
    private readonly _topic: string,
    private readonly _changed: () => void,
  ) {}

  /** The pending messages, in the order in which they were sent. */
  list(): readonly PendingMessage[] {
    return [...this._entries.values()].map(({ shown }) => shown);
  }

  /**
   * Show a message as pending, and publish it.
   *
   * @returns Its id.
   * @throws InvalidPayload The message has no data, which components show.
   * @throws UsageError Too many messages are pending, or one with this id is.
   */
  send(message: Outgoing, options: SendOptions = {}): string {
    if (message?.data === undefined) {
      throw new InvalidPayload('The message has no `data`.', {
        remedy: 'Send { type, data }.',
      });
    }
    const { id = messageId(), type = 'message', data, meta } = message;
    if (this._entries.has(id)) {
      throw new UsageError(`The message ${id} is pending already.`, {
        remedy: 'Call its `retry()`, or send another message without an id.',
      });
    }
    if (this._entries.size >= PENDING_MAX) {
      throw new UsageError(`${PENDING_MAX} messages are pending.`, {
        remedy: 'Call `retry()` or `discard()` of those that failed.',
      });
    }
    const entry: Entry = {
      shown: {
        id,
        topic: this._topic,
        type,
        data: data as AnyPayload,
        meta,
        timestamp: Date.now(),
        status: 'sending',
        error: undefined,
        retry: () => {
          if (entry.shown.status !== 'failed' || !this._entries.has(id)) return;
          this._show(entry, 'sending');
          void this._send(entry, { ...message, id }, options);
        },
        discard: () => {
          this._remove(id);
          entry.leave?.abort();
        },
      },
    };
    this._entries.set(id, entry);
    this._changed();
    void this._send(entry, { ...message, id }, options);
    return id;
  }

  /** A message arrived: it and all earlier ones are no longer pending. */
  message({ id, topic, seq }: Message): void {
    if (topic !== this._topic) return;
    this._remove(id);
    this._reach(seq);
  }

  /** Messages were missed, possibly pending ones. */
  gap({ topic, to }: Gap): void {
    if (topic === this._topic) this._reach(to);
  }

  private _reach(seq: number | undefined): void {
    if (seq === undefined) return;
    this._reached = seq;
    for (const [id, entry] of this._entries) {
      if (entry.seq !== undefined && entry.seq <= seq) this._remove(id);
    }
  }

  private async _send(entry: Entry, message: Outgoing, options: SendOptions): Promise<void> {
    entry.leave = new AbortController();
    const { signal } = entry.leave;
    try {
      const { seq } = await this._client.publish(this._topic, message, { ...options, signal });
      // Without a position, later messages do not show whether it has been delivered.
      if (seq === undefined || seq <= this._reached) {
        this._remove(entry.shown.id);
        return;
      }
      entry.seq = seq;
      this._show(entry, 'sent');
    } catch (error) {
      this._show(entry, 'failed', error as PubSubError);
    }
  }

  private _show(entry: Entry, status: PendingStatus, error?: PubSubError): void {
    if (this._entries.get(entry.shown.id) !== entry) return;
    entry.shown = { ...entry.shown, status, error };
    this._changed();
  }

  private _remove(id: string): void {
    if (this._entries.delete(id)) this._changed();
  }
}
