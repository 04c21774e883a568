/** `ps.topic(…)`: the operations of a client, on one topic. */

import { DEVELOPMENT } from './build.js';
import type { JsonObject, PresenceMember } from './generated/wire.js';
import { showOnly } from './inspection.js';
import type { HistoryOptions } from './runtime/http_operations.js';
import type { PublishOptions } from './runtime/publishing.js';
import type { SubscribeOptions } from './runtime/subscribing.js';
import type { Subscription } from './runtime/subscription.js';
import type { Waiting } from './runtime/waiting.js';
import type { AnyPayload, Message, Occupancy, Outgoing, Published } from './values.js';

/** @internal The operations of a client on any topic. */
export interface Operations<Data> {
  subscribe(topic: string, options?: SubscribeOptions<Data>): Promise<Subscription<Data>>;
  publish(topic: string, message: Outgoing<Data>, options?: PublishOptions): Promise<Published>;
  history(topic: string, options?: HistoryOptions): AsyncIterableIterator<Message<Data>>;
  presence(topic: string, options?: Waiting): Promise<PresenceMember[]>;
  occupancy(topic: string, options?: Waiting): Promise<Occupancy>;
  updatePresence(topic: string, data: JsonObject, options?: Waiting): Promise<void>;
}

/** A topic of a client, with the type of its payloads. */
export class TopicHandle<Data = AnyPayload, Topic extends string = string> {
  /** @internal Use `PubSub.topic`. */
  constructor(
    private readonly _client: Operations<Data>,
    /** The topic; a pattern works only with `subscribe`. */
    readonly name: Topic,
  ) {}

  /** Subscribe to the topic, and wait until the server has answered; see `PubSub.subscribe`. */
  subscribe(options?: SubscribeOptions<Data>): Promise<Subscription<Data>> {
    return this._client.subscribe(this.name, options);
  }

  /** Publish one message, and wait until the server has it; see `PubSub.publish`. */
  publish(message: Outgoing<Data>, options?: PublishOptions): Promise<Published> {
    return this._client.publish(this.name, message, options);
  }

  /** Iterate over the retained messages, oldest first; see `PubSub.history`. */
  history(options?: HistoryOptions): AsyncIterableIterator<Message<Data>> {
    return this._client.history(this.name, options);
  }

  /** Return the members; see `PubSub.presence`. */
  presence(options?: Waiting): Promise<PresenceMember[]> {
    return this._client.presence(this.name, options);
  }

  /** Return the number of members and of users; see `PubSub.occupancy`. */
  occupancy(options?: Waiting): Promise<Occupancy> {
    return this._client.occupancy(this.name, options);
  }

  /** Change what others see of this client on the topic; see `PubSub.updatePresence`. */
  updatePresence(data: JsonObject, options?: Waiting): Promise<void> {
    return this._client.updatePresence(this.name, data, options);
  }
}
if (DEVELOPMENT) showOnly(TopicHandle, 'name');
