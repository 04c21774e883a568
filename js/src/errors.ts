/**
 * Every error of the SDK.
 *
 *     PubSubError                      code, message, remedy, retryable, topic, field, retryAfter,
 *                                      docs
 *     ├── ConnectionFailed
 *     ├── OperationTimeout             outcomeUnknown, id
 *     │   └── RequestTimeout           no reply to a request
 *     ├── ReplyError                   the error of a responder; throw it there; data
 *     ├── AuthError                    no token, or one that the server does not accept
 *     │   ├── TokenExpired
 *     │   └── AuthRefused              throw it in `getToken` to stop permanently
 *     ├── PermissionDenied
 *     ├── LimitExceeded
 *     │   └── ConnectionLimit
 *     ├── RateLimited                  retryAfter
 *     ├── SlowConsumer
 *     ├── MessagesMissed               `onGap: 'raise'`: messages can no longer be delivered; gap
 *     ├── QueueFull                    the bounded queue of unsent publishes
 *     ├── Superseded                   policy `latest`: a newer message took its place
 *     ├── InvalidTopic
 *     ├── InvalidPayload
 *     ├── SchemaError                  id: a payload that its schema does not allow
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
 * `code` is one of `spec/errors.yaml`, or one of a later server; remedy and `retryable` come from
 * there. Every class but `PubSubError` itself knows its usual code, so that
 * `new InvalidTopic('a..b has an empty segment')` needs no code. `fromCode` builds the class that
 * belongs to a code.
 */

import { DEVELOPMENT } from './build.js';
import { compact } from './compact.js';
import { explain, shorten } from './error_text.js';
import type { Gap } from './gap.js';
import { CODES, type Code, type ErrorName } from './generated/errors.js';

/** Separators of words and topics in a message. */
const SEPARATORS = /[^\w.*-]+|\.(?![\w*-])/;

/** Details of an error in addition to its message. */
export interface ErrorDetails {
  /** What to do about it; default: the remedy of the code. */
  readonly remedy?: string | undefined;
  /** The topic or pattern that it is about. */
  readonly topic?: string | undefined;
  /** The invalid option, parameter or member of the payload. */
  readonly field?: string | undefined;
  /** Earliest time to try again, milliseconds from when it was thrown. */
  readonly retryAfter?: number | undefined;
  /** The error that led to it. */
  readonly cause?: unknown;
}

/** Details of an error whose class has a usual code. */
export interface CodedDetails extends ErrorDetails {
  /** Default: the code of the class. */
  readonly code?: string | undefined;
}

/** Base class of all errors of Hanzo PubSub. */
export class PubSubError extends Error {
  declare readonly name: ErrorName | 'PubSubError';
  /** Identifies the problem for programs; `spec/errors.yaml` lists all codes. */
  readonly code: Code | (string & {});
  /** How to fix it; empty for a code that this version does not know. */
  readonly remedy: string;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  /** The topic or pattern that it is about. */
  declare readonly topic: string | undefined;
  /** The invalid option, parameter or member of the payload. */
  declare readonly field: string | undefined;
  /** Earliest time to try again, milliseconds from when it was thrown. */
  declare readonly retryAfter: number | undefined;

  constructor(code: string, message?: string, details: ErrorDetails = {}) {
    const { remedy, cause, ...fields } = details;
    const { field } = fields;
    const known = CODES.get(code);
    const usual = !DEVELOPMENT && field ? `\`${field}\` is not valid.` : `Error \`${code}\`.`;
    const text = message || (DEVELOPMENT && known?.meaning ? known.meaning : usual);
    const lacks =
      DEVELOPMENT &&
      fields.topic &&
      new.target.prototype.name === 'PermissionDenied' &&
      !text.split(SEPARATORS).includes(fields.topic);
    const short = shorten(lacks ? `${text.replace(/\.$/, '')} (topic ${fields.topic}).` : text);
    const help = shorten(remedy ?? known?.remedy ?? '');
    super(short, cause === undefined ? undefined : { cause });
    // An uncaught error shows the stack. Chromium replaces what precedes the frames by `message`.
    if (DEVELOPMENT) this.stack = `${this.stack}\n${explain(short, help, code)}`;
    // Loggers print fields that are undefined, too.
    Object.assign(this, DEVELOPMENT ? compact(fields) : fields);
    this.code = code;
    this.remedy = help;
    this.retryable = !!known?.retryable;
  }

  /** Address of the description of the code; empty if this version does not know it. */
  get docs(): string {
    return CODES.get(this.code)?.docs ?? '';
  }

  override toString(): string {
    return `${this.name}: ${explain(this.message, this.remedy, this.code)}`;
  }
}

// Not in a static block, because Metro does not bundle them by default.
named(PubSubError, 'PubSubError');

/** An error whose class determines the code, so that the message comes first. */
class CodedError extends PubSubError {
  constructor(message?: string, details: CodedDetails = {}) {
    super(details.code ?? usualCode(new.target.prototype.name), message, details);
  }
}

/** The class of an error. */
export interface ErrorClass<E extends PubSubError, Details = unknown> {
  readonly prototype: E;
  new (message?: string, details?: CodedDetails & Details): E;
}

/** Details of a timeout in addition to its message. */
export interface TimeoutDetails {
  /** Whether the operation may have taken effect. */
  readonly outcomeUnknown?: boolean | undefined;
  /** Id of the message or request. */
  readonly id?: string | undefined;
}

/** Details of a payload that is too large, in addition to its message. */
export interface SizeDetails {
  /** Bytes of the JSON-encoded `data`, if known. */
  readonly size?: number | undefined;
  /** Maximum bytes, if known. */
  readonly limit?: number | undefined;
}

/** No answer arrived in time, or the connection was lost before it. */
export class OperationTimeout extends CodedError {
  declare readonly name: 'OperationTimeout' | 'RequestTimeout';
  /** Whether the operation may have taken effect. */
  readonly outcomeUnknown: boolean;
  /**
   * The message id of a publish. You can publish again with it if the server supports
   * `idempotency`.
   */
  declare readonly id: string | undefined;

  constructor(message?: string, details: CodedDetails & TimeoutDetails = {}) {
    super(message, details);
    this.outcomeUnknown = details.outcomeUnknown ?? this.code === 'outcome_unknown';
  }
}

/** Classes with another base class than `PubSubError`. */
const parents: Partial<Record<ErrorName, ErrorName>> = {
  TokenExpired: 'AuthError',
  AuthRefused: 'AuthError',
  ConnectionLimit: 'LimitExceeded',
  InsecureUrl: 'InvalidOption',
  RequestTimeout: 'OperationTimeout',
};

const classes: Partial<Record<ErrorName, typeof CodedError>> = {
  OperationTimeout: named(OperationTimeout, 'OperationTimeout'),
};

/** The class of a name, created at the first use. */
function classOf<E extends PubSubError, D = unknown>(name: ErrorName): ErrorClass<E, D> {
  const parent = parents[name];
  classes[name] ??= named(
    class extends ((parent ? classOf(parent) : CodedError) as typeof CodedError) {},
    name,
  );
  return classes[name] as never;
}

/**
 * The name on the prototype is available when the stack is written, and survives minifiers; the
 * name of the class is for inspectors.
 */
function named<T extends { readonly prototype: PubSubError }>(Class: T, name: string): T {
  for (const one of [Class, Class.prototype]) Object.defineProperty(one, 'name', { value: name });
  return Class;
}

/** The server could not be reached, or the connection ended. */
export const ConnectionFailed: ErrorClass<ConnectionFailed> =
  /* @__PURE__ */ classOf('ConnectionFailed');
export interface ConnectionFailed extends PubSubError {
  readonly name: 'ConnectionFailed';
}

/** No reply arrived within the timeout of a request; `id` is the id of the request. */
export const RequestTimeout: ErrorClass<RequestTimeout, TimeoutDetails> =
  /* @__PURE__ */ classOf('RequestTimeout');
export interface RequestTimeout extends OperationTimeout {
  readonly name: 'RequestTimeout';
}

/**
 * The error with which a responder answers a request.
 *
 * Throw it in the handler of `respond` with your own `code`; `request` then throws it with the same
 * code, message and data. The code `responder_failed` represents any other exception of the
 * handler.
 */
export const ReplyError: ErrorClass<ReplyError, { readonly data?: unknown }> =
  /* @__PURE__ */ classOf('ReplyError');
export interface ReplyError extends PubSubError {
  readonly name: 'ReplyError';
  /** JSON that the responder added, or undefined. */
  readonly data: unknown;
}

/** No valid token was presented. */
export const AuthError: ErrorClass<AuthError> = /* @__PURE__ */ classOf('AuthError');
export interface AuthError extends PubSubError {
  readonly name: 'AuthError' | 'TokenExpired' | 'AuthRefused';
}

/** The token has expired and cannot be renewed. */
export const TokenExpired: ErrorClass<TokenExpired> = /* @__PURE__ */ classOf('TokenExpired');
export interface TokenExpired extends AuthError {
  readonly name: 'TokenExpired';
}

/** The token callback refuses to return a token: throw it there to stop the client. */
export const AuthRefused: ErrorClass<AuthRefused> = /* @__PURE__ */ classOf('AuthRefused');
export interface AuthRefused extends AuthError {
  readonly name: 'AuthRefused';
}

/** The access rules do not allow this operation; the message names the topic. */
export const PermissionDenied: ErrorClass<PermissionDenied> =
  /* @__PURE__ */ classOf('PermissionDenied');
export interface PermissionDenied extends PubSubError {
  readonly name: 'PermissionDenied';
}

/** A limit of the server was exceeded. */
export const LimitExceeded: ErrorClass<LimitExceeded> = /* @__PURE__ */ classOf('LimitExceeded');
export interface LimitExceeded extends PubSubError {
  readonly name: 'LimitExceeded' | 'ConnectionLimit';
}

/** Too many connections of this user or organization. */
export const ConnectionLimit: ErrorClass<ConnectionLimit> =
  /* @__PURE__ */ classOf('ConnectionLimit');
export interface ConnectionLimit extends LimitExceeded {
  readonly name: 'ConnectionLimit';
}

/** More publishes per second than allowed; see `retryAfter`. */
export const RateLimited: ErrorClass<RateLimited> = /* @__PURE__ */ classOf('RateLimited');
export interface RateLimited extends PubSubError {
  readonly name: 'RateLimited';
}

/** The client read too slowly for the server's queue. */
export const SlowConsumer: ErrorClass<SlowConsumer> = /* @__PURE__ */ classOf('SlowConsumer');
export interface SlowConsumer extends PubSubError {
  readonly name: 'SlowConsumer';
}

/**
 * Messages of a topic can no longer be delivered.
 *
 * An iteration throws it if `subscribe` was called with `onGap: 'raise'`. The subscription
 * continues: iterate again to receive the messages after the gap.
 */
export const MessagesMissed: ErrorClass<MessagesMissed> = /* @__PURE__ */ classOf('MessagesMissed');
export interface MessagesMissed extends PubSubError {
  readonly name: 'MessagesMissed';
  /** The missing messages, and the reason. */
  readonly gap: Gap;
}

/** The bounded queue of unsent publishes is full, or its policy dropped this message. */
export const QueueFull: ErrorClass<QueueFull> = /* @__PURE__ */ classOf('QueueFull');
export interface QueueFull extends PubSubError {
  readonly name: 'QueueFull';
}

/** A newer message with the same key replaced this one before it was sent. */
export const Superseded: ErrorClass<Superseded> = /* @__PURE__ */ classOf('Superseded');
export interface Superseded extends PubSubError {
  readonly name: 'Superseded';
}

/** A topic or pattern is not valid. */
export const InvalidTopic: ErrorClass<InvalidTopic> = /* @__PURE__ */ classOf('InvalidTopic');
export interface InvalidTopic extends PubSubError {
  readonly name: 'InvalidTopic';
}

/** The payload cannot be sent as JSON; `field` is the path of the invalid member. */
export const InvalidPayload: ErrorClass<InvalidPayload> = /* @__PURE__ */ classOf('InvalidPayload');
export interface InvalidPayload extends PubSubError {
  readonly name: 'InvalidPayload';
}

/**
 * A payload does not match the schema or the contract of its topic.
 *
 * `topic` names the topic, and `field` is the path of the first invalid member, such as
 * `data.items[0].sku`.
 */
export const SchemaError: ErrorClass<SchemaError, { readonly id?: string | undefined }> =
  /* @__PURE__ */ classOf('SchemaError');
export interface SchemaError extends PubSubError {
  readonly name: 'SchemaError';
  /** Id of the message that was received; undefined for one that was not published. */
  readonly id: string | undefined;
  /** What the library of a `typedTopic` reports; it may contain values of the payload. */
  readonly issues: readonly { readonly message: string }[] | undefined;
}

/** The payload is larger than the limit. */
export const PayloadTooLarge: ErrorClass<PayloadTooLarge, SizeDetails> =
  /* @__PURE__ */ classOf('PayloadTooLarge');
export interface PayloadTooLarge extends PubSubError, SizeDetails {
  readonly name: 'PayloadTooLarge';
}

/** An option or parameter has a wrong type or value; `field` names it. */
export const InvalidOption: ErrorClass<InvalidOption> = /* @__PURE__ */ classOf('InvalidOption');
export interface InvalidOption extends PubSubError {
  readonly name: 'InvalidOption' | 'InsecureUrl';
}

/** A token would be sent over an unencrypted connection. */
export const InsecureUrl: ErrorClass<InsecureUrl> = /* @__PURE__ */ classOf('InsecureUrl');
export interface InsecureUrl extends InvalidOption {
  readonly name: 'InsecureUrl';
}

/** The address does not exist. */
export const NotFound: ErrorClass<NotFound> = /* @__PURE__ */ classOf('NotFound');
export interface NotFound extends PubSubError {
  readonly name: 'NotFound';
}

/** The message id was already used for a different payload. */
export const Conflict: ErrorClass<Conflict> = /* @__PURE__ */ classOf('Conflict');
export interface Conflict extends PubSubError {
  readonly name: 'Conflict';
}

/** One side sent something that the other cannot read. */
export const ProtocolError: ErrorClass<ProtocolError> = /* @__PURE__ */ classOf('ProtocolError');
export interface ProtocolError extends PubSubError {
  readonly name: 'ProtocolError';
}

/** The server does not know this frame type or feature. */
export const Unsupported: ErrorClass<Unsupported> = /* @__PURE__ */ classOf('Unsupported');
export interface Unsupported extends PubSubError {
  readonly name: 'Unsupported';
}

/** The server cannot do this now. */
export const Unavailable: ErrorClass<Unavailable> = /* @__PURE__ */ classOf('Unavailable');
export interface Unavailable extends PubSubError {
  readonly name: 'Unavailable';
}

/** The client is closed. */
export const ClosedError: ErrorClass<ClosedError> = /* @__PURE__ */ classOf('ClosedError');
export interface ClosedError extends PubSubError {
  readonly name: 'ClosedError';
}

/** The program uses the client in a way that cannot work. */
export const UsageError: ErrorClass<UsageError> = /* @__PURE__ */ classOf('UsageError');
export interface UsageError extends PubSubError {
  readonly name: 'UsageError';
}

/**
 * Build the error that belongs to a code.
 *
 * @param code A code of `spec/errors.yaml`; any other gives a plain `PubSubError`, not retryable.
 * @param message The problem in words.
 */
export function fromCode(code: string, message?: string, details: ErrorDetails = {}): PubSubError {
  const known = CODES.get(code);
  if (!known) return new PubSubError(code, message, details);
  return new (classOf(known.error))(message, { ...details, code });
}

/** The code of a class: the first of its codes. */
function usualCode(name: string): string {
  for (const { code, error } of CODES.values()) if (error === name) return code;
  return '';
}
