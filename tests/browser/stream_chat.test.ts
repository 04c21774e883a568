import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { type TestContext, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';

import { slipsOf } from './accessibility.js';
import { axeViolations } from './axe.js';
import { atEnd, bounded, openPage, openProfile, shot, until } from './harness.js';

const local = join(process.cwd(), '.venv', 'bin', 'python');
const PYTHON = existsSync(local) ? local : 'python3';
/** An emoji, an emoji of several code points, and two languages without spaces and ASCII. */
const MARKS =
  'Why \u{1f9d1}\u200d\u{1f680} \u{1f468}\u200d\u{1f469}\u200d\u{1f467}\u200d\u{1f466} 消息的顺序 e\u0301?';
/** Timeout of an answer in milliseconds, also for a busy machine. */
const ANSWER = 120_000;

declare global {
  /** Every state of the text of an answer that a tab has shown, in order. */
  var shownTexts: string[];
}

/** Start the chat as a user does; returns the URL of its page. */
async function startChat(t: TestContext, ...flags: string[]): Promise<string> {
  const chat: ChildProcess = spawn(PYTHON, ['examples/chat', ...flags], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(chat, 'exit');
  atEnd(t, async () => {
    chat.kill();
    await bounded(ended, 'the end of the chat');
  });
  const { stdout } = chat;
  assert.ok(stdout);
  return bounded(
    new Promise<string>((resolve, reject) => {
      createInterface({ input: stdout }).on('line', (line) => {
        const found = /^chat: (\S+)/.exec(line);
        if (found?.[1]) resolve(found[1]);
      });
      ended.then(() => reject(new Error('The chat ended.')));
    }),
    'the address of the page',
  );
}

/** Open a tab of a user, and wait until it is in the room. */
async function enter(
  t: TestContext,
  url: string,
  user: string,
  look: { width: number; height: number } = { width: 1280, height: 860 },
): Promise<Page> {
  const profile = await openProfile(t, { viewport: look, reducedMotion: 'reduce' });
  const page = await openPage(t, { url }, { profile, path: `?user=${user}` });
  await page.locator('main[aria-busy=false]').waitFor();
  await page.locator(`.people [data-user="${user}"]`).waitFor();
  await page.locator('.people [data-user="scribe"]').waitFor();
  return page;
}

async function say(page: Page, text: string): Promise<void> {
  await page.getByLabel('Message', { exact: true }).fill(text);
  await page.keyboard.press('Enter');
}

const answer = (page: Page): Locator => page.locator('.answer').last();

const textOf = (page: Page): Promise<string> =>
  answer(page).evaluate((shown) =>
    [...shown.querySelectorAll('.words')].map((part) => part.textContent).join(''),
  );

/** Record every state of the newest answer's text, until the page is reloaded. */
async function record(page: Page): Promise<void> {
  await page.evaluate(() => {
    globalThis.shownTexts = [];
    const look = (): void => {
      const shown = [...document.querySelectorAll('.answer')].at(-1);
      const words = shown?.querySelectorAll('.words') ?? [];
      const text = [...words].map((part) => part.textContent).join('');
      if (text && text !== globalThis.shownTexts.at(-1)) globalThis.shownTexts.push(text);
    };
    new MutationObserver(look).observe(document.body, {
      subtree: true,
      childList: true,
      characterData: true,
    });
    look();
  });
}

/** Each text that a tab showed extends the previous one, and is the beginning of the whole text. */
async function assertGrew(page: Page, whole: string): Promise<void> {
  const texts = await page.evaluate(() => globalThis.shownTexts);
  assert.ok(texts.length > 0);
  let before = '';
  for (const text of texts) {
    assert.ok(text.startsWith(before), `${JSON.stringify(text)} after ${JSON.stringify(before)}`);
    before = text;
  }
  assert.ok(whole.startsWith(before));
}

/** Resolves when an element shows this text, even for a short moment. Call it before the cause. */
function shows(page: Page, selector: string, text: string): Promise<void> {
  return bounded(
    page.evaluate(
      ({ selector, text }) =>
        new Promise<void>((resolve) => {
          const look = (): void => {
            const found = [...document.querySelectorAll(selector)];
            if (!found.some((each) => each.textContent?.includes(text))) return;
            observer.disconnect();
            resolve();
          };
          const observer = new MutationObserver(look);
          observer.observe(document.body, { subtree: true, childList: true, characterData: true });
          look();
        }),
      { selector, text },
    ),
    `${selector} with ${text}`,
  );
}

async function hasWords(page: Page, least: number): Promise<void> {
  await until(
    page,
    (least) => {
      const shown = [...document.querySelectorAll('.answer')].at(-1);
      const words = [...(shown?.querySelectorAll('.words') ?? [])].map((part) => part.textContent);
      return words.join('').split(/\s+/).length > least;
    },
    least,
    ANSWER,
  );
}

async function ends(page: Page, status: 'done' | 'aborted'): Promise<void> {
  await page.locator(`.answer[data-status="${status}"]`).last().waitFor({ timeout: ANSWER });
  await until(
    page,
    (status) =>
      [...document.querySelectorAll('.answer')].at(-1)?.getAttribute('data-status') === status,
    status,
  );
}

test('two tabs see an answer and its tool call grow, and each stops it for both', async (t) => {
  const url = await startChat(t);
  const ana = await enter(t, url, 'ana');
  await shot(ana, 'stream-chat-welcome');
  const ben = await enter(t, url, 'ben');

  const typing = shows(ana, '.composer .typing', 'ben is typing');
  await ben.getByLabel('Message', { exact: true }).pressSequentially('Hello');
  await typing;
  await ben.keyboard.press('Enter');
  await ana.locator('.said', { hasText: 'Hello' }).waitFor();
  await until(ana, () => document.querySelector('.composer .typing')?.textContent === '');
  assert.equal(await ana.locator('.answer').count(), 0, 'no answer without a question');

  const filling = shows(ben, '.tool', 'filling in');
  await say(ana, MARKS);
  await filling;
  await ben.locator('.tool dd i', { hasText: '消息的顺序' }).waitFor();
  await ben.locator('.found', { hasText: 'passage' }).waitFor();
  await hasWords(ben, 30);
  await ben.getByRole('button', { name: 'Stop' }).click();
  for (const page of [ana, ben]) {
    await ends(page, 'aborted');
    assert.equal(await answer(page).getByRole('status').innerText(), 'stopped by ben');
  }
  const stopped = await textOf(ana);
  assert.equal(await textOf(ben), stopped);
  assert.ok(stopped.startsWith(`“${MARKS}” I search the text for that. `), stopped);
  assert.ok(stopped.length < 900, 'the answer was stopped before its end');

  // A latecomer sees the history: the messages, and the complete answer.
  const chen = await enter(t, url, 'chen');
  await chen.locator('.said', { hasText: 'Hello' }).waitFor();
  await ends(chen, 'aborted');
  assert.equal(await textOf(chen), stopped);
});

test('readers steer a running answer from two tabs, and both end with the same text', async (t) => {
  const url = await startChat(t);
  const ana = await enter(t, url, 'ana');
  const ben = await enter(t, url, 'ben');
  await say(ana, 'What could a fire on a hill say?');
  await record(ben);
  await hasWords(ben, 20);
  await ben.getByRole('button', { name: 'One more passage' }).click();
  await ana.locator('.steer', { hasText: 'ben asked for one more passage' }).waitFor();
  await until(
    ana,
    () => document.querySelectorAll('.answer .source').length === 2,
    undefined,
    ANSWER,
  );
  await ana.getByRole('button', { name: 'Shorter' }).click();
  await ben.locator('.steer', { hasText: 'ana asked for shorter' }).waitFor();
  for (const page of [ana, ben]) {
    await ends(page, 'done');
    assert.equal(await page.locator('.answer .source').count(), 3, 'one more than two');
  }
  const whole = await textOf(ana);
  assert.equal(await textOf(ben), whole);
  assert.match(whole, /\.$/, 'it ends with a sentence');
  await assertGrew(ben, whole);
});

test('an answer survives a reload and the SIGKILL of its writer, code point for code point', async (t) => {
  const url = await startChat(t);
  const ana = await enter(t, url, 'ana');
  const ben = await enter(t, url, 'ben');
  await record(ana);
  await say(ana, MARKS);
  await record(ben);
  await hasWords(ben, 25);

  const before = await textOf(ben);
  await ben.reload();
  await record(ben);
  await hasWords(ben, 30);
  const after = await ben.evaluate(() => globalThis.shownTexts);
  assert.ok(after.length > 0 && after.every((text) => text.startsWith(before)));

  await ana.getByRole('button', { name: 'Kill the writer' }).click();
  await ana.getByText(/^Killed process \d+/).waitFor();
  await ben.locator('[data-note="writer.died"]').waitFor();
  await ben.locator('.answer', { hasText: 'waiting for another writer' }).waitFor();
  await ben.locator('[data-note="writer.started"]').waitFor();
  // The other tab kills the writer again, and this time the user reloads the page while no process
  // writes.
  await hasWords(ben, 80);
  await ben.getByRole('button', { name: 'Kill the writer' }).click();
  await ana.locator('[data-note="writer.died"]').nth(1).waitFor();
  await ben.reload();
  await record(ben);
  for (const page of [ana, ben]) await ends(page, 'done');

  const whole = await textOf(ana);
  assert.deepEqual([...(await textOf(ben))], [...whole]);
  for (const page of [ana, ben]) await assertGrew(page, whole);
  // The same question with a surviving writer has the same answer.
  await say(ana, MARKS);
  await ana.locator('.answer').nth(1).waitFor();
  await ends(ana, 'done');
  assert.deepEqual([...(await textOf(ana))], [...whole]);
});

test('the room shows why a suggestion was not sent, until one is', async (t) => {
  const url = await startChat(t);
  const ana = await enter(t, url, 'ana');
  let isRefusing = true;
  await ana.routeWebSocket('**', (socket) => {
    const server = socket.connectToServer();
    socket.onMessage((text) => {
      const { type, ref, message } = JSON.parse(String(text));
      if (!isRefusing || type !== 'publish' || message.type !== 'question')
        return server.send(text);
      const refusal = { type: 'error', ref, code: 'forbidden', message: 'Nobody may ask now.' };
      return socket.send(JSON.stringify(refusal));
    });
  });
  await ana.reload();
  const suggestion = ana.locator('.welcome').getByRole('button').first();
  await suggestion.click();
  const alert = ana.locator('.welcome [role=alert]');
  await alert.getByText(/^Not sent: Nobody may ask now\b/).waitFor();
  isRefusing = false;
  await suggestion.click();
  await ana.locator('.said', { hasText: 'Why did the relay' }).waitFor();
  assert.equal(await alert.count(), 0, 'the conversation replaces the welcome');
});

test('the chat works with the keyboard, and has no problems at three widths, light and dark', async (t) => {
  const url = await startChat(t);
  const ana = await enter(t, url, 'ana');
  const ben = await enter(t, url, 'ben');
  const [below, above] = await ana.locator('[aria-labelledby=break]').evaluate((card) => {
    const { paddingTop, paddingBottom } = getComputedStyle(card);
    const last = card.querySelector('.breaks')?.getBoundingClientRect().bottom ?? 0;
    const free = card.getBoundingClientRect().bottom - last;
    return [free - Number.parseFloat(paddingBottom), Number.parseFloat(paddingTop)] as const;
  });
  assert.ok(below < above, `${below} px are blank below the last button of the card`);
  await say(ben, 'Shall we ask about the relay?');
  await ends(ana, 'done');

  const ask = async (): Promise<void> => {
    await ana.getByLabel('Message', { exact: true }).focus();
    await ana.keyboard.type('Why did the relay make the post fast?');
    await ana.keyboard.press('Enter');
    await ana.locator('.answer[data-status="streaming"]').last().waitFor({ timeout: ANSWER });
    await hasWords(ana, 40);
  };
  // With the keyboard alone: write, send, and reach Stop.
  await ask();
  await ana.keyboard.press('Shift+Tab');
  for (let n = 0; n < 8; n += 1) {
    const name = await ana.evaluate(() => document.activeElement?.textContent);
    if (name === 'Stop') break;
    await ana.keyboard.press('Shift+Tab');
  }
  await ana.keyboard.press('Enter');
  await ends(ana, 'aborted');
  await ends(ben, 'aborted');

  await ask();
  await ben.getByLabel('Message', { exact: true }).pressSequentially('Good');
  for (const [width, height] of [
    [1280, 860],
    [768, 1024],
    [390, 844],
  ] as const) {
    await ana.setViewportSize({ width, height });
    for (const colorScheme of ['light', 'dark'] as const) {
      await ana.emulateMedia({ colorScheme });
      assert.deepEqual(await slipsOf(ana), [], `${width} ${colorScheme}`);
      assert.deepEqual(await axeViolations(ana), [], `${width} ${colorScheme}`);
      await shot(ana, `stream-chat-${width}-${colorScheme}`);
    }
  }
});
