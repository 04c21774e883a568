/// <reference lib="esnext.disposable" preserve="true" />

/** `SignedTopic`: publishes signed messages, and yields verified ones. */

import { DEVELOPMENT } from '../build.js';
import type { PubSub } from '../client.js';
import { InvalidOption, UsageError } from '../errors.js';
import { showOnly } from '../inspection.js';
import { bytesOf } from '../payload_bytes.js';
import { checkNames, kind } from '../settings/checks.js';
import type { WebSocketConstructor } from '../settings/options.js';
import {
  digest,
  frameOf,
  fromHex,
  ID_BYTES,
  keccak256,
  ownerOf,
  sign,
  toHex,
  topicAddress,
  verify,
} from '../soc.js';
import type { Published } from '../values.js';
import { checkData } from '../wire/payloads.js';
import { type Carrier, type Client, SocketCarrier, TopicCarrier } from './carriers.js';
import type { SignedEvent, SignedMessage } from './messages.js';

/** Signs a digest of 32 bytes as Ethereum's `personal_sign` does; returns r, s and v, 65 bytes. */
export type Signer = (digest: Uint8Array) => Promise<Uint8Array>;

/** Options of `SignedTopic`. Pass exactly one of `url` and `client`. */
export interface SignedTopicOptions {
  /**
   * WebSocket of a server with `--signed`, or of a Bee node, such as `ws://127.0.0.1:8057`. The
   * topic then has a connection of its own.
   */
  readonly url?: string | undefined;
  /**
   * Client that carries the messages in the HIP-56 topic `signed.<64 hex>`, with its token, history
   * and resume.
   */
  // biome-ignore lint/suspicious/noExplicitAny: a client of any topics
  readonly client?: PubSub<any> | undefined;
  /**
   * Id of the topic: 32 bytes, 64 hex digits, or any other text, which is hashed. With `client` and
   * `topic`, you can omit it to read.
   */
  readonly id?: Uint8Array | string | undefined;
  /** Private key, 32 bytes, to publish. */
  readonly key?: Uint8Array | undefined;
  /** Signer to use instead of `key`; requires `owner`. */
  readonly signer?: Signer | undefined;
  /** Address of the owner, 20 bytes; derived from `key`. */
  readonly owner?: Uint8Array | undefined;
  /** Address of the topic, 32 bytes or 64 hex digits; derived from `id` and `owner`. */
  readonly topic?: Uint8Array | string | undefined;
  /** With `url`: the broker, such as `/ip4/10.0.0.1/tcp/1634`; default the server. */
  readonly peer?: string | undefined;
  /** With `url`: constructor of WebSockets, if the platform has none. */
  readonly WebSocket?: WebSocketConstructor | undefined;
}

/** Names of the options. */
const NAMES: readonly (keyof SignedTopicOptions)[] = [
  ...(['url', 'client', 'id', 'key', 'signer', 'owner', 'topic', 'peer', 'WebSocket'] as const),
];

/** Signs a payload under an id, and returns the frame. */
type Sign = (id: Uint8Array, data: Uint8Array) => Uint8Array | Promise<Uint8Array>;

/**
 * A topic whose messages are signed by its owner.
 *
 * Iteration opens the topic, and yields verified messages; `events` also yields forged messages and
 * gaps.
 */
export class SignedTopic implements AsyncIterable<SignedMessage>, AsyncDisposable {
  /** Address of the topic, 32 bytes. */
  readonly address: Uint8Array;
  /** Address of the owner; undefined if only the topic is known. */
  readonly owner: Uint8Array | undefined;
  /** Number of received messages that failed verification. */
  forged = 0;
  private readonly _id: Uint8Array | undefined;
  /** Signs a payload: a function, so that a log of this object does not show the key. */
  private readonly _sign: Sign | undefined;
  private readonly _carrier: Carrier;
  private _opening: Promise<void> | undefined;
  private _hasWarned = false;
  /** Resolves when the last requested signature is settled and the next one may follow. */
  private _turn: Promise<void> = Promise.resolve();

  /**
   * @throws InvalidOption An option is wrong, or two contradict each other; `field` names it.
   * @throws InvalidPayload The key is not one of secp256k1.
   */
  constructor(options: SignedTopicOptions) {
    if (DEVELOPMENT) checkNames('options', options, NAMES);
    const { url, client, key, signer, peer } = options;
    if ((url === undefined) === (client === undefined))
      throw wrong('url', 'Pass exactly one of `url` and `client`.');
    const writes = Boolean(key || signer);
    if (client !== undefined) checkClient(client, writes ? 'publish' : 'subscribe');
    if (key && signer) throw wrong('signer', 'Pass `key` or `signer`, not both.');
    if (signer && !options.owner)
      throw wrong('owner', 'A `signer` needs the `owner` whose key it has.');
    if (peer !== undefined && url === undefined) throw wrong('peer', '`peer` requires `url`.');
    let { owner } = options;
    if (key) {
      const derived = ownerOf(key);
      if (owner && !same(owner, derived))
        throw wrong('owner', '`owner` is not the address of `key`.');
      owner = derived;
    }
    const id = options.id === undefined ? undefined : idOf(options.id);
    let address = options.topic === undefined ? undefined : addressOf(options.topic);
    if (id && owner) {
      const derived = topicAddress(id, owner);
      if (address && !same(address, derived))
        throw wrong('topic', '`topic` does not belong to `id` and `owner`.');
      address = derived;
    }
    if (!address) throw wrong('topic', 'Pass `id` with `key` or `owner`, or `topic`.');
    if (!id && (writes || !client)) throw wrong('id', 'Pass `id`: it is signed with each message.');
    this.address = address;
    this.owner = owner;
    this._id = id;
    if (key) this._sign = (id, data) => sign(key, id, data);
    else if (signer) this._sign = (id, data) => this._ask(signer, id, data);
    if (client) {
      this._carrier = new TopicCarrier(client as unknown as Client, address, id);
    } else {
      const socket = [String(url), address, id as Uint8Array] as const;
      const publisher = writes ? owner : undefined;
      this._carrier = new SocketCarrier(...socket, publisher, peer, options.WebSocket);
    }
  }

  /** The HIP-56 topic: `signed.` and the address in hex. */
  get name(): string {
    return `signed.${toHex(this.address)}`;
  }

  /**
   * Start to receive; open the topic again if its WebSocket has ended. Iteration also starts it. A
   * publisher receives from its first iteration on.
   *
   * @throws ClosedError `close` was called meanwhile.
   * @throws PubSubError The server cannot be reached, or rejects the request.
   */
  connect(): Promise<void> {
    if (this._carrier.ended) this._opening = undefined;
    // The publisher's own unread messages would fill the queue of its subscription.
    const idle = this._sign && !(this._carrier instanceof SocketCarrier);
    return idle ? Promise.resolve() : this._open();
  }

  private _open(): Promise<void> {
    if (!this._opening) {
      const opening = this._carrier.open().catch((error: unknown) => {
        // After `close`, another one may be opening.
        if (this._opening === opening) this._opening = undefined;
        throw error;
      });
      this._opening = opening;
    }
    return this._opening;
  }

  /**
   * Sign and publish. Messages are sent in the order of the calls, even if `signer` answers in
   * another order.
   *
   * @param payload Bytes, a string, or another JSON value; at most 4,096 bytes.
   * @returns The acknowledgement with `client`; undefined on a WebSocket, whose protocol has none.
   * @throws UsageError There is neither a key nor a signer.
   * @throws InvalidPayload The payload is too long or is not plain JSON, or the signer's signature
   *   is not the owner's; `field` names the invalid value.
   */
  async publish(payload: unknown): Promise<Published | undefined> {
    const { _id: id, _sign: signs, owner } = this;
    if (!signs || !id || !owner)
      throw new UsageError('This signed topic is read only.', {
        remedy: 'Pass `key`, or `signer` with `owner`.',
      });
    const signed = signs(id, payloadOf(payload));
    // Without a signer, the client gets the message within this call, in the order of the calls.
    const frame = signed instanceof Uint8Array ? signed : await signed;
    if (this._carrier instanceof SocketCarrier) await this._open();
    return this._carrier.publish(frame, owner);
  }

  /**
   * Verified messages, forged ones and gaps, in order. `break` does not close the topic.
   *
   * @throws ClosedError `close` was called before the topic was open.
   * @throws ConnectionFailed The topic's own WebSocket has ended.
   */
  events(): AsyncGenerator<SignedEvent, void> {
    return this._events(true);
  }

  /**
   * Verified messages. The console warns of the first forged one; `forged` counts them. The client
   * logs the first gap that nothing handles, as for its subscriptions.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<SignedMessage, void> {
    for await (const event of this._events(false)) {
      if (event.kind === 'message') yield event;
      else if (event.kind === 'forged' && !this._hasWarned) {
        this._hasWarned = true;
        console.warn(
          `${this.name}: a message is not signed by the topic's owner and is left out: ` +
            `${event.error.message} Read events() to handle it.`,
        );
      }
    }
  }

  private async *_events(wantsGaps: boolean): AsyncGenerator<SignedEvent, void> {
    await this._open();
    for await (const event of this._carrier.events(wantsGaps)) {
      if (event.kind === 'forged') this.forged++;
      yield event;
    }
  }

  /** Stop receiving, and end a `connect` that still waits. */
  async close(): Promise<void> {
    this._opening = undefined;
    await this._carrier.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Signatures requested at the same time are used in the order of the calls. */
  private async _ask(signer: Signer, id: Uint8Array, data: Uint8Array): Promise<Uint8Array> {
    const before = this._turn;
    let next = (): void => {};
    this._turn = new Promise((resolve) => {
      next = resolve;
    });
    try {
      const frame = frameOf(await signer(digest(id, data)), data);
      verify(frame, id, this.address);
      await before;
      return frame;
    } finally {
      void before.then(next);
    }
  }
}
if (DEVELOPMENT) showOnly(SignedTopic, 'name', 'forged');

/** Not by class: a program may pass an object with the same methods. */
function checkClient(client: unknown, method: keyof Client): void {
  if (typeof (Object(client) as Partial<Client>)[method] === 'function') return;
  throw new InvalidOption(`\`client\` is ${kind(client)}, not a PubSub.`, {
    field: 'client',
    remedy: 'Pass a client, such as the result of `new PubSub(url)`.',
  });
}

function payloadOf(payload: unknown): Uint8Array {
  if (payload instanceof Uint8Array) return payload;
  checkData(payload, Number.POSITIVE_INFINITY, undefined, 'payload');
  return bytesOf(payload);
}

function idOf(id: Uint8Array | string): Uint8Array {
  if (typeof id !== 'string') return sized(id, 'id');
  if (/\p{Surrogate}/u.test(id)) throw wrong('id', '`id` has half of a surrogate pair.');
  return /^[0-9a-f]{64}$/i.test(id)
    ? fromHex(id, ID_BYTES, 'id')
    : keccak256(new TextEncoder().encode(id));
}

function addressOf(topic: Uint8Array | string): Uint8Array {
  if (typeof topic !== 'string') return sized(topic, 'topic');
  const digits = topic.replace(/^signed\./, '');
  if (!/^[0-9a-f]{64}$/i.test(digits)) throw wrong('topic', '`topic` is not 64 hex digits.');
  return fromHex(digits, ID_BYTES, 'topic');
}

function sized(bytes: Uint8Array, field: string): Uint8Array {
  if (!ArrayBuffer.isView(bytes))
    throw wrong(field, `\`${field}\` is of type ${typeof bytes}, not bytes or a string.`);
  if (bytes.length === ID_BYTES) return bytes;
  throw wrong(field, `\`${field}\` has ${bytes.length} bytes, not ${ID_BYTES}.`);
}

function same(one: Uint8Array, other: Uint8Array): boolean {
  return toHex(one) === toHex(other);
}

function wrong(field: string, message: string): Error {
  return new InvalidOption(message, {
    field,
    remedy: 'See `SignedTopicOptions` for valid combinations.',
  });
}
