// Generated from spec/errors.yaml by `make generate`; do not edit.

import { DEVELOPMENT } from '../build.js';

/** What a client does: try again, try again with a new token, or end. */
export type CloseAction = 'retry' | 'reauth' | 'stop';

/** Codes that a server sends. */
export type WireCode =
  | 'invalid_frame'
  | 'invalid_topic'
  | 'invalid_payload'
  | 'invalid_option'
  | 'schema'
  | 'payload_too_large'
  | 'unauthenticated'
  | 'token_invalid'
  | 'token_expired'
  | 'auth_timeout'
  | 'forbidden'
  | 'not_found'
  | 'conflict'
  | 'rate_limited'
  | 'connection_limit'
  | 'subscription_limit'
  | 'slow_consumer'
  | 'idle_timeout'
  | 'unsupported'
  | 'unavailable'
  | 'going_away'
  | 'internal';

/** Codes that only the SDK raises. */
export type ClientCode =
  | 'connection_failed'
  | 'not_connected'
  | 'auth_refused'
  | 'token_unavailable'
  | 'timeout'
  | 'outcome_unknown'
  | 'request_timeout'
  | 'responder_failed'
  | 'queue_full'
  | 'dropped'
  | 'messages_missed'
  | 'superseded'
  | 'insecure_url'
  | 'closed'
  | 'usage';

/** Every known code. */
export type Code = WireCode | ClientCode;

/** Names of the error classes. */
export type ErrorName =
  | 'ProtocolError'
  | 'InvalidTopic'
  | 'InvalidPayload'
  | 'InvalidOption'
  | 'SchemaError'
  | 'PayloadTooLarge'
  | 'AuthError'
  | 'TokenExpired'
  | 'PermissionDenied'
  | 'NotFound'
  | 'Conflict'
  | 'RateLimited'
  | 'ConnectionLimit'
  | 'LimitExceeded'
  | 'SlowConsumer'
  | 'ConnectionFailed'
  | 'Unsupported'
  | 'Unavailable'
  | 'AuthRefused'
  | 'OperationTimeout'
  | 'RequestTimeout'
  | 'ReplyError'
  | 'QueueFull'
  | 'MessagesMissed'
  | 'Superseded'
  | 'InsecureUrl'
  | 'ClosedError'
  | 'UsageError';

/** What is known of a code. */
export interface ErrorRecord {
  readonly code: Code;
  /** Name of the error class. */
  readonly error: ErrorName;
  readonly retryable: boolean;
  /** What a connection that this ended does next. */
  readonly action: CloseAction;
  readonly remedy: string;
  /** Address of its description. */
  readonly docs: string;
  /** WebSocket close code, where the code has one. */
  readonly close: number | undefined;
  /** What it means in words, where the client itself says no more. */
  readonly meaning: string | undefined;
}

/**
 * Every code by its class, as `code:next:close`; the usual code of a class comes first.
 *
 * A missing code is the class name in snake case, and a missing `next` is `retry`.
 * `again`: what failed may be tried again, unchanged, and so may the connection.
 */
const table: Readonly<Record<ErrorName, string>> = {
  ProtocolError: 'invalid_frame::4400',
  InvalidTopic: '',
  InvalidPayload: '',
  InvalidOption: '',
  SchemaError: 'schema',
  PayloadTooLarge: '::4413',
  AuthError:
    'unauthenticated:reauth:4401 token_invalid:reauth:4401 auth_timeout:again:4401 token_unavailable:again',
  TokenExpired: ':reauth:4401',
  PermissionDenied: 'forbidden:stop:4403',
  NotFound: '',
  Conflict: '',
  RateLimited: ':again',
  ConnectionLimit: ':again:4429',
  LimitExceeded: 'subscription_limit',
  SlowConsumer: ':again:4500',
  ConnectionFailed: ':again idle_timeout:again:4408 going_away:again:1001 not_connected:again',
  Unsupported: '',
  Unavailable: ':again:1013 internal:again:1011',
  AuthRefused: ':stop',
  OperationTimeout: 'timeout:again outcome_unknown:again',
  RequestTimeout: ':again',
  ReplyError: 'responder_failed',
  QueueFull: ':again dropped:again',
  MessagesMissed: '',
  Superseded: '',
  InsecureUrl: ':stop',
  ClosedError: 'closed:stop',
  UsageError: 'usage:stop',
};

/** Remedy and, where the client itself says no more, meaning of every code. */
const words: Readonly<Record<Code, readonly [remedy: string, meaning?: string]>> = {
  invalid_frame: [
    'Correct the field that the message names; https://pubsub.hanzo.ai/docs/wire/ describes every field.',
  ],
  invalid_topic: [
    'Use letters, digits, `_` and `-` in segments joined by dots, at most 255 bytes. Use `*` and `**` only in subscriptions, as whole segments.',
  ],
  invalid_payload: [
    'Send plain JSON: no NaN or infinity, no lone surrogates, integers within 64 bits.',
  ],
  invalid_option: ['Correct the field that the message names.'],
  schema: [
    'Correct the field that the message names, or use one version of the schema on both sides.',
  ],
  payload_too_large: ['Store the content elsewhere and publish a reference to it.'],
  unauthenticated: [
    'Pass a token, or a callback that returns one. Before that, the server accepts only `auth`.',
  ],
  token_invalid: ['Get a new token from an issuer that the server trusts.'],
  auth_timeout: ['Send `auth` within five seconds of opening the socket.'],
  token_unavailable: [
    "Fix the callback, or the server that it calls; the error's cause has the details. AuthRefused stops the client.",
  ],
  token_expired: ['Pass a callback that returns a new token before the old one expires.'],
  forbidden: [
    'Ask for access, or run `hanzo-pubsub doctor --topic TOPIC` to see which rule decides.',
  ],
  not_found: ['Check the path, and that the URL points to the HTTP port.'],
  conflict: ['Use one id for one message, and retry a message unchanged.'],
  rate_limited: [
    'Wait for the time that the error states, publish in batches, or coalesce messages.',
  ],
  connection_limit: ['Close idle connections, or share one client.'],
  subscription_limit: ['Subscribe to a pattern with `*` or `**` instead of many topics.'],
  slow_consumer: [
    'Read faster, subscribe to fewer topics, or move work out of the reader. The server replays missed messages from history.',
  ],
  connection_failed: [
    'Check the URL and the network, and that the server is running. `hanzo-pubsub doctor` finds the first cause.',
  ],
  idle_timeout: ['Look for a program that hangs, or for a suspended process or machine.'],
  going_away: ['No action is needed: the client reconnects.'],
  not_connected: ['Wait for the state `connected`, or use the REST form of the operation.'],
  unsupported: ['Check the `features` of `auth.ok`.'],
  unavailable: ['Try again after the time that the error states.'],
  internal: ['Try again. Search the server log for this time.'],
  auth_refused: ['Log in again and create a new client.'],
  timeout: ['Try again with the same message id: the server publishes an id only once.'],
  outcome_unknown: [
    'Publish again with the same message id: the server publishes an id only once.',
    'The connection was lost after the message was sent and before the server answered.',
  ],
  request_timeout: [
    'Check that a responder is subscribed to the topic, then try again with the same request id.',
  ],
  responder_failed: ['Search the log of the responder for the request id.'],
  queue_full: [
    'Await each publish, raise `sendQueue`, or choose the policy `block`, `drop_oldest` or `latest`.',
  ],
  dropped: ['Choose the policy `block` to keep every message.'],
  messages_missed: [
    'Load the current state from your own storage, then continue to iterate for the messages that follow.',
  ],
  superseded: ['No action is needed: this is what the policy `latest` does.'],
  insecure_url: ['Use wss:// or https://, or pass `allowInsecure: true` on a trusted network.'],
  closed: ['Create a new client.', 'The client is closed.'],
  usage: ['Change the program as the message describes.'],
};

/** What is known of each code; the usual code of a class comes before its others. */
export const CODES: ReadonlyMap<string, ErrorRecord> = new Map(
  Object.entries(table).flatMap(([error, rows]) =>
    rows.split(' ').map((row) => {
      const [given, next = 'retry', close] = row.split(':');
      const code = given || error.replace(/\B[A-Z]/g, '_$&').toLowerCase();
      const retryable = next === 'again';
      const action = retryable ? 'retry' : next || 'retry';
      const docs = `https://pubsub.hanzo.ai/docs/errors/#${code}`;
      const remedy = DEVELOPMENT ? words[code as Code][0] : `See ${docs}`;
      return [
        code,
        {
          code,
          error,
          retryable,
          action,
          remedy,
          docs,
          close: close && Number(close),
          ...(DEVELOPMENT && { meaning: words[code as Code][1] }),
        } as ErrorRecord,
      ];
    }),
  ),
);

const closes: Readonly<Record<number, CloseAction>> = {
  /** The server does not accept this type of data. */
  1003: 'stop',
  /** Policy violation; many gateways send it for a missing or invalid token. */
  1008: 'reauth',
  /** The server does not support an extension. */
  1010: 'stop',
  /** Unauthorized (IANA registry). */
  3000: 'reauth',
  /** Forbidden (IANA registry). */
  3003: 'stop',
  /** Authentication failed or timed out, or the token expired. */
  4401: 'reauth',
  /** Forbidden. */
  4403: 'stop',
  /** Another connection replaced this one. The client reconnects once, and stops if this happens again before a connection was stable. */
  4409: 'stop',
};

/** What a client does after its socket closed with this code, if with any. */
export function closeAction(code: number | undefined): CloseAction {
  return closes[code ?? 0] ?? 'retry';
}
