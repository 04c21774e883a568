import assert from 'node:assert/strict';
import { test } from 'node:test';

import { slipsOf } from './accessibility.js';
import { openConsole } from './console.js';
import { shot, startServer } from './harness.js';

const SCHEMES = ['light', 'dark'] as const;

for (const width of [360, 390, 820, 1440]) {
  test(`at ${width} px every panel is in order, in light and in dark`, async (t) => {
    const server = await startServer(t);
    const height = width < 720 ? 844 : width < 1_000 ? 1_180 : 900;
    const look = { viewport: { width, height }, reducedMotion: 'reduce' } as const;
    const page = await openConsole(t, server, look);
    const check = async (name: string): Promise<void> => {
      for (const colorScheme of SCHEMES) {
        await page.emulateMedia({ colorScheme });
        assert.deepEqual(await slipsOf(page), [], `${name} ${colorScheme}`);
        await shot(page, ['console', width, colorScheme, name].filter(Boolean).join('-'));
      }
    };
    await check('empty');
    for (const user of ['ana', 'ben']) {
      const client = server.client({ token: server.token('--user', user) });
      await client.subscribe('demo.chat.lobby', { onMessage: () => {} });
      await client.updatePresence('demo.chat.lobby', { status: 'online', device: 'laptop' });
    }
    await page.getByRole('button', { name: 'Play a demonstration' }).click();
    await page.locator('.row', { hasText: 'agent.status' }).first().waitFor();
    await page
      .locator('.row', { hasText: 'first token' })
      .or(page.locator('.row', { hasText: 'since six' }))
      .first()
      .waitFor();
    const names = width < 720 ? ['Topics', 'Publish', 'Presence', 'Server', 'Messages'] : [''];
    for (const name of names) {
      if (name) await page.getByRole('navigation').getByRole('button', { name }).click();
      await check(name.toLowerCase());
    }
  });
}
