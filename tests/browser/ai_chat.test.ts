import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';

import { type StreamWriter, writeStream } from '../../js/src/streams/index.js';
import { addresses, openPage, type Server, shot, startServer, until } from './harness.js';

/** Words, an emoji of several code points, and a language without spaces. */
const PIECES = ['Hello ', 'wörld ', '\u{1f468}\u200d\u{1f469}\u200d\u{1f467} ', '漢字 '];

/** A route that starts answers, which last until they are ended, and the pages that use it. */
function route(t: TestContext, server: Server) {
  const gateway = server.client({ token: server.token('--user', 'gateway', '--service') });
  const writers: StreamWriter[] = [];
  const asked: unknown[] = [];
  const written: string[] = [];
  async function* model(signal: AbortSignal) {
    for (let n = 0; !signal.aborted; n += 1) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      const piece = PIECES[n % PIECES.length] as string;
      written.push(piece);
      yield piece;
    }
  }
  const begin = async (body: string): Promise<string> => {
    asked.push(JSON.parse(body));
    const writer = await writeStream(gateway, 'demo.session.abc');
    writers.push(writer);
    writer.pipe(model(writer.signal)).catch(() => {});
    return writer.id;
  };
  const open = (user: string): Promise<Page> => {
    const options = { ...addresses(server), token: server.token('--user', user) };
    return openPage(t, {
      entry: 'pages/ai_chat.tsx',
      given: { options },
      functions: { begin },
      // As while a program is written: StrictMode then resumes the chat twice.
      development: true,
    });
  };
  return { open, writers, asked, written };
}

async function hasText(page: Page, least: number): Promise<void> {
  const found = (least: number) =>
    (document.querySelector('[data-role=assistant]')?.textContent?.length ?? 0) > least;
  await until(page, found, least);
}

const answer = (page: Page): Promise<string> =>
  page.locator('[data-role=assistant]').evaluate((item) => item.textContent ?? '');

test('an answer of useChat survives a reload, and stop() ends it in the page that resumed it', async (t) => {
  const server = await startServer(t);
  const { open, writers, asked, written } = route(t, server);
  const page = await open('ana');
  await page.getByLabel('Message').fill('Go on, please');
  await page.keyboard.press('Enter');
  await hasText(page, 100);
  await page.locator('main[data-status=streaming]').waitFor();
  assert.equal(asked.length, 1);

  const before = await answer(page);
  await page.reload();
  await hasText(page, before.length + 100);
  assert.ok((await answer(page)).startsWith(before), 'it is shown from its beginning');
  assert.equal(asked.length, 1, 'a reload asks for no other answer');
  const other = await open('ana');
  await hasText(other, before.length);
  await shot(other, 'ai-chat');

  const [writer] = writers;
  assert.ok(writer && !writer.signal.aborted, 'a reload and another page stop nothing');
  await page.getByRole('button', { name: 'Stop' }).click();
  await until(page, () => document.querySelector('main')?.dataset['status'] === 'ready');
  await until(other, () => document.querySelector('main')?.dataset['status'] === 'ready');
  assert.ok(writer.signal.aborted);
  const whole = await answer(other);
  assert.ok(written.join('').startsWith(whole));
  assert.ok(whole.startsWith(await answer(page)), 'what the page showed when it stopped');
  assert.equal(await page.locator('[role=alert]').innerText(), '');

  // A finished answer cannot be resumed; the next answer is a different one.
  await page.reload();
  await page.getByLabel('Message').fill('And again');
  await page.keyboard.press('Enter');
  await hasText(page, 100);
  assert.equal(writers.length, 2);
  await page.getByRole('button', { name: 'Stop' }).click();
  await until(page, () => document.querySelector('main')?.dataset['status'] === 'ready');
});
