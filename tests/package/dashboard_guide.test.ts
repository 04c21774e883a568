/** The dashboard of docs/dashboard.md, pasted into an empty folder: worker, page, and React page. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';
import { createServer } from 'vite';

import { launchChromium } from '../browser/chromium.js';
import { atEnd } from '../browser/ending.js';
import { BOUND, Server } from '../js/runtime/server.js';
import { hasStatus, openTab, PYTHON, paste } from './guide.js';

/** Run `python worker.py` until it ends. */
async function work(t: TestContext, folder: string, server: Server): Promise<void> {
  const child = spawn(PYTHON, ['worker.py'], {
    cwd: folder,
    env: {
      ...process.env,
      HANZO_PUBSUB_URL: server.ws,
      HANZO_PUBSUB_REST_URL: server.http,
      HANZO_PUBSUB_TOKEN: server.token('--user', 'worker', '--service'),
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  atEnd(t, () => void child.kill());
  assert.deepEqual(await once(child, 'exit'), [0, null]);
}

/** All three jobs are shown as finished. */
async function areDone(page: Page): Promise<void> {
  const reached = (): boolean => {
    const bars = [...document.querySelectorAll('progress')];
    const names = bars.map((bar) => bar.ariaLabel).sort();
    return `${names}` === 'import,index,resize' && bars.every(({ value, max }) => value === max);
  };
  await page.waitForFunction(reached, undefined, { timeout: BOUND });
}

test('the pages of the guide show live jobs, and all jobs to a late tab', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const folder = paste('dashboard');
  process.env['PUBSUB_HTTP'] = server.http;
  process.env['VITE_PUBSUB_URL'] = server.ws;
  const root = join(folder, 'page');
  const site = await createServer({
    root,
    logLevel: 'error',
    server: { host: '127.0.0.1', port: 0 },
  });
  atEnd(t, () => site.close());
  await site.listen();
  const address = site.resolvedUrls?.local[0] ?? '';
  const { browser, stop } = await launchChromium();
  atEnd(t, stop);
  const open = async (path: string): Promise<Page> => {
    const page = await openTab(browser, `${address}${path}`);
    await hasStatus(page, 'connected');
    return page;
  };

  const early = [await open(''), await open('react.html')];
  const working = work(t, folder, server);
  for (const page of early) await page.getByRole('progressbar').nth(2).waitFor({ timeout: BOUND });
  await working;
  for (const page of [...early, await open(''), await open('react.html')]) await areDone(page);
});
