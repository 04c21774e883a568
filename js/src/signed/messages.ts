/** The items that a signed topic yields. */

import type { InvalidPayload } from '../errors.js';
import type { Gap, Message } from '../values.js';

/** A verified message, signed by the topic's owner. */
export interface SignedMessage {
  /** The signed bytes, at most 4,096. */
  readonly payload: Uint8Array;
  /** The payload as JSON: an object or array, a string, or `{"$base64": "…"}`. */
  readonly data: unknown;
  /** Address of the signer, 20 bytes. */
  readonly owner: Uint8Array;
  /** Signature, span and payload, for verification by others. */
  readonly frame: Uint8Array;
  /** The message that carried it; undefined on a WebSocket of the topic. */
  readonly message: Message | undefined;
}

/** A message without a valid signature of the topic's owner. */
export interface Forged {
  /** The reason; `error.field` names the invalid part. */
  readonly error: InvalidPayload;
  /** As received: a JSON value, or bytes from a WebSocket. */
  readonly data: unknown;
  /** The message that carried it; undefined on a WebSocket of the topic. */
  readonly message: Message | undefined;
}

/** The items of `events`, in order. */
export type SignedEvent =
  | ({ readonly kind: 'message' } & SignedMessage)
  | ({ readonly kind: 'forged' } & Forged)
  | { readonly kind: 'gap'; readonly gap: Gap };
