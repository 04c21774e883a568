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
      'Compare it with spec/pubsub.schema.json; the message names the field.',
      4400,
    ],
  },
  InvalidTopic: {
    invalid_topic: [
      'retry',
      'Use segments of letters, digits, `_` and `-` joined by dots, at most 255 bytes; `*` and `**` only as whole segments of a subscription.',
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
      'Pass a token or a callback for it; the server answers nothing but `auth` before that.',
      4401,
    ],
    token_invalid: ['reauth', 'Get a new token from the issuer that the server trusts.', 4401],
    auth_timeout: [
      'again',
      'Send `auth` within five seconds of opening the socket (HIP-56, Security 1).',
      4401,
    ],
    token_unavailable: [
      'again',
      'Mend the callback, see the cause; an AuthRefused out of it ends the client.',
    ],
  },
  TokenExpired: {
    token_expired: [
      'reauth',
      'Pass a callback for tokens in place of a fixed token, so that the client can renew it.',
      4401,
    ],
  },
  PermissionDenied: {
    forbidden: [
      'stop',
      'Ask for access, or check with `hanzo-pubsub doctor --topic TOPIC` which rule decides.',
      4403,
    ],
  },
  NotFound: {
    not_found: ['retry', 'Check the name, and that the URL is the one of the HTTP port.'],
  },
  Conflict: {
    conflict: ['retry', 'Use one id for one message; retry a message unchanged.'],
  },
  RateLimited: {
    rate_limited: ['again', 'Wait as long as the error says, publish in batches, or coalesce.'],
  },
  ConnectionLimit: {
    connection_limit: ['again', 'Close idle connections, or share one client.', 4429],
  },
  LimitExceeded: {
    subscription_limit: [
      'retry',
      'Subscribe to a pattern with `*` or `**` in place of many topics.',
    ],
  },
  SlowConsumer: {
    slow_consumer: [
      'again',
      'Read faster, subscribe to less, or move work out of the reader; what was missed is replayed from history.',
      4500,
    ],
  },
  ConnectionFailed: {
    connection_failed: [
      'again',
      'Check the URL and the network; `hanzo-pubsub doctor` finds the first cause.',
    ],
    idle_timeout: [
      'again',
      'Let the client send its pings; check for a program that hangs, or a suspended process or machine.',
      4408,
    ],
    going_away: ['again', 'The client reconnects by itself.', 1001],
    not_connected: [
      'again',
      'Wait for the state `connected`, or use the REST form of the operation.',
    ],
  },
  Unsupported: {
    unsupported: ['retry', 'Check the `features` of `auth.ok`.'],
  },
  Unavailable: {
    unavailable: ['again', 'Try again, as late as the error says.', 1013],
    internal: ['again', "Try again; look into the server's log for this time.", 1011],
  },
  AuthRefused: {
    auth_refused: ['stop', 'Log in again and build a new client.'],
  },
  OperationTimeout: {
    timeout: ['again', 'Try again with the same message id; the server publishes an id once.'],
    outcome_unknown: [
      'again',
      'Publish again with the same message id; the server publishes an id once.',
      undefined,
      'The connection ended after the message was sent and before the answer came.',
    ],
  },
  QueueFull: {
    queue_full: [
      'again',
      'Await each publish, raise `sendQueue`, or choose the policy `block`, `drop_oldest` or `latest`.',
    ],
    dropped: ['again', 'Choose the policy `block` to lose nothing.'],
  },
  MessagesMissed: {
    messages_missed: [
      'retry',
      'Load the state that the missing messages led to, then iterate again for those that follow.',
    ],
  },
  Superseded: {
    superseded: ['retry', 'None is needed: this is the policy `latest`.'],
  },
  InsecureUrl: {
    insecure_url: [
      'stop',
      'Use wss:// or https://, or pass `allowInsecure: true` on a trusted network.',
    ],
  },
  ClosedError: {
    closed: ['stop', 'Build a new client.', undefined, 'The client is closed.'],
  },
  UsageError: {
    usage: ['stop', 'Change the program as the message says.'],
    wrong_loop: ['stop', 'Use one client a loop, or the blocking client `PubSub`.'],
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
  /** The server does not take this kind of data. */
  1003: 'stop',
  /** Policy violation; many gateways say it for a missing or bad token. */
  1008: 'reauth',
  /** The server lacks an extension. */
  1010: 'stop',
  /** Unauthorized (IANA registry). */
  3000: 'reauth',
  /** Forbidden (IANA registry). */
  3003: 'stop',
  /** Authentication failed, timed out or ran out. */
  4401: 'reauth',
  /** Forbidden. */
  4403: 'stop',
  /** Another connection took this one's place; the first time since a stable connection, the client reconnects. */
  4409: 'stop',
};

/** What a client does after its socket closed with this code, if with any. */
export function closeAction(code: number | undefined): CloseAction {
  return closes[code ?? 0] ?? 'retry';
}
