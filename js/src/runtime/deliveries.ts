/** Delivers messages, gaps, presence and answers to the subscriptions of one client. */

import type { PubSubError } from '../errors.js';
import type { Denial, Envelope, Publication } from '../generated/wire.js';
import type { DeliveryPorts, Subscribe } from '../session/ports.js';
import type { Gap, PresenceChange } from '../values.js';
import type { Client } from './environment.js';
import type { Entry, Inbox } from './inbox.js';

/**
 * Maximum remembered ids of own messages with `echo: false`, in addition to those without an
 * outcome: they may be in transit.
 */
const OWN_IDS = 10_000;

/** What identifies a message of this client. */
type Own = Pick<Publication, 'topic' | 'id'>;

/** Others may use the same id on another topic, and other senders on the same one. */
const keyOf = ({ id, topic }: Own): string => `${id} ${topic}`;

/** The subscriptions of one client. */
export class Deliveries implements DeliveryPorts {
  /** By subscription. */
  readonly inboxes: Map<number, Inbox> = new Map();
  private readonly _own = new Set<string>();
  private _reported?: Error;

  constructor(private readonly _client: Client) {}

  /**
   * Begin a subscription.
   *
   * @throws ClosedError The client has ended, while a part of it was loading; if it failed, its error.
   */
  add(request: Subscribe, inbox: Inbox): void {
    if (this._client.over.aborted) this._client.checkOpen();
    this.inboxes.set(request.sub, inbox);
    this._client.perform(({ operations }) => operations.subscribe(request));
  }

  /** End a subscription. Does nothing when it has ended. */
  remove(sub: number): void {
    if (!this.inboxes.delete(sub)) return;
    this._client.perform(({ operations }) => operations.unsubscribe(sub));
  }

  /** Skip messages of this client for its own subscriptions, if `echo` is off. */
  rememberOwn(messages: readonly Own[]): void {
    if (this._client.options.echo) return;
    for (const one of messages) this._own.add(keyOf(one));
    const most = OWN_IDS + this._client.session.operations.publishes.size;
    for (const id of this._own) {
      if (this._own.size <= most) break;
      this._own.delete(id);
    }
  }

  /** The client has ended. */
  finish(error: PubSubError | undefined): void {
    for (const inbox of this.inboxes.values()) inbox.finish(error);
    this.inboxes.clear();
  }

  /**
   * Report the error of a subscription, once: the subscriptions of a client that failed share one.
   */
  reportEnd({ error }: Inbox): void {
    if (!error || error === this._reported) return;
    this._reported = error;
    this._client.listeners.report(error);
  }

  // ---------------------------------------------------------------- ports of the session

  deliver(sub: number, message: Envelope, many: boolean): void {
    if (this._own.size && this._own.has(keyOf(message))) {
      const { resends, user_id } = this._client.peer ?? {};
      const { sender } = message;
      // Only a server with `idempotency` keeps ids apart by sender.
      if (!(resends && user_id && sender && sender.id !== user_id)) return;
    }
    this._put(sub, message, many);
  }

  gap(sub: number, gap: Gap, many: boolean): void {
    this._put(sub, { kind: 'gap', gap }, many);
  }

  presenceChanged(sub: number, presence: PresenceChange): void {
    const inbox = this.inboxes.get(sub)?.presence;
    this._put(sub, { kind: 'presence', presence }, false, inbox);
  }

  joined(sub: number, topics: readonly string[], denied: readonly Denial[]): void {
    for (const one of denied) this._client.tokens._hide(one);
    this.inboxes.get(sub)?.join(topics, denied);
  }

  /** Add an entry; let the program run if it must read first, and remove a failed subscription. */
  private _put(sub: number, entry: Entry, many: boolean, inbox = this.inboxes.get(sub)): void {
    if (!inbox?.put(entry, many)) return;
    this._client.crowded = true;
    // Not within the step of the session.
    if (inbox.finished) queueMicrotask(() => this.remove(sub));
  }
}
