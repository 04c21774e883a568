/// <reference lib="esnext.disposable" preserve="true" />

/** `PubSub`: the client. */

import { DEVELOPMENT } from './build.js';
import type { PubSubError } from './errors.js';
import type { TopicInfo } from './generated/http.js';
import type { JsonObject, Limits, PresenceMember } from './generated/wire.js';
import { showOnly } from './inspection.js';
import { Driver } from './runtime/driver.js';
import { type Environment, platform } from './runtime/environment.js';
import type { HistoryOptions, HttpApi } from './runtime/http_operations.js';
import {
  NONE,
  type PublishManyOptions,
  type PublishOptions,
  publish,
  publishMany,
  updatePresence,
} from './runtime/publishing.js';
import { patternsOf, refuse, type SubscribeOptions } from './runtime/subscribing.js';
import type { Subscription } from './runtime/subscription.js';
import type { Timed, Waiting } from './runtime/waiting.js';
import { checkCall, checkChoice, checkType } from './settings/checks.js';
import { checkUnits } from './settings/option_checks.js';
import type { PubSubOptions } from './settings/options.js';
import { readOptions } from './settings/read_options.js';
import { type Operations, TopicHandle } from './topic.js';
import type {
  Allowed,
  AnyTopics,
  ClientEvents,
  Message,
  Occupancy,
  Outgoing,
  PayloadOf,
  Published,
  StateChange,
  StateName,
} from './values.js';

/** @internal The driver of a client: its clock, log, timeouts and listeners. */
export const driverOf = (client: object): Driver =>
  (client as { readonly _driver: Driver })._driver;

const EVENTS: readonly (keyof ClientEvents)[] = ['state', 'gap', 'error'];

/**
 * The client of Hanzo PubSub (HIP-56, Client SDK).
 *
 * Creating a client does no I/O. The client connects at its first use or at `connect()`, and
 * reconnects until you close it or an error is permanent. `Topics` maps topics to the types of
 * their payloads.
 */
export class PubSub<Topics extends object = AnyTopics> {
  declare private readonly _driver: Driver;

  /**
   * @throws InvalidOption An option has a wrong type or is out of range; the error names it.
   * @throws InsecureUrl The client would send the token over an unencrypted connection.
   */
  constructor(options?: PubSubOptions);
  /** @internal With a clock and transports of a test. */
  constructor(options: PubSubOptions, environment: Environment);
  constructor(options: PubSubOptions = {}, environment: Environment = platform) {
    // It contains the token: hide it from inspectors, serializers and copies of the object.
    const value = new Driver(readOptions(options), environment);
    // In virtual time, short times are common.
    if (DEVELOPMENT && environment === platform) checkUnits(options);
    Object.defineProperties(this, { _driver: { value } });
  }

  /** The current state. */
  get state(): StateName {
    return this._driver.state;
  }

  /**
   * Why the last connection or attempt ended; undefined while the client is connected. For a failed
   * client, the reason of the failure.
   */
  get lastFailure(): StateChange | undefined {
    return this._driver.lastFailure;
  }

  /** The id that the server assigned to this client; undefined before the first connection. */
  get clientId(): string | undefined {
    return this._driver.peer?.client_id;
  }

  /**
   * What the server allows: rates, sizes, and the number of messages retained per topic
   * (`history_max`). Undefined before the first connection.
   */
  get limits(): Limits | undefined {
    return this._driver.peer?.limits;
  }

  /** Publishes that waited a second or more for the publish rate; the first is logged as a warning. */
  get slowed(): number {
    return this._driver.session.operations?.publishes.slowed ?? 0;
  }

  /**
   * The current transport; undefined while the client is not connected. `sse` means that no
   * WebSocket could be opened; a warning in the log states the reason. A tab that shares the connection
   * of another tab has `websocket`.
   */
  get transport(): 'websocket' | 'sse' | undefined {
    return this._driver.transport;
  }

  /** The URL of the WebSocket; it never contains a token. */
  get url(): string {
    return this._driver.options.socketUrl;
  }

  /**
   * Connect, and wait until the client is connected.
   *
   * Call it to connect before the first use, or to get errors early. After the timeout, the client
   * keeps trying.
   *
   * @throws ConnectionFailed The client did not connect in time; the message contains the reason of
   *   the last failure.
   * @throws AuthError The server rejected the token, or `getToken` threw `AuthRefused`.
   * @throws PermissionDenied The server does not allow this identity to connect.
   * @throws ClosedError The client is closed.
   */
  async connect(options: Waiting = {}): Promise<void> {
    checkCall(options);
    await this._live.operate(options, (background, timed) => background.connected(timed));
  }

  /**
   * Close the client: settle its publishes, close the connection, end the subscriptions.
   *
   * You can call it several times, and from handlers. Iterations end after the messages that have
   * already arrived.
   *
   * @param options `timeout`: milliseconds to wait for unanswered publishes; default:
   *   `closeTimeout`. The calls of publishes that are still unanswered then reject. 0 does not
   *   wait.
   * @throws InvalidOption `timeout` is not a number from 0 to a day.
   */
  async close(options: { readonly timeout?: number | undefined } = {}): Promise<void> {
    checkCall(options);
    await this._driver.close(options.timeout);
  }

  /** The same as `close()`, under its name in the sample of HIP-56. */
  disconnect(): Promise<void> {
    return this.close();
  }

  /**
   * Iterate over the changes of state from this call on, until the client has ended.
   *
   * An iterator that is not read keeps its newest 256 changes.
   */
  states(): AsyncIterableIterator<StateChange> {
    return this._driver.states();
  }

  /**
   * Call a function with every `state` change, `gap` or `error`, in order.
   *
   * `error` reports errors that no call can throw, for example an exception in a handler. Without a
   * listener, the client logs them.
   *
   * @returns A function that removes the listener.
   */
  on<Name extends keyof ClientEvents>(
    name: Name,
    listener: (event: ClientEvents[Name]) => unknown,
  ): () => void {
    if (DEVELOPMENT) {
      checkChoice('name', name, EVENTS, ' For messages, use `subscribe`.');
      checkType('listener', listener ?? null, 'function');
    }
    return this._driver.listeners.on(name, listener);
  }

  /**
   * Subscribe to topics or patterns, and wait until the server has answered.
   *
   * @param topics One or several patterns: segments joined by dots, `*` for one segment, `**` for
   *   one or more.
   * @throws InvalidTopic A pattern is not valid.
   * @throws InvalidOption Another argument is not valid.
   * @throws PermissionDenied The access rules allow none of the topics.
   * @throws OperationTimeout The server did not answer in time. With `onMessage`, the subscription
   *   stays active (`outcomeUnknown`) until its `signal` or `close` ends it. Otherwise, it has ended.
   * @throws ClosedError The client is closed.
   */
  async subscribe<Topic extends Allowed<Topics>>(
    topics: Topic | readonly Topic[],
    options: SubscribeOptions<PayloadOf<Topics, Topic>> = {},
  ): Promise<Subscription<PayloadOf<Topics, Topic>>> {
    const driver = this._live;
    const patterns = patternsOf(topics, options, driver.maxPayload);
    if (!patterns) return refuse(driver, topics, options);
    return driver.operate(options, (background, timed) => background.subscribe(patterns, timed));
  }

  /**
   * Publish one message, and wait until the server has it.
   *
   * Concurrent publishes share the connection and keep the order of the calls. Retries use the same
   * id, so the server publishes the message once. A message of type `presence.update` updates the
   * presence of this client on the topic.
   *
   * @param topic A topic without wildcards.
   * @param message `{type, data}`, optionally `ttl`, `id`, `meta`.
   * @throws InvalidTopic The topic is not valid or has a wildcard.
   * @throws InvalidPayload The data is not JSON.
   * @throws PayloadTooLarge The data is larger than the limit.
   * @throws SchemaError The server has a contract for the topic, which the payload does not match.
   * @throws PermissionDenied The access rules do not allow it.
   * @throws QueueFull Too many messages wait to be sent (policy `error`), or the message was
   *   dropped (`drop_oldest`).
   * @throws Superseded A newer message with the same key replaced it (`latest`).
   * @throws OperationTimeout Not settled in time. `outcomeUnknown` is true if it may have been
   *   published. Publish again with the same `id` to avoid a duplicate.
   * @throws ClosedError The client is closed.
   */
  publish<Topic extends Allowed<Topics>>(
    topic: Topic,
    message: Outgoing<PayloadOf<Topics, Topic>>,
    options: PublishOptions = NONE,
  ): Promise<Published> {
    return publish(this._driver, topic, message, options);
  }

  /**
   * Publish several messages in one request, in order.
   *
   * @param messages `[topic, message]` pairs, or messages with a `topic`, each with its own `ttl` and
   *   `id`. The client splits a batch that exceeds the limit of the server.
   * @returns One result per message, in the same order: a `Published`, or the error.
   * @throws InvalidTopic A topic is not valid; nothing was sent.
   * @throws InvalidPayload A payload is not JSON; nothing was sent.
   * @throws PayloadTooLarge A payload is larger than the limit; nothing was sent.
   */
  publishMany<Topic extends Allowed<Topics>>(
    messages: readonly (
      | readonly [topic: Topic, message: Outgoing<PayloadOf<Topics, Topic>>]
      | (Outgoing<PayloadOf<Topics, Topic>> & { readonly topic: Topic })
    )[],
    options: PublishManyOptions = {},
  ): Promise<(Published | PubSubError)[]> {
    return publishMany(this._driver, messages, options);
  }

  /**
   * Iterate over the retained messages of one topic, oldest first, across all pages.
   *
   * @throws InvalidTopic The topic is not valid.
   * @throws InvalidOption An option is not valid, or two exclude each other.
   * @throws PermissionDenied The access rules do not allow it.
   * @throws ConnectionFailed The HTTP API could not be reached.
   * @throws OperationTimeout The server did not answer in time.
   * @throws Unsupported `before` is a position, and the server cannot end a page before one; or servers
   *   with different positions answer in turn.
   */
  history<Topic extends Allowed<Topics>>(
    topic: Topic,
    options: HistoryOptions = {},
  ): AsyncIterableIterator<Message<PayloadOf<Topics, Topic>>> {
    this._driver.checkOpen();
    return this._history(topic, options);
  }

  /**
   * Return the members of a topic without wildcards.
   *
   * @throws InvalidTopic The topic is not valid or has a wildcard.
   * @throws PermissionDenied The access rules do not allow it.
   * @throws ConnectionFailed The HTTP API could not be reached.
   * @throws OperationTimeout The server did not answer in time.
   */
  async presence(topic: string, options: Waiting = {}): Promise<PresenceMember[]> {
    checkCall(options);
    return this._http(options, (api, timed) => api.presence(topic, timed));
  }

  /**
   * Return the number of members and of users of a topic without wildcards.
   *
   * `occupancyOf(change.members)` counts the members that `onPresence` receives.
   *
   * @throws InvalidTopic The topic is not valid or has a wildcard.
   * @throws PermissionDenied The access rules do not allow it.
   * @throws ConnectionFailed The HTTP API could not be reached.
   * @throws OperationTimeout The server did not answer in time.
   */
  async occupancy(topic: string, options: Waiting = {}): Promise<Occupancy> {
    checkCall(options);
    return this._http(options, (api, timed) => api.occupancy(topic, timed));
  }

  /**
   * Change what others see of this client, on one topic or on all of its topics.
   *
   * The timeout and an abort of the `signal` end only the wait: the client may still send the
   * update. If the server rejects it after that, `ps.on('error', …)` receives the error.
   *
   * @param topic A topic without wildcards; undefined for all topics of this client.
   * @param data `status`, `name`, `avatar_url` set fields of the member (at most 64, 256 and 2,048
   *   characters), other keys are merged into `metadata` (at most 16,384 bytes of JSON); null
   *   deletes a key.
   * @throws NotFound This client is not a member of the topic.
   * @throws QueueFull The client has already set presence on 10,000 topics.
   * @throws InvalidTopic The topic is not valid or has a wildcard.
   * @throws InvalidPayload The data is not a JSON object, or a field has the wrong type.
   * @throws PayloadTooLarge The metadata is too large, on one topic or on all topics together.
   * @throws Unsupported The client uses server-sent events, which cannot update presence.
   * @throws OperationTimeout The server did not answer in time.
   */
  async updatePresence(
    topic: string | undefined,
    data: JsonObject,
    options: Waiting = {},
  ): Promise<void> {
    checkCall(options);
    await updatePresence(this._live, topic, data, options);
  }

  /**
   * Return the active topics, sorted by name. Requires the token of an administrator.
   *
   * @param prefix Only topics that begin with this text.
   * @param options `limit`: maximum number of topics, 1 to 1,000; default 100. If you get this many,
   *   there may be more: raise `limit`, or list one `prefix` after the other.
   * @throws PermissionDenied The token is not that of an administrator.
   * @throws ConnectionFailed The HTTP API could not be reached.
   * @throws OperationTimeout The server did not answer in time.
   */
  async topics(
    prefix?: string,
    options: Waiting & { readonly limit?: number | undefined } = {},
  ): Promise<TopicInfo[]> {
    checkCall(options, ['limit']);
    return this._http(options, (api, timed) => api.topics(prefix, timed));
  }

  /** Return a handle for one topic, with the same operations. This sends nothing. */
  topic<Topic extends Allowed<Topics>>(name: Topic): TopicHandle<PayloadOf<Topics, Topic>, Topic> {
    return new TopicHandle(this as unknown as Operations<PayloadOf<Topics, Topic>>, name);
  }

  /** Settle the publishes and close. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private async *_history(topic: string, options: HistoryOptions) {
    checkCall(options, ['since', 'before', 'after', 'limit']);
    yield* await this._http(options, async (api, timed) => api.history(topic, timed));
  }

  /** Call the HTTP API; the timeout includes its loading. */
  private async _http<Options extends Waiting, Result>(
    options: Options,
    call: (api: HttpApi, timed: Options & Timed) => Promise<Result>,
  ): Promise<Result> {
    const driver = this._live;
    const timed = driver.timed(options);
    return call(await driver.part(driver.http, timed), timed);
  }

  /** The driver of a client that has not ended. */
  private get _live(): Driver {
    this._driver.checkOpen();
    return this._driver;
  }
}
if (DEVELOPMENT) showOnly(PubSub, 'url', 'state', 'transport');
