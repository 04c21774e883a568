import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import { slipsOf } from './accessibility.js';
import { openConsole } from './console.js';
import { addressesAskedFor, openPage, openProfile, shot, startServer, until } from './harness.js';

const FREE = ['--publish-rate-service', '1000000', '--publish-rate-user', '1000000'];

function rows(page: Page): Promise<(string | null)[]> {
  return page.locator('.row .data').allTextContents();
}

test('the console signs in automatically, watches everything, and shows what is published', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const ana = server.client({ token: server.token('--user', 'ana') });
  await ana.publish('demo.room', { type: 'chat', data: { text: '<img src=x onerror=alert(1)>' } });
  const row = page.getByRole('article').filter({ hasText: 'demo.room' });
  await row.waitFor();
  assert.match((await row.textContent()) ?? '', /chat.*\{text: "<img src=x onerror=alert\(1\)>"\}/);
  await row.getByRole('button').click();
  assert.match((await page.locator('.json').textContent()) ?? '', /"text": "<img src=x/);
  assert.equal(await page.locator('.list img').count(), 0);
  await page.getByRole('button', { name: 'demo.room' }).first().waitFor();
});

test('texts that change their direction are shown as they are', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const turn = '\u202e';
  const mallory = server.client({ token: server.token('--user', `mallory${turn}nimda`) });
  await mallory.subscribe('demo.room', { onMessage: () => {} });
  await mallory.updatePresence('demo.room', { status: `${turn}yletarapes` });
  const data = { [`${turn}to`]: `${turn}from` };
  await mallory.publish('demo.room', { type: `paid${turn}diapnu`, data });
  await page.locator('.type', { hasText: 'paid\\u202ediapnu' }).waitFor();
  await page.locator('.status', { hasText: '\\u202eyletarapes' }).waitFor();
  await page.locator('.row').getByRole('button').click();
  await page.locator('.json', { hasText: '"\\u202eto": "\\u202efrom"' }).waitFor();
  await page.locator('[title*="mallory\\\\u202enimda"]').first().waitFor();
  assert.ok(!(await page.locator('body').innerText()).includes(turn));
});

test('a message published from the page returns to it, and its repetition is a duplicate', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  await page.getByRole('button', { name: 'Write a message' }).click();
  await page.getByLabel('Topic', { exact: true }).fill('demo.form');
  await page.getByLabel('Id', { exact: true }).fill('once');
  await page.getByLabel('Data, JSON').fill('{"n": oops}');
  await page.getByRole('button', { name: 'Publish', exact: true }).last().click();
  const outcome = page.locator('.outcome');
  assert.equal(await outcome.textContent(), 'Not JSON: expected a value at line 1, column 7.');
  await page.getByLabel('Data, JSON').fill('{"n": 7}');
  await page.keyboard.press('Control+Enter');
  await outcome.getByText('Published').waitFor();
  await page.locator('.row .data', { hasText: '{n: 7}' }).waitFor();
  await page.keyboard.press('Control+Enter');
  await outcome.getByText('Duplicate').waitFor();
  await page.getByLabel('Data, JSON').fill('{"n": 8}');
  await page.keyboard.press('Control+Enter');
  await outcome.locator('.code', { hasText: 'conflict' }).waitFor();
  await page.keyboard.press('Alt+ArrowUp');
  assert.equal(await page.getByLabel('Data, JSON').inputValue(), '{"n": 8}');
  await page.keyboard.press('Alt+ArrowUp');
  assert.equal(await page.getByLabel('Data, JSON').inputValue(), '{"n": 7}');
});

test('the result of a publish stays on one line, however little space it has', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server, { viewport: { width: 1280, height: 800 } });
  await page.getByRole('button', { name: 'Write a message' }).click();
  await page.keyboard.press('Control+Enter');
  const result = page.locator('.outcome');
  await result.getByText('Published').waitFor();
  const [took] = await result.locator('.number').all();
  await took?.evaluate((it) => (it.textContent = '10000 ms'));
  const heights = await result
    .locator('.number')
    .evaluateAll((all) => all.map((it) => it.getBoundingClientRect().height));
  const line = await result.evaluate((it) => Number.parseFloat(getComputedStyle(it).lineHeight));
  assert.ok(Math.max(...heights) < 1.5 * line, `${heights} px at a line height of ${line} px`);
});

test('an invalid pattern is rejected with the message of the SDK', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  await page.getByLabel('Topic or pattern to watch').fill('demo.a*');
  await page.keyboard.press('Enter');
  await page.locator('#watch-slip', { hasText: "mixes '*' at character 7" }).waitFor();
});

test('members join, change and leave, and show their data', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const ana = server.client({ token: server.token('--user', 'ana') });
  await ana.subscribe('demo.room', { onMessage: () => {} });
  const people = page.getByRole('region', { name: 'Presence' });
  await people.locator('.members li', { hasText: 'ana' }).waitFor();
  await ana.updatePresence('demo.room', { status: 'typing', cursor: 'line 42' });
  await people.locator('.status', { hasText: 'typing' }).waitFor();
  await people.locator('.pairs', { hasText: 'line 42' }).waitFor();
  await ana.close();
  await people.locator('.moves li', { hasText: 'ana left demo.room' }).waitFor();
  await until(page, () => !document.querySelector('.members li'));
});

test('history goes back to the oldest message that is retained', async (t) => {
  const server = await startServer(t, ...FREE);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  const messages = Array.from({ length: 95 }, (_, n) => ['demo.log', { data: { n } }] as const);
  await bot.publishMany(messages);
  const page = await openConsole(t, server);
  await page.locator('.row .data', { hasText: '{n: 94}' }).waitFor();
  await page.locator('.topic-list button', { hasText: 'demo.log' }).click();
  const list = page.getByRole('region', { name: 'List of messages' });
  await page
    .locator('.history-head', { hasText: '30 messages here' })
    .waitFor({ state: 'attached' });
  // Scroll to the top as a user does, repeatedly until there are no older messages.
  await list.focus();
  await until(page, () => {
    const head = document.querySelector('.history-head');
    if (head?.textContent?.includes('Nothing older')) return true;
    const scroller = document.querySelector('.list');
    if (scroller) scroller.scrollTop = 0;
    return false;
  });
  await page
    .locator('.history-head', { hasText: '95 messages here' })
    .waitFor({ state: 'attached' });
  await page.keyboard.press('Home');
  await page.locator('.row .data', { hasText: '{n: 0}' }).waitFor();
  const shown = await rows(page);
  assert.deepEqual(shown.slice(0, 5), ['{n: 0}', '{n: 1}', '{n: 2}', '{n: 3}', '{n: 4}']);
});

test('a key that is pressed while older messages arrive acts on the list with them', async (t) => {
  const server = await startServer(t, ...FREE);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publishMany(Array.from({ length: 95 }, (_, n) => ['demo.log', { data: { n } }]));
  const page = await openConsole(t, server);
  await page.locator('.row .data', { hasText: '{n: 94}' }).waitFor();
  await page.locator('.topic-list button', { hasText: 'demo.log' }).click();
  await page
    .locator('.history-head', { hasText: '30 messages here' })
    .waitFor({ state: 'attached' });
  // The key is pressed before the frame that draws the list; the heading is updated first.
  await page.evaluate(() => {
    const list = document.querySelector('.list');
    const head = document.querySelector('.history-head');
    new MutationObserver((_, observer) => {
      if (!head?.textContent?.includes('80 messages here')) return;
      observer.disconnect();
      list?.dispatchEvent(new KeyboardEvent('keydown', { key: 'Home', bubbles: true }));
    }).observe(head as Element, { childList: true, characterData: true, subtree: true });
    head?.querySelector('button')?.click();
  });
  const focused = page.locator('.row', { has: page.locator('.line:focus') });
  await focused.waitFor();
  assert.equal(await focused.locator('.data').textContent(), '{n: 15}');
});

test('a lost connection shows a countdown and reconnects, and permanently lost messages appear as a gap', async (t) => {
  const server = await startServer(t, ...FREE, '--history-max-messages', '5');
  const page = await openConsole(t, server);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publish('demo.log', { data: 'before' });
  await page.locator('.row .data', { hasText: 'before' }).waitFor();
  await server.fault({ fault: 'refuse', on: true });
  await server.fault({ fault: 'drop', user: 'console' });
  await page
    .locator('.status-line', { hasText: /Reconnecting.*attempt \d+ (in \d+ s|now)/ })
    .waitFor();
  await shot(page, 'console-reconnecting');
  for (let n = 0; n < 20; n += 1) await bot.publish('demo.log', { data: n }, { via: 'rest' });
  await server.fault({ fault: 'refuse', on: false });
  await page.getByRole('button', { name: 'Connection: Connected' }).waitFor();
  await page.locator('.row.gap', { hasText: '15 messages of demo.log missing' }).waitFor();
  await shot(page, 'console-gap');
  const lines = await page.locator('.row').allTextContents();
  const at = lines.findIndex((line) => line.includes('Gap'));
  assert.match(lines[at - 1] ?? '', /before/);
  assert.match(lines[at + 1] ?? '', /demo\.logmessage15/);
  assert.equal(lines.length, at + 6);
  assert.equal(await page.locator('.status-line').isVisible(), false);
});

test('an expiring token is renewed without a question, and the page shows the renewal', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  await page.getByRole('button', { name: /^Account, token expires in .*console$/ }).click();
  const account = page.getByRole('dialog', { name: 'Account' });
  await account.getByText('not yet').waitFor();
  await account.getByText(/expires in [45]:\d\d/).waitFor();
  await server.fault({ fault: 'expire', user: 'console', ms: 500 });
  await account.getByText(/once, last at|\d times, last at/).waitFor();
  await page.getByRole('button', { name: 'Connection: Connected' }).waitFor();
});

test('a user can sign in with a token, which stays in the tab and in no address', async (t) => {
  const server = await startServer(t);
  const profile = await openProfile(t);
  const page = await openPage(t, { url: `${server.http}/` }, { profile });
  await page.getByRole('button', { name: /Account/ }).click();
  await page.getByRole('button', { name: /Sign out/ }).click();
  assert.deepEqual(await slipsOf(page), []);
  await shot(page, 'console-sign-in');
  await page.reload();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  const token = server.token('--user', 'ana');
  await page.getByLabel('Token or API key').fill('not a token');
  await page.keyboard.press('Enter');
  await page.getByText('A token is one word without spaces.').waitFor();
  await page.getByLabel('Token or API key').fill(`Bearer ${token}`);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Connection: Connected' }).waitFor();
  await page.getByText('requires the token of an administrator').waitFor();
  await page.reload();
  await page.getByRole('button', { name: /^Account, .*ana$/ }).waitFor();
  const kept = await page.evaluate(() => [
    JSON.stringify(localStorage),
    document.cookie,
    location.href,
  ]);
  assert.ok(!kept.some((each) => each.includes(token)));
  assert.ok(!addressesAskedFor(profile).some((each) => each.includes(token)));
});

test('the keyboard suffices to sign in, also after a rejected token, whose reason is shown', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  await page.getByRole('button', { name: /Account/ }).click();
  await page.getByRole('button', { name: /Sign out/ }).click();
  await page.locator('#user:focus').waitFor();
  await page.getByLabel('Token or API key').fill('abc.def.ghi');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').filter({ hasText: 'token_invalid' }).waitFor();
  await page.locator('#token:focus').waitFor();
  await page.keyboard.insertText(server.token('--user', 'ana'));
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Connection: Connected' }).waitFor();
});

test('tens of thousands of messages leave the page small and quick', async (t) => {
  const server = await startServer(t, ...FREE);
  const page = await openConsole(t, server);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  for (let turn = 0; turn < 20; turn += 1) {
    const batch = Array.from({ length: 1_000 }, (_, n) => {
      const data = { n: turn * 1_000 + n, text: 'x'.repeat(40) };
      return [`demo.load.${n % 7}`, { data }] as const;
    });
    await bot.publishMany(batch);
    // If the page fell behind by more than the server's queue, it would receive a gap.
    await page.locator('.row .data', { hasText: `{n: ${turn * 1_000 + 999},` }).waitFor();
  }
  assert.ok((await page.locator('.row').count()) < 80);
  assert.ok((await page.locator('*').count()) < 3_000);
  await page.getByRole('button', { name: 'Pause' }).click();
  await bot.publish('demo.load.0', { data: 'held back' });
  await page.getByRole('button', { name: 'Resume, 1 waiting' }).click();
  await page.locator('.row .data', { hasText: 'held back' }).waitFor();
  await page.locator('.list').focus();
  await page.keyboard.press('Home');
  const first = await page.locator('.row').first().getAttribute('aria-setsize');
  assert.equal(first, '5000');
});

test('the keyboard alone suffices to skip, watch, publish, read and close', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const { keyboard } = page;
  await keyboard.press('Tab');
  assert.equal(
    await page.evaluate(() => document.activeElement?.textContent),
    'Skip to the messages',
  );
  await keyboard.press('Enter');
  await keyboard.press('w');
  await keyboard.type('demo.keys');
  await keyboard.press('Enter');
  await page.getByRole('listitem').filter({ hasText: 'demo.keys' }).first().waitFor();
  await keyboard.press('Escape');
  await keyboard.press('n');
  await keyboard.press('Control+A');
  await keyboard.type('{"by": "keys"}');
  for (let n = 0; n < 4; n += 1) await keyboard.press('Shift+Tab');
  await keyboard.press('Control+A');
  await keyboard.type('demo.keys');
  await keyboard.press('Control+Enter');
  const line = page.locator('.row', { hasText: '{by: "keys"}' });
  await line.waitFor();
  await keyboard.press('Escape');
  await keyboard.press('m');
  await keyboard.press('ArrowUp');
  const focused = (): Promise<string> =>
    page.evaluate(() => {
      const element = document.activeElement;
      const ring = element && getComputedStyle(element).outlineStyle;
      return `${element?.className} ${element?.getAttribute('aria-expanded')} ${ring}`;
    });
  assert.equal(await focused(), 'line false solid');
  await keyboard.press('Enter');
  assert.equal(await focused(), 'line true solid');
  await page.locator('.json', { hasText: '"by": "keys"' }).waitFor();
  await keyboard.press('Enter');
  assert.equal(await focused(), 'line false solid');
  await keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
  assert.deepEqual(await slipsOf(page), []);
  await keyboard.press('Escape');
  await page.getByRole('dialog', { name: 'Keyboard' }).waitFor({ state: 'hidden' });
  assert.equal(await focused(), 'line false solid');
});

test('the chosen theme is stored, and applied from the first frame', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const ground = (): Promise<string> =>
    page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.getByRole('button', { name: 'Theme: as the system' }).click();
  const dark = await ground();
  assert.notEqual(dark, light);
  await page.reload({ waitUntil: 'commit' });
  await until(page, () => document.documentElement.dataset['theme'] === 'dark');
  assert.equal(await ground(), dark);
});
