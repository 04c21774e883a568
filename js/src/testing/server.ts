/**
 * `MemoryServer`: the service in this process, without a socket.
 *
 * Rules, history, positions, presence, limits and renewal of tokens behave as on the reference
 * server; tests run the same scenarios against both.
 */

import { DEVELOPMENT } from '../build.js';
import { PubSub } from '../client.js';
import type { Clock } from '../clock.js';
import { fromCode, UsageError } from '../errors.js';
import type { JsonObject } from '../generated/wire.js';
import { parse } from '../http/problems.js';
import { showOnly } from '../inspection.js';
import { BACKGROUND } from '../runtime/driver.js';
import { platform } from '../runtime/environment.js';
import { PARTS } from '../runtime/parts.js';
import type { TransportName } from '../session/ports.js';
import { checkNumber } from '../settings/checks.js';
import type {
  ClientOptions,
  Optional,
  PubSubOptions,
  WebSocketConstructor,
} from '../settings/options.js';
import type { Receiver, Transport } from '../transports/transport.js';
import { WebSocketTransport } from '../transports/websocket.js';
import type { AnyTopics, Outgoing, Published } from '../values.js';
import { VirtualClock } from './clock.js';
import { Core, type Stats } from './core.js';
import { answer } from './http.js';
import { Hub } from './hub.js';
import { type End, type Host, Link } from './link.js';
import { Problem } from './problem.js';
import { readPublication } from './requests.js';
import { type Rules, readSettings, type ServerSettings } from './settings.js';
import { MemorySocket, type Refusal } from './socket.js';
import { identityOf, type TokenClaims } from './tokens.js';

/** Maximum frames and connection attempts that are kept for assertions. */
const KEPT = 10_000;

/** The `url` option of clients; nothing is sent to it. */
const URL = 'ws://memory.localhost/ws';

/** Options of `new MemoryServer`: a clock, rules, a seed, and settings by name. */
export interface MemoryServerOptions<C extends Clock = VirtualClock>
  extends Optional<ServerSettings> {
  /**
   * The clock of the server and its clients. Default: a `VirtualClock`, which stops until the test
   * moves it. `new SystemClock()` makes both run in real time.
   */
  readonly clock?: C | undefined;
  /** Access rules; default: every client may do everything. */
  readonly rules?: Rules | undefined;
  /** Seed of the ids and of the jitter of the clients' retries; an integer, default 0. */
  readonly seed?: number | undefined;
}

/** A fault that lasts until `end()`, or until the end of the block with `using`. */
export interface Fault extends Disposable {
  /** End the fault. Has no effect if it has ended. */
  end(): void;
}

/**
 * A server for tests.
 *
 *     await using server = await new MemoryServer().start();
 *     const ps = server.client();
 *     const sub = await ps.subscribe('chat.1');
 *     await server.publish('chat.1', { type: 'token', data: { content: 'Hi' } });
 *     const { value: message } = await sub[Symbol.asyncIterator]().next();
 *     server.cut(); // the connection breaks
 *     await server.clock.advance(30_000); // the client reconnects without a real wait
 */
export class MemoryServer<C extends Clock = VirtualClock> {
  /** The clock of the server and its clients. */
  readonly clock: C;
  /** Returns numbers from 0 inclusive to 1 exclusive, determined by the seed. */
  readonly random: () => number;
  /** Frames that clients sent, newest last, with tokens removed; at most 10,000. */
  readonly received: JsonObject[] = [];
  /** Transports of the connection attempts of clients, newest last; at most 10,000. */
  readonly attempts: ('websocket' | 'sse')[] = [];
  /** The `url` for a client that the program creates itself; `options` has the other options. */
  readonly url: string = URL;
  private readonly _hub: Hub;
  private readonly _links = new Set<Link>();
  private readonly _clients: Pick<PubSub, 'close'>[] = [];
  private readonly _losing = new Map<string, number>();
  private _refusal: (Refusal & { readonly transport: TransportName | undefined }) | undefined;
  private _isFrozen = false;
  private _isRunning = false;

  /** @throws InvalidOption A setting is unknown, has a wrong type, or is out of range. */
  constructor(options: MemoryServerOptions<C> = {}) {
    const { clock = new VirtualClock(), rules = {}, seed = 0, ...settings } = options;
    this.clock = clock as C;
    checkNumber('seed', seed, [0, 2 ** 32 - 1, 'a number']);
    this.random = randomOf(seed);
    this._hub = new Hub(new Core(clock, readSettings(settings), rules, this.random));
  }

  // ---------------------------------------------------------------- start and stop

  /**
   * Start the server. This loads the modules that clients would load later, so that virtual time
   * never waits for a file.
   */
  async start(): Promise<this> {
    await Promise.all([
      ...Object.values(PARTS).map((load) => load()),
      BACKGROUND.load(),
      import('../runtime/http_operations.js'),
      import('../transports/sse.js'),
      import('../wire/readings.js'),
      import('../streams/reading.js'),
      import('../streams/writer.js'),
    ]);
    this._isRunning = true;
    return this;
  }

  /** Close the clients that `client()` created, and stop the server. Idempotent. */
  async stop(): Promise<void> {
    this._isFrozen = false;
    await Promise.all(this._clients.splice(0).map((client) => client.close({ timeout: 0 })));
    this._isRunning = false;
    this._hub.drain();
  }

  /** The same as `stop()`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  // ---------------------------------------------------------------- clients and messages

  /**
   * Create a client of this server. It uses the server's clock and is closed with the server.
   *
   * @param options Options of `new PubSub`; without a token, the client is a service.
   * @throws UsageError The server is not running.
   */
  client<Topics extends object = AnyTopics>(options: PubSubOptions = {}): PubSub<Topics> {
    this._refuseStopped();
    const { clock, random } = this;
    const own = options.getToken || options.token !== undefined ? {} : this._ownToken();
    const client = new PubSub<Topics>(
      { ...this._ways(), ...own, ...options },
      {
        ...platform,
        clock,
        random,
        dial: (name, all) => this._dial(name, all),
      },
    );
    this._clients.push(client);
    return client;
  }

  /**
   * Options for a program that creates its own client, without a token: add `token` or `getToken`,
   * as in `new PubSub({ ...server.options, token: server.token('alice') })`. Such a client uses real
   * time, so give the server `clock: new SystemClock()`.
   */
  get options(): PubSubOptions {
    return this._ways();
  }

  /**
   * Create a token for this server.
   *
   * @param user The id of the user.
   */
  token(user = 'alice', claims: TokenClaims = {}): string {
    this._refuseStopped();
    return this._hub.core.tokens.make(user, claims);
  }

  /**
   * Publish as a service, without a client.
   *
   * @param options `after`: milliseconds by `clock` to wait before the publish.
   * @throws PubSubError The errors of `PubSub.publish`.
   */
  async publish(
    topic: string,
    message: Outgoing,
    options: { readonly after?: number | undefined } = {},
  ): Promise<Published> {
    this._refuseStopped();
    const { after = 0 } = options;
    if (after) await new Promise<void>((resolve) => this.clock.callLater(after, resolve));
    try {
      const given = readPublication(message, this._hub.core.settings.maxPayload, topic);
      // Copy it, because the caller may change it afterwards.
      const draft: typeof given = JSON.parse(JSON.stringify(given));
      const [result] = this._hub.publishing.publish(identityOf('server', 'service'), [draft]);
      if (result && !(result instanceof Problem)) return result;
      throw result;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const { code, details } = error;
      throw fromCode(code, error.message, details);
    }
  }

  /** Number of open connections. */
  get connections(): number {
    return this._links.size;
  }

  /** The counters of the server. */
  get stats(): Readonly<Stats> {
    return this._hub.core.stats;
  }

  // ---------------------------------------------------------------- faults

  /**
   * Break every connection.
   *
   * @param code Close code of the server; undefined breaks the connections as a network does, and
   *   loses the frames in flight.
   * @param reason The reason in words.
   * @returns The number of broken connections.
   */
  cut(code?: number, reason = ''): number {
    const links = [...this._links];
    for (const link of links) link.cut(code, reason);
    return links.length;
  }

  /**
   * Break every connection, and reject new ones until the fault ends.
   *
   * @param code Close code of new connections; undefined behaves like a network that is down.
   * @param reason The reason in words.
   * @param options `retryAfter`: milliseconds that the server asks clients to wait; `transport`:
   *   affects only this transport, so connections over the other succeed.
   */
  refusing(
    code?: number,
    reason = 'refused by the test',
    options: {
      readonly retryAfter?: number | undefined;
      readonly transport?: 'websocket' | 'sse' | undefined;
    } = {},
  ): Fault {
    const { retryAfter, transport } = options;
    const refusal = { code, reason, retryAfter, transport };
    this._refusal = refusal;
    for (const link of [...this._links]) {
      if (transport === undefined || link.transport === transport) link.cut(undefined, reason);
    }
    return faultOf(() => {
      if (this._refusal === refusal) this._refusal = undefined;
    });
  }

  /** Hold back all frames in both directions until the fault ends. Connections stay open. */
  frozen(): Fault {
    this._isFrozen = true;
    return faultOf(() => {
      this._isFrozen = false;
      for (const link of [...this._links]) link.thaw();
    });
  }

  /** Lose the next frames of a type on their way to clients, for example `published`. */
  loseNext(type: string, count = 1): void {
    this._losing.set(type, (this._losing.get(type) ?? 0) + count);
  }

  /** End the loss that `loseNext` started. */
  loseNothing(): void {
    this._losing.clear();
  }

  /**
   * Drop retained messages, as trimming does.
   *
   * @param topic The topic; undefined for all.
   * @param options `positions`: also restart the numbering, as after the loss of the whole log.
   */
  forgetHistory(
    topic?: string,
    { positions = false }: { readonly positions?: boolean | undefined } = {},
  ): void {
    this._hub.core.store.evict(topic, positions);
  }

  /** Expire all tokens that were created so far. */
  expireTokens(): void {
    this._hub.core.tokens.expireAll();
  }

  // ---------------------------------------------------------------- internals

  /** The options with which clients reach this server. */
  private _ways(): PubSubOptions {
    const accept = (end: End): Promise<Link> => this._accept(end);
    const made = function make() {
      return new MemorySocket(accept);
    } as unknown as WebSocketConstructor;
    return {
      url: URL,
      WebSocket: made,
      fetch: (input, init) => this._fetch(input, init),
    };
  }

  private _ownToken(): { readonly token: string } {
    return { token: this.token('tests', { kind: 'service' }) };
  }

  private _dial(name: TransportName, options: ClientOptions): Transport | Promise<Transport> {
    const { clock, random } = this;
    if (this._refuses(name) && this._refusal) {
      keep(this.attempts, name);
      return refused(this._refusal, clock);
    }
    if (name === 'websocket') return new WebSocketTransport(options, clock);
    return import('../transports/sse.js').then(
      (sse) => new sse.SseTransport(options, clock, random),
    );
  }

  private async _accept(end: End): Promise<Link> {
    const { transport } = end;
    keep(this.attempts, transport);
    // The connection attempt stays unanswered.
    if (this._isFrozen) await new Promise(() => {});
    if (this._refuses(transport)) throw this._refusal;
    if (!this._isRunning) throw { code: undefined, reason: 'the server is not running' };
    return new Link(this._host, this._hub, end);
  }

  private async _fetch(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
    if (!this._isRunning) throw new TypeError('fetch failed: the server is not running');
    return answer(this._hub, (end) => this._accept(end), input, init);
  }

  private readonly _host: Host = ((server: MemoryServer<C>): Host => ({
    get isFrozen(): boolean {
      return server._isFrozen;
    },
    takes(type: string): boolean {
      const left = server._losing.get(type) ?? 0;
      if (left) server._losing.set(type, left - 1);
      return !left;
    },
    note: (text) => {
      const frame = parse(text) ?? {};
      keep(server.received, frame['type'] === 'auth' ? { ...frame, token: '...' } : frame);
    },
    came: (link) => void server._links.add(link),
    gone: (link) => void server._links.delete(link),
  }))(this);

  private _refuses(transport: TransportName): boolean {
    if (!this._refusal) return false;
    return [transport, undefined].includes(this._refusal.transport);
  }

  private _refuseStopped(): void {
    if (this._isRunning) return;
    throw new UsageError('The server is not running.', {
      remedy: 'Use `await using server = await new MemoryServer().start()`.',
    });
  }
}
if (DEVELOPMENT) showOnly(MemoryServer, 'url', 'connections', 'stats');

/** A transport that fails to open. */
function refused({ code, reason, retryAfter }: Refusal, clock: Clock): Transport {
  return {
    incremental: true,
    lastReceived: clock.now(),
    open: (receiver: Receiver) => {
      void Promise.resolve().then(() => receiver.ended({ code, reason, retryAfter }));
    },
    send: () => {},
    close: () => {},
  };
}

function faultOf(end: () => void): Fault {
  return { end, [Symbol.dispose]: end };
}

function keep<T>(list: T[], value: T): void {
  list.push(value);
  if (list.length > KEPT) list.shift();
}

/** A random number generator with a seed: mulberry32. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
