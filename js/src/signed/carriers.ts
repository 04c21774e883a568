/** Carriers of signed messages: a HIP-56 topic, or a WebSocket for the topic alone. */

import type { PubSub } from '../client.js';
import {
  ClosedError,
  ConnectionFailed,
  InvalidOption,
  InvalidPayload,
  OperationTimeout,
} from '../errors.js';
import { jsonOf } from '../payload_bytes.js';
import type { Subscription } from '../runtime/subscription.js';
import type { WebSocketConstructor, WebSocketLike } from '../settings/options.js';
import { fromData, toData, toHex, verify } from '../soc.js';
import type { Message, Published, SubscriptionEvent } from '../values.js';
import type { SignedEvent } from './messages.js';

/**
 * Maximum frames that wait for the program; above it the socket closes, so that no loss is silent.
 */
const WAITING_MAX = 1_000;
/** Milliseconds for a socket to open. */
const OPEN_TIMEOUT = 10_000;
/** Unsent bytes of a socket above which `publish` waits. */
const UNSENT_MAX = 1_048_576;
/** Milliseconds until `publish` reads the number of unsent bytes again: sockets have no event for it. */
const UNSENT_POLL = 20;

/** The `error` event of a WebSocket: in Node, with the reason. */
interface Failure {
  readonly message?: string | undefined;
  readonly error?: unknown;
}

/** The interface of a client for a carrier. */
export type Client = Pick<PubSub, 'subscribe' | 'publish'>;

/** Publishes frames, and yields received ones. */
export interface Carrier {
  /** Whether the connection has ended by itself, so that `open` opens another one. */
  readonly ended: boolean;
  open(): Promise<void>;
  publish(frame: Uint8Array, owner: Uint8Array): Promise<Published | undefined>;
  /**
   * Verified messages, forged ones and, if wanted, gaps, in order. The client reports other gaps as
   * it does those of a subscription.
   */
  events(wantsGaps: boolean): AsyncGenerator<SignedEvent, void>;
  close(): Promise<void>;
}

/** Uses the HIP-56 topic `signed.<64 hex>` of a client. */
export class TopicCarrier implements Carrier {
  /** The client reconnects by itself. */
  readonly ended = false;
  private readonly _name: string;
  private _subscription: Subscription | undefined;
  private _closing = new AbortController();

  constructor(
    private readonly _client: Client,
    private readonly _address: Uint8Array,
    private readonly _id: Uint8Array | undefined,
  ) {
    this._name = `signed.${toHex(_address)}`;
  }

  async open(): Promise<void> {
    this._closing = new AbortController();
    const { signal } = this._closing;
    const subscription = await this._client.subscribe(this._name, { signal });
    signal.throwIfAborted();
    this._subscription = subscription;
  }

  async publish(frame: Uint8Array, owner: Uint8Array): Promise<Published | undefined> {
    if (!this._id) throw closed();
    const data = toData(frame, this._id, owner);
    return this._client.publish(this._name, { type: 'message', data: { ...data } });
  }

  async *events(wantsGaps: boolean): AsyncGenerator<SignedEvent, void> {
    const { _subscription: subscription } = this;
    if (!subscription) throw closed();
    const events: AsyncIterator<SubscriptionEvent | Message> = wantsGaps
      ? subscription.events()
      : subscription[Symbol.asyncIterator]();
    // Without `for await`, whose `break` would end the subscription for later iterations too.
    for (let next = await events.next(); !next.done; next = await events.next()) {
      const event = next.value;
      if ('id' in event) yield this._verify(event);
      else if (event.kind === 'gap') yield event;
      else if (event.kind === 'message') yield this._verify(event.message);
    }
  }

  async close(): Promise<void> {
    this._subscription = undefined;
    this._closing.abort(closed());
  }

  private _verify(message: Message): SignedEvent {
    const forged = (error: InvalidPayload): SignedEvent => {
      return { kind: 'forged', error, data: message.data, message };
    };
    try {
      const claimed = fromData(message.data);
      const id = this._id ?? claimed.id;
      const { owner, payload } = verify(claimed.frame, id, this._address);
      if (toHex(owner) !== toHex(claimed.owner) || toHex(id) !== toHex(claimed.id))
        return forged(
          new InvalidPayload('The message names another owner or id than its signature proves.', {
            field: 'owner',
            remedy: 'Build the data with `toData`.',
          }),
        );
      return {
        kind: 'message',
        ...{ payload, data: jsonOf(payload), owner, frame: claimed.frame, message },
      };
    } catch (error) {
      if (error instanceof InvalidPayload) return forged(error);
      throw error;
    }
  }
}

/** Uses a WebSocket of a server with `--signed`, or of a Bee node. */
export class SocketCarrier implements Carrier {
  private readonly _url: string;
  private _socket: WebSocketLike | undefined;
  private _waiting: SignedEvent[] = [];
  private _ended: Error | undefined;
  /** The iterations that wait. */
  private _queue: (() => void)[] = [];
  /** A publisher that does not read does not collect its own messages. */
  private _wanted: boolean;

  /**
   * @param url Of `/pubsub/`; `ws://HOST:PORT` is enough.
   * @param owner The owner, to publish; undefined only reads.
   * @param peer The broker, such as `/ip4/10.0.0.1/tcp/1634`.
   * @throws InvalidOption The URL is not a WebSocket URL.
   */
  constructor(
    url: string,
    private readonly _address: Uint8Array,
    private readonly _id: Uint8Array,
    owner: Uint8Array | undefined,
    peer: string | undefined,
    private readonly _WebSocket: WebSocketConstructor | undefined,
  ) {
    this._wanted = !owner;
    const target = URL.canParse(url) ? new URL(url) : undefined;
    if (!target || !/^wss?:$/.test(target.protocol))
      throw new InvalidOption('`url` is not the URL of a WebSocket.', {
        field: 'url',
        remedy: 'Write ws://HOST:PORT or wss://HOST:PORT, with or without /pubsub/.',
      });
    let path = target.pathname.replace(/\/+$/, '');
    if (!path.endsWith('/pubsub')) path = `${path.replace(/\/ws$/, '')}/pubsub`;
    target.pathname = `${path}/${toHex(_address)}`;
    const named: [string, string | undefined][] = [
      ['peer', peer],
      ['gsoc-eth-address', owner && toHex(owner)],
      ['gsoc-topic', owner && toHex(_id)],
    ];
    // Each version of Bee supports one of these spellings, and ignores the other.
    for (const spelling of ['', 'swarm-pubsub-'])
      for (const [name, value] of named)
        if (value !== undefined) target.searchParams.append(spelling + name, value);
    this._url = target.href;
  }

  async open(): Promise<void> {
    const Socket = this._WebSocket ?? (globalThis.WebSocket as WebSocketConstructor | undefined);
    if (!Socket)
      throw new InvalidOption('This platform has no WebSocket.', {
        field: 'WebSocket',
        remedy: 'Pass `WebSocket`, for example that of the package ws.',
      });
    const socket = new Socket(this._url);
    socket.binaryType = 'arraybuffer';
    this._socket = socket;
    this._waiting = [];
    this._ended = undefined;
    socket.addEventListener('message', ({ data }: { data: unknown }) => {
      if (this._socket === socket) this._take(data);
    });
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new OperationTimeout('The signed topic did not open in time.'));
        socket.close();
      }, OPEN_TIMEOUT);
      const fail = (message?: string, cause?: unknown): void => {
        clearTimeout(timer);
        reject(this._socket === socket ? unopened(message, cause) : closed());
      };
      socket.addEventListener('open', () => {
        clearTimeout(timer);
        resolve();
      });
      // `ws` gives the reason; browsers hide it. Node 22 fires no `close` event for a socket that
      // has not opened.
      socket.addEventListener('error', ({ message, error }: Failure) => fail(message, error));
      socket.addEventListener('close', ({ code, reason }: { code: number; reason: string }) => {
        // The socket of an earlier connection may close late.
        if (this._socket === socket) this._end(lost(`${code} ${reason}`.trim()));
        fail();
      });
    });
  }

  get ended(): boolean {
    return this._ended !== undefined;
  }

  async publish(frame: Uint8Array): Promise<undefined> {
    const socket = this._socket;
    if (!socket) throw closed();
    if (this._ended) throw this._ended;
    socket.send(frame as unknown as string);
    while ((socket.bufferedAmount ?? 0) > UNSENT_MAX) {
      await new Promise((resolve) => setTimeout(resolve, UNSENT_POLL));
      if (this._socket !== socket) throw closed();
      if (this._ended) throw this._ended;
    }
  }

  async *events(): AsyncGenerator<SignedEvent, void> {
    if (!this._socket) throw closed();
    this._wanted = true;
    while (true) {
      const event = this._waiting.shift();
      if (event) yield event;
      else if (!this._socket) return;
      else if (this._ended) throw this._ended;
      else await new Promise<void>((resolve) => this._queue.push(resolve));
    }
  }

  async close(): Promise<void> {
    const socket = this._socket;
    this._socket = undefined;
    this._waiting = [];
    socket?.close(1000);
    this._wake();
  }

  private _take(data: unknown): void {
    if (this._ended || !this._wanted) return;
    const frame =
      typeof data === 'string'
        ? new TextEncoder().encode(data)
        : new Uint8Array(data as ArrayBuffer);
    if (this._waiting.length >= WAITING_MAX) {
      this._end(lost(`${WAITING_MAX.toLocaleString('en-US')} messages wait for the program`));
      this._socket?.close(4000);
      return;
    }
    this._waiting.push(this._verify(frame));
    this._wake();
  }

  private _end(error: Error): void {
    this._ended ??= error;
    this._wake();
  }

  private _wake(): void {
    for (const wake of this._queue.splice(0)) wake();
  }

  private _verify(frame: Uint8Array): SignedEvent {
    try {
      const { owner, payload } = verify(frame, this._id, this._address);
      const data = jsonOf(payload);
      return { kind: 'message', payload, data, owner, frame, message: undefined };
    } catch (error) {
      if (!(error instanceof InvalidPayload)) throw error;
      return { kind: 'forged', error, data: frame, message: undefined };
    }
  }
}

function closed(): Error {
  return new ClosedError('The signed topic is not open.', { remedy: 'Call `connect` first.' });
}

function unopened(message: string | undefined, cause: unknown): Error {
  const reason = message ? `: ${message.replace(/\.$/, '')}` : '';
  return new ConnectionFailed(`The signed topic cannot be opened${reason}.`, {
    remedy:
      "Check that the server and its broker run. Then check owner, id, topic, the server's rules and `signed_peers`.",
    cause,
  });
}

function lost(why: string): Error {
  return new ConnectionFailed(`The WebSocket of the signed topic has ended: ${why}.`, {
    remedy:
      'Open it again; messages that were sent meanwhile are lost, because the protocol has no history.',
  });
}
