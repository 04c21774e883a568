/**
 * Signed messages: single-owner chunks (SOC), as Swarm's Bee nodes exchange them.
 *
 * A frame is `signature (65) ‖ span (8, little-endian) ‖ payload (0 … 4,096)`. The signature covers
 * a topic id of 32 bytes and the payload. With the id, a reader recovers the signer's address from
 * the frame, and `keccak256(id ‖ owner)` is the address of the topic. So a reader can prove who
 * wrote a message without trusting the servers in between. This module does no I/O.
 *
 *     const frame = sign(key, id, payload);
 *     const { owner } = verify(frame, id, topicAddress(id, ownerOf(key)));
 *
 * The signature is that of Ethereum's `personal_sign` over `keccak256(id ‖ address of the
 * payload)`. Everybody who has a signed frame can send it again; if that matters, put a counter or
 * a time into the payload.
 *
 * Needs `@noble/curves` and `@noble/hashes`: `npm i @noble/curves @noble/hashes`.
 */

import { secp256k1 } from '@noble/curves/secp256k1.js';
import { keccak_256 } from '@noble/hashes/sha3.js';

import { InvalidPayload } from './errors.js';
import { BASE64, bytesOf, jsonOf, textOf } from './payload_bytes.js';

type Bytes = Uint8Array<ArrayBuffer>;

/** Length of a topic id, a key and a topic address. */
export const ID_BYTES = 32;
/** Length of the address of an owner. */
export const OWNER_BYTES = 20;
/** Length of a signature. */
export const SIGNATURE_BYTES = 65;
/** Length of the parts before the payload. */
export const HEAD_BYTES = 73;
/** Maximum bytes of a payload. */
export const MAX_PAYLOAD = 4096;
/** Maximum bytes of a frame. */
export const MAX_FRAME = 4169;

const PREFIX = /* @__PURE__ */ new TextEncoder().encode('\x19Ethereum Signed Message:\n32');

/** The verified content of a frame. */
export interface Verified {
  /** Address of the signer, 20 bytes. */
  readonly owner: Uint8Array;
  /** The signed payload. */
  readonly payload: Uint8Array;
}

/** A signed message inside a HIP-56 topic. */
export interface SignedData {
  /** The claimed address of the signer, 20 bytes; not verified. */
  readonly owner: Uint8Array;
  /** Topic id, 32 bytes. */
  readonly id: Uint8Array;
  /** The frame, for `verify`. */
  readonly frame: Uint8Array;
}

/** The `data` of a message that carries a signed message. */
export interface SignedFields {
  readonly owner: string;
  readonly id: string;
  readonly signature: string;
  readonly payload: unknown;
}

/** The original Keccak-256, which differs from SHA3-256. */
export function keccak256(...parts: readonly Uint8Array[]): Uint8Array {
  return keccak_256(parts.length === 1 && parts[0] ? parts[0] : joined(parts));
}

/**
 * The address that belongs to a private key.
 *
 * @param key Private key, 32 bytes.
 * @throws InvalidPayload It is not a private key of secp256k1; `field` is `key`.
 */
export function ownerOf(key: Uint8Array): Uint8Array {
  check(key, 'key', ID_BYTES);
  if (!secp256k1.utils.isValidSecretKey(key)) throw badKey();
  return address(secp256k1.getPublicKey(key, false));
}

/**
 * The address of the topic with this id and owner, 32 bytes.
 *
 * @throws InvalidPayload An argument has the wrong length.
 */
export function topicAddress(id: Uint8Array, owner: Uint8Array): Uint8Array {
  return keccak256(check(id, 'id', ID_BYTES), check(owner, 'owner', OWNER_BYTES));
}

/**
 * The content address of a payload, 32 bytes.
 *
 * @throws InvalidPayload The payload has more than 4,096 bytes.
 */
export function cacAddress(payload: Uint8Array): Uint8Array {
  checkPayload(payload);
  // The tree has 128 leaves. Those beyond the payload are zero, so their roots are computed once.
  let nodes: Uint8Array[] = [];
  for (let at = 0; at < payload.length; at += 32) {
    const leaf = new Uint8Array(32);
    leaf.set(payload.subarray(at, at + 32));
    nodes.push(leaf);
  }
  let empty: Uint8Array = new Uint8Array(32);
  for (let height = 0; height < 7; height++) {
    if (nodes.length % 2) nodes.push(empty);
    const pairs = nodes.filter((_, at) => at % 2 === 0);
    nodes = pairs.map((left, at) => keccak256(left, nodes[2 * at + 1] ?? empty));
    empty = keccak256(empty, empty);
  }
  return keccak256(span(payload.length), nodes[0] ?? empty);
}

/**
 * The digest that a signer passes to `personal_sign` (EIP-191), 32 bytes.
 *
 * @throws InvalidPayload The id does not have 32 bytes, or the payload has more than 4,096.
 */
export function digest(id: Uint8Array, payload: Uint8Array): Uint8Array {
  return keccak256(check(id, 'id', ID_BYTES), cacAddress(payload));
}

/**
 * Sign a payload.
 *
 * @param key Private key, 32 bytes.
 * @param id Topic id, 32 bytes.
 * @param payload At most 4,096 bytes; may be empty.
 * @returns The frame.
 * @throws InvalidPayload An argument has the wrong length; `field` names it.
 */
export function sign(key: Uint8Array, id: Uint8Array, payload: Uint8Array): Uint8Array {
  check(key, 'key', ID_BYTES);
  const hashed = keccak256(PREFIX, digest(id, payload));
  if (!secp256k1.utils.isValidSecretKey(key)) throw badKey();
  const signed = secp256k1.sign(hashed, key, { prehash: false, format: 'recovered' });
  // The library of the curve puts the recovery id first.
  return frameOf(joined([signed.subarray(1), Uint8Array.of(27 + (signed[0] ?? 0))]), payload);
}

/**
 * Build the frame of a payload that an external signer has signed.
 *
 * @param signature r, s and v, 65 bytes. v is 27 or 28; the 0 or 1 of some wallets is converted.
 * @param payload The payload whose `digest` was signed.
 * @throws InvalidPayload An argument has the wrong length; `field` names it.
 */
export function frameOf(signature: Uint8Array, payload: Uint8Array): Uint8Array {
  check(signature, 'signature', SIGNATURE_BYTES);
  checkPayload(payload);
  const frame = joined([signature, span(payload.length), payload]);
  const v = frame[64] ?? 0;
  if (v < 2) frame[64] = v + 27;
  return frame;
}

/**
 * Recover the signer of a frame under this id. Every well-formed signature has a signer.
 *
 * @throws InvalidPayload The frame is truncated or too long, its span is not the length of its
 *   payload, or the signature has no signer; `field` names the part.
 */
export function recover(frame: Uint8Array, id: Uint8Array): Verified {
  check(id, 'id', ID_BYTES);
  if (frame.length < HEAD_BYTES || frame.length > MAX_FRAME)
    throw new InvalidPayload(`A signed frame has 73 to 4,169 bytes, not ${count(frame.length)}.`, {
      field: 'frame',
      remedy: 'Send exactly one frame: signature (65), span (8), payload (up to 4,096).',
    });
  const payload = frame.slice(HEAD_BYTES);
  const view = new DataView(frame.buffer, frame.byteOffset);
  const declared = view.getBigUint64(SIGNATURE_BYTES, true);
  if (declared !== BigInt(payload.length))
    throw new InvalidPayload(
      `The span is ${count(declared)} bytes, but the payload has ${count(payload.length)}.`,
      { field: 'span', remedy: 'Write the length of the payload as 8 bytes, little-endian.' },
    );
  const v = frame[64] ?? 0;
  if (v < 27 || v > 34) throw badSignature('its last byte is not 27 or 28');
  const hashed = keccak256(PREFIX, digest(id, payload));
  let owner: Uint8Array;
  try {
    const signature = secp256k1.Signature.fromBytes(frame.slice(0, 64), 'compact');
    const point = signature.addRecoveryBit((v - 27) & 3).recoverPublicKey(hashed);
    owner = address(point.toBytes(false));
  } catch {
    throw badSignature('it belongs to no key');
  }
  return { owner, payload };
}

/**
 * Verify that the owner of a topic has signed a frame.
 *
 * @param frame The received frame.
 * @param id The topic's id, 32 bytes.
 * @param topic The topic's address, 32 bytes.
 * @throws InvalidPayload The errors of `recover`, or the signer is not the topic's owner; `field`
 *   names the part.
 */
export function verify(frame: Uint8Array, id: Uint8Array, topic: Uint8Array): Verified {
  check(topic, 'topic', ID_BYTES);
  const found = recover(frame, id);
  if (toHex(topicAddress(id, found.owner)) !== toHex(topic))
    throw badSignature("the topic's owner has not signed this payload under this id");
  return found;
}

// ---------------------------------------------------------------- inside HIP-56 topics

/**
 * Convert a signed message to the `data` of a HIP-56 message.
 *
 * A payload of JSON is sent as a string if other languages would encode its numbers or keys
 * differently, so that every reader gets the same bytes.
 *
 * @throws InvalidPayload An argument has the wrong length; `field` names it.
 */
export function toData(frame: Uint8Array, id: Uint8Array, owner: Uint8Array): SignedFields {
  if (frame.length < HEAD_BYTES)
    throw new InvalidPayload(`The frame has only ${frame.length} bytes.`, { field: 'frame' });
  const payload = frame.slice(HEAD_BYTES);
  const [value, text] = [jsonOf(payload), textOf(payload)];
  return {
    owner: toHex(check(owner, 'owner', OWNER_BYTES)),
    id: toHex(check(id, 'id', ID_BYTES)),
    signature: toHex(frame.slice(0, SIGNATURE_BYTES)),
    payload: text === undefined || portable(value) ? value : text,
  };
}

/**
 * Read the `data` of a HIP-56 message as a signed message. This verifies nothing.
 *
 * @param data The result of `toData`. Hex may be upper case and start with `0x`.
 * @throws InvalidPayload A field is missing or wrong; `field` names it.
 */
export function fromData(data: unknown): SignedData {
  if (typeof data !== 'object' || data === null || Array.isArray(data))
    throw new InvalidPayload(
      '`data` of a signed message is an object with owner, id, signature and payload.',
      { field: 'data', remedy: 'Build it with `toData`.' },
    );
  const fields: Readonly<Record<string, unknown>> = { ...data };
  const owner = hexField(fields, 'owner', OWNER_BYTES);
  const id = hexField(fields, 'id', ID_BYTES);
  const signature = hexField(fields, 'signature', SIGNATURE_BYTES);
  if (!('payload' in fields))
    throw new InvalidPayload('The signed message has no `payload`.', { field: 'payload' });
  let payload: Uint8Array;
  try {
    payload = bytesOf(fields['payload']);
  } catch {
    throw new InvalidPayload('`payload` is not a JSON value.', { field: 'payload' });
  }
  checkPayload(payload);
  return { owner, id, frame: joined([signature, span(payload.length), payload]) };
}

/** Lower-case hex digits of bytes. */
export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (each) => each.toString(16).padStart(2, '0')).join('');
}

/**
 * Bytes of hex digits, which may be upper case and start with `0x`.
 *
 * @param field The field that an error names.
 * @throws InvalidPayload It is not hex, or has another length.
 */
export function fromHex(text: string, length: number, field: string): Uint8Array {
  const digits = text.replace(/^0x/i, '');
  if (digits.length !== 2 * length || !/^[0-9a-f]*$/i.test(digits))
    throw new InvalidPayload(`\`${field}\` is not ${2 * length} hex digits.`, {
      field,
      remedy: `Write ${length} bytes as hex.`,
    });
  return Uint8Array.from({ length }, (_, at) =>
    Number.parseInt(digits.slice(2 * at, 2 * at + 2), 16),
  );
}

// ---------------------------------------------------------------- parts

function address(uncompressed: Uint8Array): Uint8Array {
  return keccak256(uncompressed.subarray(1)).slice(12);
}

function span(length: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setUint32(0, length, true);
  return bytes;
}

function joined(parts: readonly Uint8Array[]): Bytes {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function count(size: number | bigint): string {
  return size.toLocaleString('en-US');
}

function check(value: Uint8Array, field: string, length: number): Uint8Array {
  if (!ArrayBuffer.isView(value))
    throw new InvalidPayload(`\`${field}\` is of type ${typeof value}, not bytes.`, {
      field,
      remedy: `Pass ${length} bytes; \`fromHex\` reads hex digits.`,
    });
  if (value.length !== length)
    throw new InvalidPayload(`\`${field}\` has ${value.length} bytes, not ${length}.`, {
      field,
      remedy: `Pass ${length} bytes.`,
    });
  return value;
}

function checkPayload(payload: Uint8Array): void {
  if (payload.length > MAX_PAYLOAD)
    throw new InvalidPayload(
      `A signed payload has at most 4,096 bytes, not ${count(payload.length)}.`,
      { field: 'payload', remedy: 'Sign a reference to the content, or split it.' },
    );
}

function badKey(): InvalidPayload {
  return new InvalidPayload('`key` is not a private key of secp256k1.', {
    field: 'key',
    remedy: 'Pass 32 random bytes that are not zero.',
  });
}

function badSignature(why: string): InvalidPayload {
  return new InvalidPayload(`The signature is not valid: ${why}.`, {
    field: 'signature',
    remedy: "Sign with the key of the topic's owner, under the topic's id.",
  });
}

function hexField(
  fields: Readonly<Record<string, unknown>>,
  name: string,
  length: number,
): Uint8Array {
  const text = fields[name];
  return fromHex(typeof text === 'string' ? text : '-', length, name);
}

/** Whether other languages encode this JSON as the same bytes. */
function portable(value: unknown): boolean {
  if (typeof value === 'number') return Number.isSafeInteger(value);
  if (typeof value !== 'object' || value === null) return true;
  if (Array.isArray(value)) return value.every(portable);
  return Object.entries(value).every(
    ([key, each]) => !/^\d+$/.test(key) && key !== '__proto__' && key !== BASE64 && portable(each),
  );
}
