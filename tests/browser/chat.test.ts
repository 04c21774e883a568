import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import {
  addresses,
  openPage,
  openProfile,
  serveSite,
  shot,
  startServer,
  until,
} from './harness.js';

/** Wait until a page shows these users, each with their status. */
async function shows(page: Page, ...people: string[]): Promise<void> {
  await until(
    page,
    (wanted) => {
      const there = [...document.querySelectorAll('ul li')].map((li) => li.textContent?.trim());
      return JSON.stringify(there.sort()) === wanted;
    },
    JSON.stringify(people.sort()),
  );
}

async function says(page: Page): Promise<string[]> {
  return page.locator('ol li').allInnerTexts();
}

test('two tabs chat, and see each other join, type and leave', async (t) => {
  const server = await startServer(t, '--presence-grace', '200');
  const site = await serveSite(t, { entry: 'pages/chat.ts' });
  const profile = await openProfile(t, { viewport: { width: 720, height: 420 } });
  const open = (user: string): Promise<Page> =>
    openPage(t, site, {
      profile,
      given: {
        options: { ...addresses(server), token: server.token('--user', user) },
        topic: 'demo.chat',
        title: `${user}'s tab`,
      },
    });
  const alice = await open('alice');
  await shows(alice, 'alice');
  const bob = await open('bob');
  await shows(alice, 'alice', 'bob');
  await shows(bob, 'alice', 'bob');

  await alice.getByPlaceholder('Say something').pressSequentially('Hello Bob');
  await shows(bob, 'alice typing', 'bob');
  await shot(bob, 'chat-typing');
  await alice.keyboard.press('Enter');
  await shows(bob, 'alice here', 'bob');
  await bob.getByPlaceholder('Say something').fill('Hello Alice');
  await bob.keyboard.press('Enter');
  for (const page of [alice, bob]) {
    await page.locator('ol li').nth(1).waitFor();
    assert.deepEqual(await says(page), ['alice Hello Bob', 'bob Hello Alice']);
  }
  await shows(alice, 'alice here', 'bob here');
  await shot(alice, 'chat');

  await bob.close();
  await shows(alice, 'alice here');
  await shot(alice, 'chat-one-left');
});
