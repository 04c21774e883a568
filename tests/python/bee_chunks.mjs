// Signs and reads chunks with bee-js: one JSON array of requests on standard input, one of answers.

import { text } from 'node:stream/consumers';
import { Bee } from '@ethersphere/bee-js';

const bee = new Bee('http://127.0.0.1:1');
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, 'hex'));

function answer({ key, id, payload, frame, topic }) {
  const read = bee.unmarshalSingleOwnerChunk(bytes(id + frame), bytes(topic));
  const chunk = bee.makeContentAddressedChunk(bytes(payload));
  const made = chunk.toSingleOwnerChunk(bytes(id), bytes(key));
  const theirs = Buffer.from(made.data.slice(32)).toString('hex');
  return { owner: read.owner.toHex(), payload: read.payload.toHex(), topic: made.address.toHex(), frame: theirs };
}

process.stdout.write(JSON.stringify(JSON.parse(await text(process.stdin)).map(answer)));
