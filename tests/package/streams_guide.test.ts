/** The chat of docs/streams.md, pasted into an empty folder: backend, page, and what to try. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';
import { build, preview } from 'vite';

import { launchChromium } from '../browser/chromium.js';
import { atEnd } from '../browser/ending.js';
import { BOUND, Server } from '../js/runtime/server.js';
import { APPLICATION, ROOT, run } from './application.js';

const FILE = /^```\w+ title="([^"]+)"\n(.*?)^```/gms;
const local = join(ROOT, '.venv', 'bin', 'python');
const PYTHON = existsSync(local) ? local : 'python3';

/** A folder with the files of the page; what `npm install` adds is copied from the checkout. */
function paste(): string {
  const folder = join(APPLICATION, 'guide');
  const text = readFileSync(join(ROOT, 'docs', 'streams.md'), 'utf8');
  for (const [, name = '', content = ''] of text.matchAll(FILE)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), content);
  }
  const modules = join(folder, 'page', 'node_modules');
  mkdirSync(join(modules, '@hanzoai'), { recursive: true });
  for (const name of ['react', 'react-dom', 'scheduler'])
    cpSync(join(ROOT, 'node_modules', name), join(modules, name), { recursive: true });
  // Copied, so that it finds the React beside it.
  const installed = join(APPLICATION, 'node_modules', '@hanzoai', 'pubsub');
  cpSync(installed, join(modules, '@hanzoai', 'pubsub'), { recursive: true, dereference: true });
  for (const name of ['vite', '@types'])
    symlinkSync(join(ROOT, 'node_modules', name), join(modules, name));
  return folder;
}

async function freePort(): Promise<number> {
  const listener = createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  listener.close();
  await once(listener, 'close');
  return typeof address === 'object' ? (address?.port ?? 0) : 0;
}

/** `uvicorn backend:app`, and its address once it answers. */
async function startBackend(t: TestContext, folder: string, server: Server): Promise<string> {
  const port = await freePort();
  const child = spawn(PYTHON, ['-m', 'uvicorn', 'backend:app', '--port', `${port}`], {
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
  let said = '';
  const started = new Promise<void>((resolve, reject) => {
    child.stderr.on('data', (chunk: Buffer) => {
      said = `${said}${chunk}`.slice(-4_000);
      if (said.includes('Uvicorn running')) resolve();
    });
    child.once('exit', () => reject(new Error(`The backend ended: ${said}`)));
  });
  const ended = once(child, 'exit');
  atEnd(t, async () => {
    child.kill();
    await ended;
  });
  await started;
  return `http://127.0.0.1:${port}`;
}

const answer = (page: Page): Promise<string> => page.locator('article').innerText();

async function hasText(page: Page, least: number): Promise<string> {
  const found = (least: number) =>
    (document.querySelector('article')?.innerText ?? '').length > least;
  await page.waitForFunction(found, least, { timeout: BOUND });
  return answer(page);
}

async function hasStatus(page: Page, status: string): Promise<void> {
  await page.getByRole('status').filter({ hasText: status }).waitFor({ timeout: BOUND });
}

async function ask(page: Page, question: string): Promise<void> {
  await page.getByLabel('Question').fill(question);
  await page.getByRole('button', { name: 'Ask' }).click();
}

test('the chat of the guide streams, continues after a reload, and stops in every tab', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const folder = paste();
  process.env['BACKEND'] = await startBackend(t, folder, server);
  process.env['VITE_PUBSUB_URL'] = server.ws;
  const root = join(folder, 'page');
  const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  const types = ['--types', 'vite/client,node', '--jsx', 'react-jsx', '--module', 'esnext'];
  const strict = ['--strict', '--noEmit', '--skipLibCheck', '--moduleResolution', 'bundler'];
  await run(process.execPath, [compiler, ...strict, ...types, '--target', 'es2022', 'main.tsx'], {
    cwd: root,
  });
  await build({ root, logLevel: 'error' });
  const site = await preview({ root, logLevel: 'error', preview: { host: '127.0.0.1', port: 0 } });
  atEnd(t, () => site.close());
  const { browser, stop } = await launchChromium();
  atEnd(t, stop);
  const open = async (): Promise<Page> => {
    const page = await browser.newPage();
    page.setDefaultTimeout(BOUND);
    await page.goto(site.resolvedUrls?.local[0] ?? '');
    return page;
  };

  const [ana, ben] = [await open(), await open()];
  await hasStatus(ben, 'waiting');
  await ask(ana, 'Why 漢字?');
  for (const page of [ana, ben]) assert.match(await hasText(page, 60), /^You asked: Why 漢字\?\n/);
  const late = await open();
  const before = await answer(ben);
  assert.ok((await hasText(late, before.length)).startsWith(before), 'a late tab has all of it');
  await ana.reload();
  assert.ok((await hasText(ana, before.length + 40)).startsWith(before), 'a reload continues it');

  await ben.getByRole('button', { name: 'Stop' }).click();
  for (const page of [ana, ben, late]) await hasStatus(page, 'aborted');
  const texts = await Promise.all([ana, ben, late].map(answer));
  assert.deepEqual(texts, [texts[0], texts[0], texts[0]]);
  assert.ok((texts[0]?.length ?? 0) < 4_000, 'it was stopped before its end');

  await ask(late, 'And now?');
  for (const page of [ana, ben, late]) {
    await hasStatus(page, 'streaming');
    assert.match(await hasText(page, 40), /^You asked: And now\?\n/);
  }
});
