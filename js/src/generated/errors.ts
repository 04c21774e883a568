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
  | 'superseded'
  | 'insecure_url'
  | 'closed'
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
  | 'Superseded'
  | 'InsecureUrl'
  | 'ClosedError'
  | 'UsageError';

/** One row of the error table. */
export interface ErrorRecord {
  readonly code: Code;
  readonly meaning: string;
  readonly remedy: string;
  readonly retryable: boolean;
  /** What a connection that this ended does next. */
  readonly action: CloseAction;
  /** HTTP status, where the code has one. */
  readonly status: number | null;
  /** WebSocket close code, where the code has one. */
  readonly close: number | null;
  /** Name of the error class. */
  readonly error: ErrorName;
  readonly scope: 'wire' | 'client';
}

const records: readonly ErrorRecord[] = [
  {
    code: 'invalid_frame',
    meaning: 'The frame or body is not valid JSON, or lacks or mistypes a field.',
    remedy: 'Compare it with spec/pubsub.schema.json; the message names the field.',
    retryable: false,
    action: 'retry',
    status: 400,
    close: 4400,
    error: 'ProtocolError',
    scope: 'wire',
  },
  {
    code: 'invalid_topic',
    meaning: 'The topic or pattern is not valid.',
    remedy:
      'Use segments of letters, digits, `_` and `-` joined by dots, at most 255 bytes; `*` and `**` only as whole segments of a subscription.',
    retryable: false,
    action: 'retry',
    status: 400,
    close: null,
    error: 'InvalidTopic',
    scope: 'wire',
  },
  {
    code: 'invalid_payload',
    meaning: 'The payload cannot be sent as JSON.',
    remedy: 'Send plain JSON: no NaN or infinity, no lone surrogates, integers within 64 bits.',
    retryable: false,
    action: 'retry',
    status: 422,
    close: null,
    error: 'InvalidPayload',
    scope: 'wire',
  },
  {
    code: 'invalid_option',
    meaning: 'A parameter or option has a wrong type or lies out of range.',
    remedy: 'The message names the field and what it accepts.',
    retryable: false,
    action: 'retry',
    status: 400,
    close: null,
    error: 'InvalidOption',
    scope: 'wire',
  },
  {
    code: 'payload_too_large',
    meaning: 'The payload is over the limit of 256 KB.',
    remedy: 'Store the content elsewhere and publish a reference to it (HIP-56, Security 5).',
    retryable: false,
    action: 'retry',
    status: 413,
    close: 4413,
    error: 'PayloadTooLarge',
    scope: 'wire',
  },
  {
    code: 'unauthenticated',
    meaning: 'No valid token was presented.',
    remedy: 'Pass `token` or `get_token`; the server answers nothing but `auth` before that.',
    retryable: false,
    action: 'reauth',
    status: 401,
    close: 4401,
    error: 'AuthError',
    scope: 'wire',
  },
  {
    code: 'token_invalid',
    meaning: 'The token is malformed, forged, for another audience, or its key is unknown.',
    remedy: 'Get a new token from the issuer that the server trusts.',
    retryable: false,
    action: 'reauth',
    status: 401,
    close: 4401,
    error: 'AuthError',
    scope: 'wire',
  },
  {
    code: 'token_expired',
    meaning: 'The token has expired.',
    remedy: 'Pass `get_token`, so that the client can renew it, in place of a fixed `token`.',
    retryable: false,
    action: 'reauth',
    status: 401,
    close: 4401,
    error: 'TokenExpired',
    scope: 'wire',
  },
  {
    code: 'auth_timeout',
    meaning: 'No `auth` frame came in time after the connection opened.',
    remedy: 'Send `auth` within five seconds of opening the socket (HIP-56, Security 1).',
    retryable: true,
    action: 'retry',
    status: 401,
    close: 4401,
    error: 'AuthError',
    scope: 'wire',
  },
  {
    code: 'forbidden',
    meaning: 'The access rules do not allow this identity to do that.',
    remedy: 'Ask for access, or check with `hanzo-pubsub doctor --topic TOPIC` which rule decides.',
    retryable: false,
    action: 'stop',
    status: 403,
    close: 4403,
    error: 'PermissionDenied',
    scope: 'wire',
  },
  {
    code: 'not_found',
    meaning: 'There is nothing at this address.',
    remedy: 'Check the path, and that the URL is the one of the HTTP port.',
    retryable: false,
    action: 'retry',
    status: 404,
    close: null,
    error: 'NotFound',
    scope: 'wire',
  },
  {
    code: 'conflict',
    meaning: 'The id was used before for another payload.',
    remedy: 'Use one id for one message; retry a message unchanged.',
    retryable: false,
    action: 'retry',
    status: 409,
    close: null,
    error: 'Conflict',
    scope: 'wire',
  },
  {
    code: 'rate_limited',
    meaning: 'More publishes a second than allowed.',
    remedy: 'Wait for `retry_after`, publish in batches, or coalesce.',
    retryable: true,
    action: 'retry',
    status: 429,
    close: null,
    error: 'RateLimited',
    scope: 'wire',
  },
  {
    code: 'connection_limit',
    meaning: 'Too many connections of this user or organization.',
    remedy: 'Close idle connections, or share one client.',
    retryable: true,
    action: 'retry',
    status: 429,
    close: 4429,
    error: 'ConnectionLimit',
    scope: 'wire',
  },
  {
    code: 'subscription_limit',
    meaning: 'Too many subscriptions on one connection.',
    remedy: 'Subscribe to a pattern with `*` or `**` in place of many topics.',
    retryable: false,
    action: 'retry',
    status: 429,
    close: null,
    error: 'LimitExceeded',
    scope: 'wire',
  },
  {
    code: 'slow_consumer',
    meaning: 'The client read too slowly and its queue on the server was full.',
    remedy:
      'Read faster, subscribe to less, or move work out of the reader; what was missed is replayed from history.',
    retryable: true,
    action: 'retry',
    status: null,
    close: 4500,
    error: 'SlowConsumer',
    scope: 'wire',
  },
  {
    code: 'idle_timeout',
    meaning: 'Nothing was heard from the client for 30 seconds.',
    remedy: 'Let the client send its pings; check for a suspended process or machine.',
    retryable: true,
    action: 'retry',
    status: null,
    close: 4408,
    error: 'ConnectionFailed',
    scope: 'wire',
  },
  {
    code: 'unsupported',
    meaning: 'The server does not know this frame type or feature.',
    remedy: 'Check the `features` of `auth.ok`.',
    retryable: false,
    action: 'retry',
    status: 400,
    close: null,
    error: 'Unsupported',
    scope: 'wire',
  },
  {
    code: 'unavailable',
    meaning: 'The server cannot do this at the moment.',
    remedy: 'Try again after `retry_after`.',
    retryable: true,
    action: 'retry',
    status: 503,
    close: 1013,
    error: 'Unavailable',
    scope: 'wire',
  },
  {
    code: 'going_away',
    meaning: 'The server is shutting down.',
    remedy: 'The client reconnects by itself.',
    retryable: true,
    action: 'retry',
    status: 503,
    close: 1001,
    error: 'ConnectionFailed',
    scope: 'wire',
  },
  {
    code: 'internal',
    meaning: 'The server failed.',
    remedy: "Try again; look into the server's log for this time.",
    retryable: true,
    action: 'retry',
    status: 500,
    close: 1011,
    error: 'Unavailable',
    scope: 'wire',
  },
  {
    code: 'connection_failed',
    meaning: 'The server could not be reached.',
    remedy: 'Check the URL and the network; `hanzo-pubsub doctor` finds the first cause.',
    retryable: true,
    action: 'retry',
    status: null,
    close: null,
    error: 'ConnectionFailed',
    scope: 'client',
  },
  {
    code: 'not_connected',
    meaning: 'There is no connection for this operation.',
    remedy: 'Wait for the state `connected`, or use the REST form of the operation.',
    retryable: true,
    action: 'retry',
    status: null,
    close: null,
    error: 'ConnectionFailed',
    scope: 'client',
  },
  {
    code: 'auth_refused',
    meaning: 'The token callback refused to give a token.',
    remedy: 'Log in again and build a new client.',
    retryable: false,
    action: 'stop',
    status: null,
    close: null,
    error: 'AuthRefused',
    scope: 'client',
  },
  {
    code: 'token_unavailable',
    meaning: 'The token callback failed.',
    remedy: 'See the cause; raise AuthRefused in the callback to stop for good.',
    retryable: true,
    action: 'retry',
    status: null,
    close: null,
    error: 'AuthError',
    scope: 'client',
  },
  {
    code: 'timeout',
    meaning:
      'No answer came in time; whether the operation took effect is unknown where `outcome_unknown` says so.',
    remedy: 'Try again with the same message id; the server publishes an id once.',
    retryable: true,
    action: 'retry',
    status: null,
    close: null,
    error: 'OperationTimeout',
    scope: 'client',
  },
  {
    code: 'outcome_unknown',
    meaning: 'The connection ended after the message was sent and before the answer came.',
    remedy: 'Publish again with the same message id; the server publishes an id once.',
    retryable: true,
    action: 'retry',
    status: null,
    close: null,
    error: 'OperationTimeout',
    scope: 'client',
  },
  {
    code: 'queue_full',
    meaning: 'The queue of unsent publishes is full.',
    remedy:
      'Await each publish, raise `send_queue`, or choose the policy `block`, `drop_oldest` or `latest`.',
    retryable: true,
    action: 'retry',
    status: null,
    close: null,
    error: 'QueueFull',
    scope: 'client',
  },
  {
    code: 'dropped',
    meaning: 'The message was dropped from the full queue of unsent publishes, as its policy says.',
    remedy: 'Choose the policy `block` to lose nothing.',
    retryable: true,
    action: 'retry',
    status: null,
    close: null,
    error: 'QueueFull',
    scope: 'client',
  },
  {
    code: 'superseded',
    meaning: 'A newer message with the same key took its place before it was sent.',
    remedy: 'None is needed: this is the policy `latest`.',
    retryable: false,
    action: 'retry',
    status: null,
    close: null,
    error: 'Superseded',
    scope: 'client',
  },
  {
    code: 'insecure_url',
    meaning: 'A token would be sent over an unencrypted connection.',
    remedy: 'Use wss:// or https://, or pass `allow_insecure=True` on a trusted network.',
    retryable: false,
    action: 'stop',
    status: null,
    close: null,
    error: 'InsecureUrl',
    scope: 'client',
  },
  {
    code: 'closed',
    meaning: 'The client is closed.',
    remedy: 'Build a new client.',
    retryable: false,
    action: 'stop',
    status: null,
    close: null,
    error: 'ClosedError',
    scope: 'client',
  },
  {
    code: 'wrong_loop',
    meaning: 'The client is used in another event loop than the one it runs in.',
    remedy: 'Use one client a loop, or the blocking client `PubSub`.',
    retryable: false,
    action: 'stop',
    status: null,
    close: null,
    error: 'UsageError',
    scope: 'client',
  },
];

/** Error records by code. */
export const CODES: ReadonlyMap<string, ErrorRecord> = new Map(
  records.map((record) => [record.code, record]),
);

/** Close codes from `first` to `last`, both included, and what follows from them. */
export interface CloseRange {
  readonly first: number;
  readonly last: number;
  readonly action: CloseAction;
  readonly meaning: string;
}

/** Close codes in ascending order; they cover 1000 to 4999 without a hole. */
export const CLOSE_CODES: readonly CloseRange[] = [
  {
    first: 1000,
    last: 1000,
    action: 'retry',
    meaning: 'Closed normally by the server, though the client did not ask.',
  },
  { first: 1001, last: 1001, action: 'retry', meaning: 'The server goes away.' },
  { first: 1002, last: 1002, action: 'retry', meaning: 'Protocol error.' },
  {
    first: 1003,
    last: 1003,
    action: 'stop',
    meaning: 'The server does not take this kind of data.',
  },
  { first: 1004, last: 1006, action: 'retry', meaning: 'The connection was lost.' },
  { first: 1007, last: 1007, action: 'retry', meaning: 'Inconsistent data.' },
  {
    first: 1008,
    last: 1008,
    action: 'reauth',
    meaning: 'Policy violation; many gateways say it for a missing or bad token.',
  },
  { first: 1009, last: 1009, action: 'retry', meaning: 'A frame was too large.' },
  { first: 1010, last: 1010, action: 'stop', meaning: 'The server lacks an extension.' },
  {
    first: 1011,
    last: 1015,
    action: 'retry',
    meaning: 'The server failed, restarts, is overloaded, or TLS failed.',
  },
  { first: 1016, last: 2999, action: 'retry', meaning: 'Reserved.' },
  { first: 3000, last: 3000, action: 'reauth', meaning: 'Unauthorized (IANA registry).' },
  { first: 3001, last: 3002, action: 'retry', meaning: 'Registered elsewhere.' },
  { first: 3003, last: 3003, action: 'stop', meaning: 'Forbidden (IANA registry).' },
  { first: 3004, last: 3999, action: 'retry', meaning: 'Registered elsewhere.' },
  { first: 4000, last: 4399, action: 'retry', meaning: 'Unknown to this protocol.' },
  { first: 4400, last: 4400, action: 'retry', meaning: 'The server could not read what was sent.' },
  {
    first: 4401,
    last: 4401,
    action: 'reauth',
    meaning: 'Authentication failed, timed out or ran out.',
  },
  { first: 4402, last: 4402, action: 'retry', meaning: 'Unknown to this protocol.' },
  { first: 4403, last: 4403, action: 'stop', meaning: 'Forbidden.' },
  { first: 4404, last: 4407, action: 'retry', meaning: 'Unknown to this protocol.' },
  {
    first: 4408,
    last: 4408,
    action: 'retry',
    meaning: 'Nothing was heard from the client for too long.',
  },
  { first: 4409, last: 4409, action: 'stop', meaning: "Another connection took this one's place." },
  { first: 4410, last: 4412, action: 'retry', meaning: 'Unknown to this protocol.' },
  { first: 4413, last: 4413, action: 'retry', meaning: 'A frame was too large.' },
  { first: 4414, last: 4428, action: 'retry', meaning: 'Unknown to this protocol.' },
  { first: 4429, last: 4429, action: 'retry', meaning: 'A limit was exceeded.' },
  { first: 4430, last: 4499, action: 'retry', meaning: 'Unknown to this protocol.' },
  { first: 4500, last: 4500, action: 'retry', meaning: 'The client read too slowly.' },
  { first: 4501, last: 4999, action: 'retry', meaning: 'Unknown to this protocol.' },
];

const lost: CloseRange = {
  first: 1006,
  last: 1006,
  action: 'retry',
  meaning: 'The connection was lost.',
};

/** The row for a close code; none, or one outside 1000-4999, counts as 1006. */
export function closeRange(code: number | undefined): CloseRange {
  if (code === undefined) return lost;
  return CLOSE_CODES.find(({ first, last }) => first <= code && code <= last) ?? lost;
}

/** What a client does after its socket closed with this code. */
export function closeAction(code: number | undefined): CloseAction {
  return closeRange(code).action;
}
