/**
 * Every error of the SDK.
 *
 *     PubSubError                      code, message, remedy, retryable, topic, field, retryAfter
 *     ├── ConnectionFailed
 *     ├── OperationTimeout             outcomeUnknown, id
 *     ├── AuthError                    no token, or one that the server does not accept
 *     │   ├── TokenExpired
 *     │   └── AuthRefused              throw it in `getToken` to stop for good
 *     ├── PermissionDenied
 *     ├── LimitExceeded
 *     │   └── ConnectionLimit
 *     ├── RateLimited                  retryAfter
 *     ├── SlowConsumer
 *     ├── QueueFull                    the bounded queue of unsent publishes
 *     ├── Superseded                   policy `latest`: a newer message took its place
 *     ├── InvalidTopic
 *     ├── InvalidPayload
 *     ├── PayloadTooLarge              size, limit
 *     ├── InvalidOption                field
 *     │   └── InsecureUrl
 *     ├── NotFound
 *     ├── Conflict
 *     ├── ProtocolError
 *     ├── Unsupported
 *     ├── Unavailable
 *     ├── ClosedError
 *     └── UsageError
 *
 * `code` is one of `spec/errors.yaml`, or one of a later server; meaning, remedy and `retryable`
 * come from there. Every class but `PubSubError` itself knows its usual code, so that
 * `new InvalidTopic('a..b has an empty segment')` says it all; `fromCode` builds the class that
 * belongs to a code.
 */

import { CODES, type Code, type ErrorName } from './generated/errors.js';

/** Characters kept of a message: what a server sends is shown to people and written to logs. */
const MESSAGE_MAX = 2_000;

/** What an error may tell beyond its message. */
export interface ErrorDetails {
  /** What to do about it; default that of the code. */
  readonly remedy?: string | undefined;
  /** The topic or pattern it concerns. */
  readonly topic?: string | undefined;
  /** The option, parameter or member of the payload at fault. */
  readonly field?: string | undefined;
  /** Earliest time to try again, milliseconds from when it was thrown. */
  readonly retryAfter?: number | undefined;
  /** The error that led to it. */
  readonly cause?: unknown;
}

/** Likewise, of a class that knows its usual code. */
export interface CodedDetails extends ErrorDetails {
  /** Default that of the class. */
  readonly code?: string | undefined;
}

/** Anything that went wrong in Hanzo PubSub. */
export class PubSubError extends Error {
  declare readonly name: ErrorName | 'PubSubError';
  /** What went wrong, for programs; `spec/errors.yaml` lists them. */
  readonly code: Code | (string & {});
  /** What to do about it; empty for a code that this version does not know. */
  readonly remedy: string;
  /** Whether the same call may succeed later, unchanged. */
  readonly retryable: boolean;
  /** The topic or pattern it concerns. */
  readonly topic: string | undefined;
  /** The option, parameter or member of the payload at fault. */
  readonly field: string | undefined;
  /** Earliest time to try again, milliseconds from when it was thrown. */
  readonly retryAfter: number | undefined;

  static {
    named(PubSubError, 'PubSubError');
  }

  constructor(code: string, message?: string, details: ErrorDetails = {}) {
    const known = CODES.get(code);
    const { cause } = details;
    super(
      shorten(message || (known?.meaning ?? `Error \`${code}\`.`)),
      cause === undefined ? undefined : { cause },
    );
    this.code = code;
    this.remedy = shorten(details.remedy ?? known?.remedy ?? '');
    this.retryable = known?.retryable ?? false;
    this.topic = details.topic;
    this.field = details.field;
    this.retryAfter = details.retryAfter;
  }

  override toString(): string {
    if (!this.remedy) return `${this.name}: ${this.message}`;
    const stop = /[.!?]$/.test(this.message) ? '' : '.';
    return `${this.name}: ${this.message}${stop} ${this.remedy}`;
  }
}

/** An error whose class tells the code, so that the message comes first. */
class CodedError extends PubSubError {
  declare readonly usualCode: Code;

  constructor(message?: string, details: CodedDetails = {}) {
    super(details.code ?? new.target.prototype.usualCode, message, details);
  }
}

/** The server could not be reached, or the connection ended. */
export class ConnectionFailed extends CodedError {
  declare readonly name: 'ConnectionFailed';
  static {
    named(ConnectionFailed, 'ConnectionFailed', 'connection_failed');
  }
}

/** No answer came in time, or the connection ended before it. */
export class OperationTimeout extends CodedError {
  declare readonly name: 'OperationTimeout';
  /** Whether the server may have done it all the same. */
  readonly outcomeUnknown: boolean;
  /** The message id of a publish; publishing again with it is safe where the server has
   * `idempotency`. */
  readonly id: string | undefined;

  static {
    named(OperationTimeout, 'OperationTimeout', 'timeout');
  }

  constructor(
    message?: string,
    details: CodedDetails & {
      readonly outcomeUnknown?: boolean | undefined;
      readonly id?: string | undefined;
    } = {},
  ) {
    super(message, details);
    this.outcomeUnknown = details.outcomeUnknown ?? this.code === 'outcome_unknown';
    this.id = details.id;
  }
}

/** No valid token was presented. */
export class AuthError extends CodedError {
  declare readonly name: 'AuthError' | 'TokenExpired' | 'AuthRefused';
  static {
    named(AuthError, 'AuthError', 'unauthenticated');
  }
}

/** The token has expired and cannot be renewed. */
export class TokenExpired extends AuthError {
  declare readonly name: 'TokenExpired';
  static {
    named(TokenExpired, 'TokenExpired', 'token_expired');
  }
}

/** The token callback refuses to give a token: throw it there to stop the client for good. */
export class AuthRefused extends AuthError {
  declare readonly name: 'AuthRefused';
  static {
    named(AuthRefused, 'AuthRefused', 'auth_refused');
  }
}

/** The access rules do not allow this identity to do that. */
export class PermissionDenied extends CodedError {
  declare readonly name: 'PermissionDenied';
  static {
    named(PermissionDenied, 'PermissionDenied', 'forbidden');
  }
}

/** A limit of the server was exceeded. */
export class LimitExceeded extends CodedError {
  declare readonly name: 'LimitExceeded' | 'ConnectionLimit';
  static {
    named(LimitExceeded, 'LimitExceeded', 'subscription_limit');
  }
}

/** Too many connections of this user or organization. */
export class ConnectionLimit extends LimitExceeded {
  declare readonly name: 'ConnectionLimit';
  static {
    named(ConnectionLimit, 'ConnectionLimit', 'connection_limit');
  }
}

/** More publishes a second than allowed; see `retryAfter`. */
export class RateLimited extends CodedError {
  declare readonly name: 'RateLimited';
  static {
    named(RateLimited, 'RateLimited', 'rate_limited');
  }
}

/** The client read too slowly for the server's queue. */
export class SlowConsumer extends CodedError {
  declare readonly name: 'SlowConsumer';
  static {
    named(SlowConsumer, 'SlowConsumer', 'slow_consumer');
  }
}

/** The bounded queue of unsent publishes is full, or dropped this message as its policy says. */
export class QueueFull extends CodedError {
  declare readonly name: 'QueueFull';
  static {
    named(QueueFull, 'QueueFull', 'queue_full');
  }
}

/** A newer message with the same key took this one's place before it was sent. */
export class Superseded extends CodedError {
  declare readonly name: 'Superseded';
  static {
    named(Superseded, 'Superseded', 'superseded');
  }
}

/** A topic or pattern is not valid. */
export class InvalidTopic extends CodedError {
  declare readonly name: 'InvalidTopic';
  static {
    named(InvalidTopic, 'InvalidTopic', 'invalid_topic');
  }
}

/** The payload cannot be sent as JSON; `field` is the path of the culprit inside it. */
export class InvalidPayload extends CodedError {
  declare readonly name: 'InvalidPayload';
  static {
    named(InvalidPayload, 'InvalidPayload', 'invalid_payload');
  }
}

/** The payload is over the limit. */
export class PayloadTooLarge extends CodedError {
  declare readonly name: 'PayloadTooLarge';
  /** Bytes of the JSON-encoded `data`, where known. */
  readonly size: number | undefined;
  /** Bytes allowed, where known. */
  readonly limit: number | undefined;

  static {
    named(PayloadTooLarge, 'PayloadTooLarge', 'payload_too_large');
  }

  constructor(
    message?: string,
    details: CodedDetails & {
      readonly size?: number | undefined;
      readonly limit?: number | undefined;
    } = {},
  ) {
    const { size, limit } = details;
    super(
      message === undefined && size !== undefined && limit !== undefined
        ? `The payload has ${grouped(size)} bytes of JSON; the limit is ${grouped(limit)}.`
        : message,
      details,
    );
    this.size = size;
    this.limit = limit;
  }
}

/** An option or parameter has a wrong type or value; `field` names it. */
export class InvalidOption extends CodedError {
  declare readonly name: 'InvalidOption' | 'InsecureUrl';
  static {
    named(InvalidOption, 'InvalidOption', 'invalid_option');
  }
}

/** A token would be sent over an unencrypted connection. */
export class InsecureUrl extends InvalidOption {
  declare readonly name: 'InsecureUrl';
  static {
    named(InsecureUrl, 'InsecureUrl', 'insecure_url');
  }
}

/** There is nothing at this address. */
export class NotFound extends CodedError {
  declare readonly name: 'NotFound';
  static {
    named(NotFound, 'NotFound', 'not_found');
  }
}

/** The message id was used before for another payload. */
export class Conflict extends CodedError {
  declare readonly name: 'Conflict';
  static {
    named(Conflict, 'Conflict', 'conflict');
  }
}

/** One side sent something that the other cannot read. */
export class ProtocolError extends CodedError {
  declare readonly name: 'ProtocolError';
  static {
    named(ProtocolError, 'ProtocolError', 'invalid_frame');
  }
}

/** The server does not know this frame type or feature. */
export class Unsupported extends CodedError {
  declare readonly name: 'Unsupported';
  static {
    named(Unsupported, 'Unsupported', 'unsupported');
  }
}

/** The server cannot do this at the moment. */
export class Unavailable extends CodedError {
  declare readonly name: 'Unavailable';
  static {
    named(Unavailable, 'Unavailable', 'unavailable');
  }
}

/** The client is closed. */
export class ClosedError extends CodedError {
  declare readonly name: 'ClosedError';
  static {
    named(ClosedError, 'ClosedError', 'closed');
  }
}

/** The client is used in a way it cannot work. */
export class UsageError extends CodedError {
  declare readonly name: 'UsageError';
  static {
    named(UsageError, 'UsageError', 'wrong_loop');
  }
}

/** Error class by the name that `spec/errors.yaml` gives it. */
export const CLASSES: Readonly<
  Record<ErrorName, new (message?: string, details?: CodedDetails) => PubSubError>
> = {
  ConnectionFailed,
  OperationTimeout,
  AuthError,
  TokenExpired,
  AuthRefused,
  PermissionDenied,
  LimitExceeded,
  ConnectionLimit,
  RateLimited,
  SlowConsumer,
  QueueFull,
  Superseded,
  InvalidTopic,
  InvalidPayload,
  PayloadTooLarge,
  InvalidOption,
  InsecureUrl,
  NotFound,
  Conflict,
  ProtocolError,
  Unsupported,
  Unavailable,
  ClosedError,
  UsageError,
};

/**
 * Build the error that belongs to a code.
 *
 * @param code Of `spec/errors.yaml`; any other gives a plain `PubSubError`, not retryable.
 * @param message What went wrong; default the code's meaning.
 */
export function fromCode(code: string, message?: string, details: ErrorDetails = {}): PubSubError {
  const known = CODES.get(code);
  if (known === undefined) return new PubSubError(code, message, details);
  return new CLASSES[known.error](message, { ...details, code });
}

/** A name on the prototype is there when the stack is written, and outlives minifiers. */
function named(
  { prototype }: { readonly prototype: PubSubError },
  name: ErrorName | 'PubSubError',
  usualCode?: Code,
): void {
  Object.defineProperty(prototype, 'name', { value: name, writable: true, configurable: true });
  if (usualCode) Object.defineProperty(prototype, 'usualCode', { value: usualCode });
}

function grouped(number: number): string {
  return number.toLocaleString('en-US');
}

function shorten(text: string): string {
  if (text.length <= MESSAGE_MAX) return text;
  const points = Array.from(text.slice(0, 2 * MESSAGE_MAX + 2));
  return points.length <= MESSAGE_MAX ? text : `${points.slice(0, MESSAGE_MAX).join('')}…`;
}
