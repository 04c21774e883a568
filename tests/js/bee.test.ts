/** Compares signed messages with bee-js, the client library of Bee. */

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';

import { Bee, PrivateKey } from '@ethersphere/bee-js';

import { InvalidPayload } from '../../js/src/errors.js';
import { ownerOf, sign, toHex, topicAddress, verify } from '../../js/src/soc.js';

/** Number of runs; more with HANZO_PUBSUB_SOAK set. */
const MANY = process.env['HANZO_PUBSUB_SOAK'] ? 1_000 : 6;
const bee = new Bee('http://127.0.0.1:1');

function sizes(n: number): number {
  return [1, 31, 32, 33, 4095, 4096][n] ?? 1 + (randomBytes(2).readUInt16LE() % 4096);
}

test('bee-js reads what is signed here, and the other way around', () => {
  for (let n = 0; n < MANY; n++) {
    const [key, id, payload] = [randomBytes(32), randomBytes(32), randomBytes(sizes(n))];
    const topic = topicAddress(id, ownerOf(key));
    const frame = sign(key, id, payload);
    const theirs = bee.unmarshalSingleOwnerChunk(Buffer.concat([id, frame]), topic);
    assert.equal(theirs.owner.toHex(), toHex(ownerOf(key)));
    assert.deepEqual(Buffer.from(theirs.payload.toUint8Array()), payload);

    const chunk = bee.makeContentAddressedChunk(payload);
    const made = chunk.toSingleOwnerChunk(id, key);
    assert.equal(new PrivateKey(key).publicKey().address().toHex(), toHex(ownerOf(key)));
    assert.equal(made.address.toHex(), toHex(topic));
    const received = made.data.slice(32);
    assert.deepEqual(Buffer.from(verify(received, id, topic).payload), payload);

    const at = randomBytes(2).readUInt16LE() % received.length;
    received[at] = (received[at] ?? 0) ^ (at === 64 ? 1 : 1 + (n % 255));
    assert.throws(() => verify(received, id, topic), InvalidPayload);
  }
});
