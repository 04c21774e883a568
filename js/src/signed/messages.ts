/** What a signed topic yields. */

import type { InvalidPayload } from '../errors.js';
import type { Gap, Message } from '../values.js';

/** A message that the topic's owner has signed: verified here. */
export interface SignedMessage {
  /** What was signed, at most 4,096 bytes. */
  readonly payload: Uint8Array;
  /** The payload as JSON: an object or array, a string, or `{"$base64": "…"}`. */
  readonly data: unknown;
  /** Address of the signer, 20 bytes. */
  readonly owner: Uint8Array;
  /** Signature, span and payload, for others to verify. */
  readonly frame: Uint8Array;
  /** The message that carried it; undefined on a socket of its own. */
  readonly message: Message | undefined;
}

/** A message that is not proved: the topic's owner has not signed it, or not like this. */
export interface Forged {
  /** Why; `error.field` names the part. */
  readonly error: InvalidPayload;
  /** As received: a JSON value, or the bytes of a socket. */
  readonly data: unknown;
  /** The message that carried it; undefined on a socket of its own. */
  readonly message: Message | undefined;
}

/** What `events` yields, in order. */
export type SignedEvent =
  | ({ readonly kind: 'message' } & SignedMessage)
  | ({ readonly kind: 'forged' } & Forged)
  | { readonly kind: 'gap'; readonly gap: Gap };
