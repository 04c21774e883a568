/** Typed client of Hanzo PubSub for browsers and Node. */

export { PubSub } from './client.js';
export * from './errors.js';
export type { Denial, Envelope, ErrorCode, Limits, Sender } from './generated/wire.js';
export type {
  GapHandler,
  MessageHandler,
  PresenceHandler,
  StateLoader,
} from './runtime/handlers.js';
export type { HistoryOptions } from './runtime/http_operations.js';
export type { PublishManyOptions, PublishOptions } from './runtime/publishing.js';
export type { SubscribeOptions } from './runtime/subscribing.js';
export type { Subscription } from './runtime/subscription.js';
export type { Waiting } from './runtime/waiting.js';
export type {
  PubSubOptions,
  ReceivePolicy,
  ReceiveQueue,
  RetryOptions,
  SendPolicy,
  SendQueue,
  WebSocketConstructor,
  WebSocketLike,
} from './settings/options.js';
export type { TopicHandle } from './topic.js';
export { isWildcard, matches } from './topics.js';
export { occupancyOf, usersOf } from './users.js';
export { validatePattern, validateTopic } from './validate.js';
export type * from './values.js';
export { VERSION } from './version.js';
