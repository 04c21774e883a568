import assert from 'node:assert/strict';
import { test } from 'node:test';

import { writeStream } from '../../js/src/streams/index.js';
import { slipsOf } from './accessibility.js';
import { axeViolations } from './axe.js';
import { openConsole } from './console.js';
import { shot, startServer } from './harness.js';

/** Every view, and one topic with its timeline. */
const PLACES = [
  ['topics', '#/topics'],
  ['messages', '#/messages'],
  ['messages', '#/topics/demo.chat.lobby'],
  ['publish', '#/publish'],
  ['people', '#/presence'],
  ['connections', '#/connections'],
  ['server', '#/server'],
] as const;
const SCHEMES = ['light', 'dark'] as const;

for (const width of [320, 390, 768, 1280]) {
  test(`every panel has no problems at ${width} px, in light and dark`, async (t) => {
    const server = await startServer(t);
    const height = width < 720 ? 844 : width < 1_000 ? 1_180 : 900;
    const look = { viewport: { width, height }, reducedMotion: 'reduce' } as const;
    const page = await openConsole(t, server, look);
    const check = async (name: string): Promise<void> => {
      for (const colorScheme of SCHEMES) {
        await page.emulateMedia({ colorScheme });
        assert.deepEqual(await slipsOf(page), [], `${name} ${colorScheme}`);
        assert.deepEqual(await axeViolations(page), [], `${name} ${colorScheme}`);
        await shot(page, ['console', width, colorScheme, name].filter(Boolean).join('-'));
      }
    };
    await check('empty');
    for (const user of ['ana', 'ben']) {
      const client = server.client({ token: server.token('--user', user) });
      await client.subscribe('demo.chat.lobby', { onMessage: () => {} });
      await client.updatePresence('demo.chat.lobby', { status: 'online', device: 'laptop' });
    }
    await page.getByRole('button', { name: 'Play a demonstration' }).first().click();
    await page.locator('.row', { hasText: 'agent.status' }).first().waitFor();
    await page
      .locator('.row', { hasText: 'first token' })
      .or(page.locator('.row', { hasText: 'since six' }))
      .first()
      .waitFor();
    for (const [name, hash] of PLACES) {
      await page.goto(`${server.http}/${hash}`);
      await page.locator(`[data-view='${name}']`).waitFor();
      if (name === 'connections') await page.locator('[data-client]').first().waitFor();
      await check(`${name}${hash.includes('lobby') ? '-topic' : ''}`);
    }
  });
}

for (const width of [390, 1280]) {
  test(`at ${width} px a topic with a stream shows its text above its frames`, async (t) => {
    const server = await startServer(t);
    const look = { viewport: { width, height: 844 }, reducedMotion: 'reduce' } as const;
    const page = await openConsole(t, server, look);
    const service = server.client({ token: server.token('--user', 'writer', '--service') });
    const writer = await writeStream(service, 'demo.answer', { id: 'r1', listen: false });
    await writer.write({ type: 'reasoning', text: 'They want the weather.' });
    await writer.write('Let me look 👩‍👧. ');
    await writer.write({ type: 'tool-call', id: 'c1', name: 'weather', text: '{"city": "Köln"}' });
    await writer.write('It rains, <b>and</b> it will go on until the evening. '.repeat(8));
    if (width < 720) {
      await page.getByRole('navigation').getByRole('button', { name: 'Topics' }).click();
    }
    await page.locator('#topics').getByRole('button', { name: 'demo.answer' }).click();
    const answer = page.getByRole('region', { name: 'Token stream' });
    await answer.getByText('streaming').waitFor();
    await answer.getByText('until the evening').first().waitFor();
    const shown = (await answer.locator('.answer-text').textContent()) ?? '';
    assert.match(
      shown,
      /They want the weather\.Let me look 👩‍👧\. tool-call weather .*Köln.*It rains, <b>/,
    );
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await slipsOf(page), [], colorScheme);
      await shot(page, `console-stream-${width}-${colorScheme}`);
    }
    await writer.complete();
    await answer.getByText('complete: stop').waitFor();
    const next = await writeStream(service, 'demo.answer', { id: 'r2', listen: false });
    await next.write('Another one.');
    await answer.getByText('Another one.').waitFor();
    await next.abort('user');
    await answer.getByText('aborted: user').waitFor();
    if (width < 720) {
      await page.getByRole('navigation').getByRole('button', { name: 'Topics' }).click();
    }
    await page.locator('#topics').getByRole('button', { name: 'All messages' }).click();
    await answer.waitFor({ state: 'hidden' });
  });
}
