/** The chat of docs/streaming-chat.md, pasted into an empty folder: backend, page, and the experiments. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';
import { build, preview } from 'vite';

import { launchChromium } from '../browser/chromium.js';
import { atEnd } from '../browser/ending.js';
import { BOUND, Server } from '../js/runtime/server.js';
import { ROOT, run } from './application.js';
import { hasStatus, openTab, PYTHON, paste } from './guide.js';

/** Run `uvicorn backend:app`; returns its URL when it answers. */
async function startBackend(t: TestContext, folder: string, server: Server): Promise<string> {
  const child = spawn(PYTHON, ['-m', 'uvicorn', 'backend:app', '--port', '0'], {
    cwd: folder,
    env: {
      ...process.env,
      HANZO_PUBSUB_URL: server.ws,
      HANZO_PUBSUB_REST_URL: server.http,
      HANZO_PUBSUB_TOKEN: server.token('--user', 'answers', '--service'),
      HANZO_PUBSUB_DEV_KEY_FILE: server.keyFile,
    },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let text = '';
  const started = new Promise<string>((resolve, reject) => {
    child.stderr.on('data', (chunk: Buffer) => {
      text = `${text}${chunk}`.slice(-4_000);
      const [, url] = /Uvicorn running on (http:\S+:\d+) /.exec(text) ?? [];
      if (url) resolve(url);
    });
    child.once('exit', () => reject(new Error(`The backend ended: ${text}`)));
  });
  const ended = once(child, 'exit');
  atEnd(t, async () => {
    child.kill();
    await ended;
  });
  return started;
}

const answer = (page: Page): Promise<string> => page.locator('article').innerText();

async function hasText(page: Page, least: number): Promise<string> {
  const found = (least: number) =>
    (document.querySelector('article')?.innerText ?? '').length > least;
  await page.waitForFunction(found, least, { timeout: BOUND });
  return answer(page);
}

async function ask(page: Page, question: string): Promise<void> {
  await page.getByLabel('Question').fill(question);
  await page.getByRole('button', { name: 'Ask' }).click();
}

/** Type-check both pages of the guide strictly, and build them with Vite; returns the URL. */
async function serve(t: TestContext, folder: string): Promise<string> {
  const root = join(folder, 'page');
  const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  const types = ['--types', 'vite/client,node', '--jsx', 'react-jsx', '--module', 'esnext'];
  const strict = ['--strict', '--noEmit', '--skipLibCheck', '--moduleResolution', 'bundler'];
  const files = ['--target', 'es2022', 'main.tsx', 'plain.ts'];
  await run(process.execPath, [compiler, ...strict, ...types, ...files], { cwd: root });
  const input = [join(root, 'index.html'), join(root, 'plain.html')];
  await build({ root, logLevel: 'error', build: { rolldownOptions: { input } } });
  const site = await preview({ root, logLevel: 'error', preview: { host: '127.0.0.1', port: 0 } });
  atEnd(t, () => site.close());
  return site.resolvedUrls?.local[0] ?? '';
}

test('the chat of the guide streams, continues after a reload, and stops in every tab', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const folder = paste('streaming-chat');
  process.env['BACKEND'] = await startBackend(t, folder, server);
  process.env['VITE_PUBSUB_URL'] = server.ws;
  const address = await serve(t, folder);
  const { browser, stop } = await launchChromium();
  atEnd(t, stop);
  const open = (path = ''): Promise<Page> => openTab(browser, `${address}${path}`);

  const [ana, ben, plain] = [await open(), await open(), await open('plain.html')];
  for (const page of [ben, plain]) await hasStatus(page, 'waiting');
  await ask(ana, 'Why 漢字?');
  for (const page of [ana, ben, plain])
    assert.match(await hasText(page, 60), /^You asked: Why 漢字\?\n/);
  const [late, latePlain] = [await open(), await open('plain.html')];
  const before = await answer(ben);
  for (const page of [late, latePlain])
    assert.ok((await hasText(page, before.length)).startsWith(before), 'a late tab has all of it');
  await ana.reload();
  assert.ok((await hasText(ana, before.length + 40)).startsWith(before), 'a reload continues it');

  const tabs = [ana, ben, late, plain, latePlain];
  await plain.getByRole('button', { name: 'Stop' }).click();
  for (const page of tabs) await hasStatus(page, 'aborted');
  const texts = await Promise.all(tabs.map(answer));
  assert.deepEqual(texts, Array(tabs.length).fill(texts[0]));
  assert.ok((texts[0]?.length ?? 0) < 4_000, 'it was stopped before its end');

  await ask(latePlain, 'And now?');
  for (const page of tabs) {
    await hasStatus(page, 'streaming');
    assert.match(await hasText(page, 40), /^You asked: And now\?\n/);
  }

  await plain.getByRole('button', { name: 'Stop' }).click();
  for (const page of tabs) await hasStatus(page, 'aborted');
  for (const [page, role] of [
    [ana, 'alert'],
    [plain, 'status'],
  ] as const) {
    await page.route('**/api/ask', (route) => route.fulfill({ status: 503 }));
    await ask(page, 'Are you there?');
    await page.getByRole(role).getByText('The backend answered 503.').waitFor();
  }
});
