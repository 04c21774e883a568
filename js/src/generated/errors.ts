// Generated from spec/errors.yaml by `make generate`; do not edit.

/** What a client does: try again, try again with a new token, or end. */
export type CloseAction = 'retry' | 'reauth' | 'stop';

/** Codes that a server sends. */
export type WireCode =
  | 'invalid_frame'
  | 'invalid_topic'
  | 'invalid_payload'
  | 'invalid_option'
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
  | 'queue_full'
  | 'dropped'
  | 'messages_missed'
  | 'superseded'
  | 'insecure_url'
  | 'closed'
  | 'usage'
  | 'wrong_loop';

/** Every known code. */
export type Code = WireCode | ClientCode;

/** Names of the error classes. */
export type ErrorName =
  | 'ProtocolError'
  | 'InvalidTopic'
  | 'InvalidPayload'
  | 'InvalidOption'
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
  /** WebSocket close code, where the code has one. */
  readonly close: number | undefined;
  /** What it means in words, where the client itself says no more. */
  readonly meaning: string | undefined;
}

/** `again`: what failed may be tried again, unchanged, and so may the connection. */
type Row = readonly [
  next: CloseAction | 'again',
  remedy: string,
  close?: number | undefined,
  meaning?: string,
];

/** Every code by its class; the usual code of a class comes first. */
const table: Readonly<Record<ErrorName, Readonly<Partial<Record<Code, Row>>>>> = {
  ProtocolError: {
    invalid_frame: [
      'retry',
      'Fix the field that the message names; spec/pubsub.schema.json describes every field.',
      4400,
    ],
  },
  InvalidTopic: {
    invalid_topic: [
      'retry',
      'Use letters, digits, `_` and `-` in segments joined by dots, at most 255 bytes. Use `*` and `**` only in subscriptions, as whole segments.',
    ],
  },
  InvalidPayload: {
    invalid_payload: [
      'retry',
      'Send plain JSON: no NaN or infinity, no lone surrogates, integers within 64 bits.',
    ],
  },
  InvalidOption: {
    invalid_option: ['retry', 'Correct the field that the message names.'],
  },
  PayloadTooLarge: {
    payload_too_large: [
      'retry',
      'Store the content elsewhere and publish a reference to it (HIP-56, Security 5).',
      4413,
    ],
  },
  AuthError: {
    unauthenticated: [
      'reauth',
      'Pass a token, or a callback that returns one. The server accepts only `auth` before it.',
      4401,
    ],
    token_invalid: ['reauth', 'Get a new token from an issuer that the server trusts.', 4401],
    auth_timeout: [
      'again',
      'Send `auth` within five seconds of opening the socket (HIP-56, Security 1).',
      4401,
    ],
    token_unavailable: [
      'again',
      "Fix the callback; the error's cause has the details. Raise AuthRefused in it to stop the client.",
    ],
  },
  TokenExpired: {
    token_expired: [
      'reauth',
      'Pass a callback that returns tokens instead of a fixed token, so that the client can renew it.',
      4401,
    ],
  },
  PermissionDenied: {
    forbidden: [
      'stop',
      'Ask for access, or run `hanzo-pubsub doctor --topic TOPIC` to see which rule decides.',
      4403,
    ],
  },
  NotFound: {
    not_found: ['retry', 'Check the path, and that the URL points to the HTTP port.'],
  },
  Conflict: {
    conflict: ['retry', 'Use one id for one message, and retry a message unchanged.'],
  },
  RateLimited: {
    rate_limited: [
      'again',
      'Wait for the time that the error states, publish in batches, or coalesce messages.',
    ],
  },
  ConnectionLimit: {
    connection_limit: ['again', 'Close idle connections, or share one client.', 4429],
  },
  LimitExceeded: {
    subscription_limit: [
      'retry',
      'Subscribe to a pattern with `*` or `**` instead of many topics.',
    ],
  },
  SlowConsumer: {
    slow_consumer: [
      'again',
      'Read faster, subscribe to fewer topics, or move work out of the reader. The server replays missed messages from history.',
      4500,
    ],
  },
  ConnectionFailed: {
    connection_failed: [
      'again',
      'Check the URL and the network. `hanzo-pubsub doctor` finds the first cause.',
    ],
    idle_timeout: [
      'again',
      'Let the client send its pings. Look for a program that hangs, or for a suspended process or machine.',
      4408,
    ],
    going_away: ['again', 'No action is needed: the client reconnects.', 1001],
    not_connected: [
      'again',
      'Wait for the state `connected`, or use the REST form of the operation.',
    ],
  },
  Unsupported: {
    unsupported: ['retry', 'Check the `features` of `auth.ok`.'],
  },
  Unavailable: {
    unavailable: ['again', 'Try again after the time that the error states.', 1013],
    internal: ['again', 'Try again. Search the server log for this time.', 1011],
  },
  AuthRefused: {
    auth_refused: ['stop', 'Log in again and create a new client.'],
  },
  OperationTimeout: {
    timeout: ['again', 'Try again with the same message id: the server publishes an id only once.'],
    outcome_unknown: [
      'again',
      'Publish again with the same message id: the server publishes an id only once.',
      undefined,
      'The connection was lost after the message was sent and before the server answered.',
    ],
  },
  QueueFull: {
    queue_full: [
      'again',
      'Await each publish, raise `sendQueue`, or choose the policy `block`, `drop_oldest` or `latest`.',
    ],
    dropped: ['again', 'Choose the policy `block` to keep every message.'],
  },
  MessagesMissed: {
    messages_missed: [
      'retry',
      'Load the current state from your own storage, then continue to iterate for the messages that follow.',
    ],
  },
  Superseded: {
    superseded: ['retry', 'No action is needed: this is what the policy `latest` does.'],
  },
  InsecureUrl: {
    insecure_url: [
      'stop',
      'Use wss:// or https://, or pass `allowInsecure: true` on a trusted network.',
    ],
  },
  ClosedError: {
    closed: ['stop', 'Create a new client.', undefined, 'The client is closed.'],
  },
  UsageError: {
    usage: ['stop', 'Change the program as the message describes.'],
    wrong_loop: ['stop', 'Use one client per event loop, or the blocking client `PubSub`.'],
  },
};

/** What is known of each code; the usual code of a class comes before its others. */
export const CODES: ReadonlyMap<string, ErrorRecord> = new Map(
  Object.entries(table).flatMap(([error, rows]) =>
    Object.entries(rows).map(([code, [next, remedy, close, meaning]]) => {
      const retryable = next === 'again';
      const action = retryable ? 'retry' : next;
      const record = { code, error, retryable, action, remedy, close, meaning };
      return [code, record as ErrorRecord];
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
  /** Another connection replaced this one. The client reconnects the first time after a stable connection. */
  4409: 'stop',
};

/** What a client does after its socket closed with this code, if with any. */
export function closeAction(code: number | undefined): CloseAction {
  return closes[code ?? 0] ?? 'retry';
}
