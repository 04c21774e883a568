import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SignedTopic } from '../../js/src/signed/index.js';
import { keccak256, ownerOf, sign, toData, toHex } from '../../js/src/soc.js';
import { addresses, openPage, shot, startServer } from './harness.js';

const KEY = new Uint8Array(32).fill(7);
const OWNER = ownerOf(KEY);
const ID = 'agent.events';

test('a page verifies the events of an agent, and marks a forged one that the server accepted', async (t) => {
  // Without `--signed`, this server does not verify messages.
  const server = await startServer(t);
  const options = { ...addresses(server), token: server.token('--user', 'alice') };
  const page = await openPage(t, {
    entry: 'pages/signed.tsx',
    given: { options, owner: toHex(OWNER), id: ID },
  });
  await page.locator('ol').waitFor({ state: 'attached' });

  const client = server.client({ token: server.token('--user', 'agent', '--service') });
  const topic = new SignedTopic({ client, id: ID, key: KEY });
  await topic.publish({ status: 'thinking', step: 1 });
  const [id, payload] = [ID, '{"status":"idle"}'].map((text) => new TextEncoder().encode(text));
  assert.ok(id && payload);
  const genuine = toData(sign(KEY, keccak256(id), payload), keccak256(id), OWNER);
  const data = { ...genuine, payload: { status: 'transfer', to: 'mallory' } };
  await client.publish(topic.name, { type: 'message', data });
  await topic.publish({ status: 'done', step: 2 });

  await page.locator('ol li').nth(2).waitFor();
  const kinds = await page
    .locator('ol li')
    .evaluateAll((items) => items.map((item) => item.getAttribute('data-kind')));
  assert.deepEqual(kinds, ['proved', 'forged', 'proved']);
  const texts = await page.locator('ol li').allInnerTexts();
  assert.match(texts[0] ?? '', /signed by the agent {"status":"thinking","step":1}/);
  assert.match(texts[1] ?? '', /forged .*mallory/);
  assert.match(texts[1] ?? '', /owner has not signed/);
  await shot(page, 'signed');
});
