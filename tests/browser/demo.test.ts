import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';

import { axeViolations } from './axe.js';
import { atEnd, bounded, openPage, openProfile, shot, until } from './harness.js';

const local = join(process.cwd(), '.venv', 'bin', 'python');
const PYTHON = existsSync(local) ? local : 'python3';

/** Start the demonstration; returns its process and the URL of its page. */
async function startDemo(t: TestContext, ...flags: string[]): Promise<[ChildProcess, string]> {
  const demo = spawn(PYTHON, ['examples/demo', '--plain', ...flags], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(demo, 'exit');
  atEnd(t, async () => {
    demo.kill();
    await bounded(ended, 'the end of the demonstration');
  });
  const url = await bounded(
    new Promise<string>((resolve, reject) => {
      createInterface({ input: demo.stdout }).on('line', (line) => {
        const found = /^in a browser: (\S+)/.exec(line);
        if (found?.[1]) resolve(found[1]);
      });
      ended.then(() => reject(new Error('The demonstration ended.')));
    }),
    'the address of the page',
  );
  return [demo, url];
}

/** Milliseconds: the demonstration takes longer on a busy machine, and has its own time limit. */
const SHOW = 180_000;

/** Words that are published while the page is offline. */
const MISSED = 60;

/** Wait until the page has the whole text. */
async function concludes(page: Page): Promise<void> {
  const isOver = (): boolean => document.documentElement.dataset['verdict'] !== undefined;
  await until(page, isOver, undefined, SHOW);
  assert.equal(await page.evaluate(() => document.documentElement.dataset['verdict']), 'whole');
}

function figure(page: Page, name: string): Promise<string> {
  return page.locator(`[data-figure="${name}"] dd`).innerText();
}

test('the page of the demonstration sees every word through cuts and rotations', async (t) => {
  const [, url] = await startDemo(t, '--fast', '--words', '1000', '--stay');
  const profile = await openProfile(t, { viewport: { width: 1280, height: 800 } });
  const page = await openPage(t, { url }, { profile });
  await until(
    page,
    () => Number(document.querySelector('[data-figure="Reconnects"] dd')?.textContent) > 1,
    undefined,
    SHOW,
  );
  await shot(page, 'demo-live');
  await page.emulateMedia({ colorScheme: 'dark' });
  await shot(page, 'demo-live-dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await concludes(page);
  assert.match(await figure(page, 'Published'), /^1,000/);
  assert.equal(await figure(page, 'Received here'), '1,000');
  assert.match(await figure(page, 'Lost'), /^0/);
  assert.equal(await figure(page, 'Twice'), '0');
  assert(Number(await figure(page, 'Reconnects')) >= 2);
  assert.match(await page.locator('#text').innerText(), /^THE ORDER OF THINGS SAID\n+Long before/);
  await shot(page, 'demo-light');
  await page.emulateMedia({ colorScheme: 'dark' });
  await shot(page, 'demo-dark');

  // A second user joins: both see each other, their typing and their messages.
  const other = await openPage(t, { url }, { profile });
  await page.locator('#people [data-user="browser-2"]').waitFor();
  await other.locator('#words').pressSequentially('Hello');
  await page.locator('#people [data-user="browser-2"]', { hasText: 'typing' }).waitFor();
  await shot(page, 'demo-two');
  await other.keyboard.press('Enter');
  await until(page, () =>
    document.querySelector('#happenings')?.textContent?.includes('browser-2: Hello'),
  );
  // A latecomer replays the whole text.
  await concludes(other);

  // Each button causes its fault, and the page recovers.
  const before = Number(await figure(page, 'Reconnects'));
  await page.locator('#cut').click();
  await until(
    page,
    (count) => Number(document.querySelector('[data-figure="Reconnects"] dd')?.textContent) > count,
    before,
  );
  const renewed = Number(await figure(page, 'Rotations'));
  await page.locator('#renew').click();
  await until(
    page,
    (count) => Number(document.querySelector('[data-figure="Rotations"] dd')?.textContent) > count,
    renewed,
  );
  await page.setViewportSize({ width: 390, height: 844 });
  const over = (): Promise<number> =>
    page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.equal(await over(), 0);
  const middle = (selector: string): Promise<number> =>
    page.locator(selector).evaluate((element) => {
      const { top, bottom } = element.getBoundingClientRect();
      return Math.round((top + bottom) / 20);
    });
  assert.equal(await middle('#to-console'), await middle('.brand'), 'the link is beside the title');
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await axeViolations(page), [], colorScheme);
  }
  await shot(page, 'demo-phone');
});

test('the page marks all words that are replayed after a cut', async (t) => {
  const [, url] = await startDemo(t, '--fast', '--words', '1000', '--stay');
  const profile = await openProfile(t);
  // Requests for a token fail while the page is offline.
  const page = await openPage(t, { url }, { profile, mayFail: true });
  await page.locator('#text', { hasText: 'Long before' }).waitFor({ timeout: SHOW });
  const published = async (): Promise<number> =>
    ((await (await fetch(`${url}progress`)).json()) as { published: number }).published;
  const user = await page.evaluate(() => sessionStorage.getItem('user'));
  await profile.setOffline(true);
  const before = await published();
  const headers = { Origin: new URL(url).origin };
  assert((await fetch(`${url}cut?user=${user}`, { method: 'POST', headers })).ok);
  while ((await published()) < before + MISSED);
  const asks = page.waitForResponse(`${url}progress`);
  await profile.setOffline(false);
  await bounded(asks, 'a request for the progress after the outage');
  await until(
    page,
    (missed) =>
      [...document.querySelectorAll('#happenings li')].some(
        ({ textContent }) => Number(/(\d+) words replayed/.exec(textContent ?? '')?.[1]) >= missed,
      ),
    MISSED,
    SHOW,
  );
  const marked = await page.locator('#text mark').allInnerTexts();
  assert(marked.join(' ').split(/\s+/).length >= MISSED);
});

test('the page misses no word if the history is emptied during a cut', async (t) => {
  const [, url] = await startDemo(t, '--fast', '--words', '400', '--stay', '--lose');
  const page = await openPage(t, { url });
  await concludes(page);
  assert.equal(await figure(page, 'Received here'), '400');
  assert.match(await figure(page, 'Lost'), /^0/);
});

test('neither another page nor another host name gets a token of the demonstration', async (t) => {
  const [, url] = await startDemo(t, '--fast', '--words', '100', '--stay');
  const shown = (await (await fetch(`${url}show`)).json()) as { user: string };
  const ask = (headers: Record<string, string>) =>
    fetch(`${url}token?user=${shown.user}`, { method: 'POST', headers });
  assert.equal((await ask({ Origin: new URL(url).origin })).status, 200);
  assert.equal((await ask({ Origin: 'http://elsewhere.example' })).status, 403);
  assert.equal((await ask({})).status, 403);
});
