/**
 * Reads or writes one stream, for tests/conformance/test_streams.py.
 *
 * `node stream.mjs read|write|cancel URL REST_URL TOKEN TOPIC ID`, with the text to write on standard
 * input; it prints how the stream ended as JSON.
 */

import { readFileSync } from 'node:fs';
import WebSocket from 'ws';

import { PubSub, type WebSocketConstructor } from '../../../js/src/index.js';
import { readStream, writeStream } from '../../../js/src/streams/index.js';

const [role, url = '', restUrl = '', token = '', topic = '', id = ''] = process.argv.slice(2);
const ps = new PubSub({
  url,
  restUrl,
  token,
  WebSocket: WebSocket as unknown as WebSocketConstructor,
});

async function* model(text: string) {
  for (const piece of text.match(/.{1,3}/gs) ?? []) {
    await new Promise((resolve) => setTimeout(resolve, 1000 / 150));
    yield piece;
  }
}

if (role === 'write') {
  const text = readFileSync(0, 'utf8');
  const writer = await writeStream(ps, topic, { id });
  await writer.pipe(model(text));
  process.stdout.write(JSON.stringify(writer.stats));
} else {
  const reader = readStream(ps, topic, { id });
  let shown = '';
  for await (const event of reader) {
    if (event.kind === 'delta') shown += event.text;
    else if (event.kind === 'snapshot') shown = event.text;
    if (role === 'cancel' && shown.length > 20) await reader.cancel('enough');
  }
  process.stdout.write(JSON.stringify({ ...(await reader.final()), shown }));
}
await ps.close();
