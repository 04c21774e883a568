/** The console with the Tab key and Escape alone. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import { openConsole } from './console.js';
import { startServer } from './harness.js';

/** Every view, and one topic with its timeline. */
const PLACES = [
  '#/topics',
  '#/messages',
  '#/topics/demo.keys',
  '#/publish',
  '#/presence',
  '#/connections',
  '#/server',
];
/** More than the page has controls. */
const STOPS_MAX = 150;

/**
 * Runs inside the page: names the visible controls, in the order of the document, and moves the
 * focus before the first of them.
 */
function controls(): string[] {
  const found: string[] = [];
  for (const element of document.querySelectorAll<HTMLElement>(
    'a[href], button, input, select, textarea, summary, [tabindex]',
  )) {
    if (element.matches(':disabled, [tabindex="-1"]')) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    const { labels } = element as HTMLInputElement;
    const label = element.getAttribute('aria-label') ?? labels?.[0]?.textContent;
    const name = (label ?? element.textContent ?? '').trim().slice(0, 40);
    element.dataset['control'] = `${found.length} ${element.localName} ${name}`;
    found.push(element.dataset['control']);
  }
  document.body.tabIndex = -1;
  document.body.focus();
  document.body.removeAttribute('tabindex');
  return found;
}

/** Runs inside the page: the focused control, and why a user would not see the focus. */
function focused(): readonly [control: string, problem: string] | undefined {
  const element = document.activeElement as HTMLElement | null;
  if (!element || element === document.body) return undefined;
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  const { left, top, right, bottom } = element.getBoundingClientRect();
  const middle = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  const ring = outlineStyle !== 'none' && Number.parseFloat(outlineWidth) >= 2;
  const covered = !middle || !(element.contains(middle) || middle.contains(element));
  return [
    element.dataset['control'] ?? element.outerHTML.slice(0, 80),
    `${ring ? '' : ' has no ring'}${covered ? ' is covered, or outside of the window' : ''}`,
  ];
}

/** The controls at which Tab stops; throws if the focus is not visible at one of them. */
async function stopsOf(page: Page): Promise<string[]> {
  const stops: string[] = [];
  while (stops.length < STOPS_MAX) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(focused);
    if (!at || stops.includes(at[0])) break;
    assert.equal(at[1], '', at[0]);
    stops.push(at[0]);
  }
  return stops;
}

for (const [width, colorScheme] of [
  [390, 'light'],
  [1280, 'dark'],
] as const) {
  test(`Tab stops at every control in order, and shows the focus, at ${width} px`, async (t) => {
    const server = await startServer(t);
    const look = { viewport: { width, height: 844 }, colorScheme } as const;
    const page = await openConsole(t, server, look);
    const service = server.client({ token: server.token('--user', 'writer', '--service') });
    await service.publish('demo.keys', { data: { n: 1 } });
    await page.locator('#topics').getByText('demo.keys').waitFor({ state: 'attached' });
    for (const hash of PLACES) {
      await page.goto(`${server.http}/${hash}`);
      if (hash === '#/connections') await page.locator('[data-client]').nth(1).waitFor();
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(done)));
      const all = await page.evaluate(controls);
      assert.ok(all.length > 10, hash);
      assert.deepEqual(await stopsOf(page), all, hash);
    }
  });

  test(`Escape closes each panel, which has the focus, and returns the focus at ${width} px`, async (t) => {
    const server = await startServer(t);
    const look = { viewport: { width, height: 844 }, colorScheme } as const;
    const page = await openConsole(t, server, look);
    for (const [button, panel] of [
      ['Connection: Connected', 'Connection'],
      [/^Account/, 'Account'],
      ['Keyboard shortcuts', 'Keyboard'],
    ] as const) {
      const opener = page.getByRole('button', { name: button });
      const dialog = page.getByRole('dialog', { name: panel });
      await opener.focus();
      await page.keyboard.press('Enter');
      await dialog.waitFor();
      assert.ok(
        await dialog.evaluate((element) => element.contains(document.activeElement)),
        `the focus enters ${panel}`,
      );
      assert.equal((await page.evaluate(focused))?.[1], '', panel);
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'hidden' });
      assert.ok(
        await opener.evaluate((element) => element === document.activeElement),
        `the focus returns from ${panel}`,
      );
    }
  });
}

test('the link that skips the header leads to the messages from every view of a phone', async (t) => {
  const server = await startServer(t);
  const look = { viewport: { width: 390, height: 844 } } as const;
  const page = await openConsole(t, server, look);
  for (const hash of PLACES) {
    await page.goto(`${server.http}/${hash}`);
    await page.evaluate(() => document.querySelector<HTMLElement>('.skip')?.focus());
    await page.keyboard.press('Enter');
    await page.locator('#messages').waitFor();
    assert.ok(
      await page.locator('#messages').evaluate((e) => e.contains(document.activeElement)),
      hash,
    );
  }
});
