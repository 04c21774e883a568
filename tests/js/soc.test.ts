import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { InvalidPayload } from '../../js/src/errors.js';
import {
  cacAddress,
  digest,
  frameOf,
  fromData,
  fromHex,
  HEAD_BYTES,
  keccak256,
  ownerOf,
  sign,
  toData,
  toHex,
  topicAddress,
  verify,
} from '../../js/src/soc.js';
import { load } from './files.js';

interface Case {
  readonly why: string;
  readonly field: string;
  readonly data: unknown;
  readonly json: unknown;
  readonly [hex: string]: unknown;
}

const spec =
  load<Record<'signed' | 'accepted' | 'refused' | 'data' | 'bad_data', Case[]>>('signed.json');
const KEY = new Uint8Array(32).fill(1);
const ID = keccak256(new TextEncoder().encode('my-topic'));
const OWNER = ownerOf(KEY);
const TOPIC = topicAddress(ID, OWNER);

function bytes(text: unknown): Uint8Array {
  assert.ok(typeof text === 'string');
  return fromHex(text, text.length / 2, 'hex');
}

function refusal(act: () => unknown): InvalidPayload {
  try {
    act();
  } catch (error) {
    assert.ok(error instanceof InvalidPayload);
    assert.ok(error.remedy);
    return error;
  }
  throw new assert.AssertionError({ message: 'It is accepted.' });
}

describe('a payload is addressed and signed as by Bee', () => {
  for (const { why, ...hex } of spec.signed) {
    test(why, () => {
      const [key, id, payload] = [bytes(hex['key']), bytes(hex['id']), bytes(hex['payload'])];
      assert.equal(toHex(ownerOf(key)), hex['owner']);
      assert.equal(toHex(topicAddress(id, ownerOf(key))), hex['topic']);
      assert.equal(toHex(cacAddress(payload)), hex['cac']);
      assert.equal(toHex(digest(id, payload)), hex['digest']);
      assert.equal(toHex(sign(key, id, payload)), hex['frame']);
      const found = verify(bytes(hex['frame']), id, bytes(hex['topic']));
      assert.equal(toHex(found.owner), hex['owner']);
      assert.equal(toHex(found.payload), hex['payload']);
    });
  }
});

describe('every signature that Bee accepts is accepted', () => {
  for (const { why, ...hex } of spec.accepted) {
    test(why, () => {
      const found = verify(bytes(hex['frame']), bytes(hex['id']), bytes(hex['topic']));
      assert.equal(toHex(found.owner), hex['owner']);
      assert.equal(toHex(found.payload), hex['payload']);
    });
  }
});

describe('a frame that the owner has not signed is refused', () => {
  for (const { why, field, ...hex } of spec.refused) {
    test(why, () => {
      const act = () => verify(bytes(hex['frame']), bytes(hex['id']), bytes(hex['topic']));
      assert.equal(refusal(act).field, field);
    });
  }
});

describe('a payload is sent as JSON that every language encodes alike', () => {
  for (const { why, json, payload } of spec.data) {
    test(why, () => {
      const frame = sign(KEY, ID, bytes(payload));
      const data = toData(frame, ID, OWNER);
      assert.deepEqual(data.payload, json);
      const read = fromData(JSON.parse(JSON.stringify(data)));
      assert.equal(toHex(read.frame), toHex(frame));
      assert.equal(toHex(read.owner), toHex(OWNER));
    });
  }
});

describe('data that is not a signed message is rejected', () => {
  for (const { why, data, field } of spec.bad_data) {
    test(why, () => assert.equal(refusal(() => fromData(data)).field, field));
  }
});

test('hex may be upper case and start with 0x', () => {
  const { owner, id, signature, payload } = toData(sign(KEY, ID, Uint8Array.of(7)), ID, OWNER);
  const [loudOwner, loudId] = [owner, id].map((each) => `0x${each.toUpperCase()}`);
  assert.deepEqual(fromData({ owner: loudOwner, id: loudId, signature, payload }).owner, OWNER);
});

test('an invalid private key is rejected', () => {
  for (const key of [new Uint8Array(32), new Uint8Array(32).fill(255), new Uint8Array(31)]) {
    assert.equal(refusal(() => ownerOf(key)).field, 'key');
    assert.equal(refusal(() => sign(key, ID, new Uint8Array())).field, 'key');
  }
});

test('the recovery id of a wallet is converted', () => {
  for (let n = 0; n < 8; n++) {
    const frame = sign(KEY, ID, Uint8Array.of(n));
    const signature = frame.slice(0, 65);
    signature[64] = (frame[64] ?? 0) - 27;
    assert.deepEqual(frameOf(signature, frame.slice(HEAD_BYTES)), frame);
  }
});

test('a frame in a larger buffer is read from its offset', () => {
  const frame = sign(KEY, ID, Uint8Array.of(1, 2));
  const larger = new Uint8Array(frame.length + 9);
  larger.set(frame, 5);
  const found = verify(larger.subarray(5, 5 + frame.length), ID, TOPIC);
  assert.deepEqual([...found.payload], [1, 2]);
});
