/** `Requester`: the requests of one client, and the calls that wait for replies. */

import { driverOf, type PubSub } from '../client.js';
import { ClosedError, InvalidOption, OperationTimeout, RequestTimeout } from '../errors.js';
import type { Subscription } from '../runtime/subscription.js';
import { onAbort } from '../runtime/waiting.js';
import { checkCall } from '../settings/checks.js';
import { checkName } from '../topic_names.js';
import type { Message, Outgoing } from '../values.js';
import { messageId } from '../wire/ids.js';
import { checkRequestId, readReply, replyTopic, requestOf } from './messages.js';

/** Maximum subscribed reply topics; above it, the client leaves the least recently used one. */
const TOPICS_MAX = 100;

/** Maximum remembered requests without a reply, and maximum late replies kept for a retry. */
const LATE_MAX = 100;

/** Milliseconds to wait for a subscription, including outages: a day. */
const PATIENCE = 86_400_000;

/** @internal The interface of a client for requests. */
export type Client = Pick<PubSub, 'subscribe' | 'publish' | 'on'>;

/** Options of `request`. */
export interface RequestOptions {
  /** Message type of the request; default `request`. */
  readonly type?: string | undefined;
  /** Milliseconds to wait for the reply; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /**
   * Id of the request, at most 125 characters; default `msg_` and a ULID. A retry with the same id
   * and reply topic returns a reply that arrived too late for the first call.
   */
  readonly id?: string | undefined;
  /**
   * Topic of the reply; default `<topic>.replies.<client>`. Everyone who may read that topic can see
   * the replies.
   */
  readonly replyTo?: string | undefined;
  /** Ends the wait; the request may be answered anyway. */
  readonly signal?: AbortSignal | undefined;
}

interface Settle {
  readonly resolve: (reply: Message) => void;
  readonly reject: (error: unknown) => void;
}

/** The subscription to one reply topic, and the requests that wait for a reply on it. */
interface Inbox {
  readonly leave: AbortController;
  readonly subscription: Promise<Subscription>;
  readonly waiting: Map<string, Settle>;
  /** Whether the server has granted the subscription; no request is sent before. */
  isGranted: boolean;
}

const requesters = new WeakMap<Client, Requester>();

/** @internal The one requester of a client. */
export function requesterOf(client: Client): Requester {
  let requester = requesters.get(client);
  if (!requester) {
    requester = new Requester(client);
    requesters.set(client, requester);
  }
  return requester;
}

/** Publishes requests of one client and passes each reply to the waiting call. */
class Requester {
  private readonly _nonce = messageId().slice(-16).toLowerCase();
  private readonly _inboxes = new Map<string, Inbox>();
  /**
   * By reply topic and id; a retry is published with the same `ttl`, because it is the same message.
   */
  private readonly _late = new Map<string, { readonly ttl: number; reply?: Message }>();

  constructor(private readonly _client: Client) {}

  async request(topic: string, data: unknown, options: RequestOptions): Promise<Message> {
    checkCall(options, ['type', 'id', 'replyTo']);
    const { type = 'request', id = messageId(), replyTo, signal } = options;
    checkRequestId(id);
    checkName(topic, 'topic');
    const where = checkName(replyTo ?? replyTopic(topic, this._nonce), 'topic');
    const driver = driverOf(this._client);
    const { timeout: limit, end: ends } = driver.timed(options);
    const key = `${where} ${id}`;
    const late = this._late.get(key);
    if (late?.reply) return readReply(late.reply, topic);
    const ttl = late?.ttl ?? Math.ceil(limit / 1000);
    const inbox = this._inbox(where);
    if (inbox.waiting.has(id)) {
      throw new InvalidOption(`The request ${id} still waits for its reply.`, {
        field: 'id',
        remedy: 'Use one `id` for one request at a time.',
      });
    }
    const timedOut = (unsent: boolean): RequestTimeout => {
      const what = unsent ? 'could not be sent' : 'has no reply';
      const message = `The request ${id} on topic ${topic} ${what} within ${limit} ms.`;
      return new RequestTimeout(message, { topic, id, outcomeUnknown: !unsent });
    };
    const { clock } = driver;
    let timer: ReturnType<typeof clock.callLater> | undefined;
    let ignore: (() => void) | undefined;
    try {
      const reply = await new Promise<Message>((resolve, fail) => {
        const reject = (error: unknown): void => {
          // At once: the reply may arrive before the call ends.
          this._remember(key, ttl);
          fail(error instanceof OperationTimeout ? timedOut(!error.outcomeUnknown) : error);
        };
        inbox.waiting.set(id, { resolve, reject });
        timer = clock.callLater(limit, () => reject(timedOut(!inbox.isGranted)));
        ignore = onAbort(signal, () => reject(signal?.reason));
        const message = { type, data, id, ttl, meta: { reply_to: where } } as Outgoing;
        inbox.subscription
          .then(() => {
            inbox.isGranted = true;
            // The error of a call that has ended states that nothing was sent.
            if (inbox.waiting.get(id)?.reject !== reject) return;
            const timeout = Math.max(1, ends - clock.now());
            return this._client.publish(topic, message, { timeout });
          })
          .catch(reject);
      });
      return readReply(reply, topic);
    } finally {
      timer?.cancel();
      ignore?.();
      inbox.waiting.delete(id);
    }
  }

  private _inbox(topic: string): Inbox {
    let inbox = this._inboxes.get(topic);
    if (!inbox) {
      const leave = new AbortController();
      inbox = {
        leave,
        // The call whose reply was missed gets `RequestTimeout`. An outage may outlast
        // `operationTimeout`; the timeout of each call ends its wait.
        subscription: this._client.subscribe(topic, {
          onGap: () => {},
          timeout: PATIENCE,
          signal: leave.signal,
        }),
        waiting: new Map(),
        isGranted: false,
      };
      void this._read(topic, inbox);
    }
    this._inboxes.delete(topic);
    this._inboxes.set(topic, inbox);
    if (this._inboxes.size > TOPICS_MAX) {
      for (const [name, { waiting, leave }] of this._inboxes) {
        if (waiting.size || name === topic) continue;
        this._inboxes.delete(name);
        leave.abort();
        break;
      }
    }
    return inbox;
  }

  private async _read(topic: string, inbox: Inbox): Promise<void> {
    let failure: unknown;
    try {
      for await (const message of await inbox.subscription) this._receive(inbox, message);
      failure = new ClosedError(undefined, { topic });
    } catch (error) {
      failure = error;
    }
    if (this._inboxes.get(topic) === inbox) this._inboxes.delete(topic);
    for (const { reject } of inbox.waiting.values()) reject(failure);
  }

  private _receive(inbox: Inbox, message: Message): void {
    const id = requestOf(message) ?? '';
    const waiting = inbox.waiting.get(id);
    const late = this._late.get(`${message.topic} ${id}`);
    if (late) late.reply = message;
    waiting?.resolve(message);
  }

  private _remember(key: string, ttl: number): void {
    if (!this._late.has(key)) this._late.set(key, { ttl });
    for (const oldest of this._late.keys()) {
      if (this._late.size <= LATE_MAX) break;
      this._late.delete(oldest);
    }
  }
}
