// Starts the system's Chromium without a window, with an empty page.

import { once } from 'node:events';
import { existsSync, mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const here = fileURLToPath(new URL('.', import.meta.url));

/** Playwright's defaults make pages behave alike; the benchmarks need the real behaviour. */
const UNWANTED = [
  '--disable-background-timer-throttling',
  '--disable-backgrounding-occluded-windows',
  '--disable-renderer-backgrounding',
];

/** Bundle a script for a page into one file. */
export async function bundle(contents) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: here },
    bundle: true,
    format: 'esm',
    minify: true,
    write: false,
  });
  return outputFiles[0].text;
}

/** Call `use` with a browser and the address of an empty page; close both afterwards. */
export async function withChromium(use) {
  const executablePath = (process.env.PATH ?? '')
    .split(delimiter)
    .flatMap((folder) => NAMES.map((name) => join(folder, name)))
    .find(existsSync);
  if (!executablePath) throw new Error('No Chromium on PATH.');
  const server = createServer((_, response) => {
    response.setHeader('Content-Type', 'text/html').end('<!doctype html>');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const home = mkdtempSync(join(tmpdir(), 'pubsub-bench-'));
  const browser = await chromium.launch({
    executablePath,
    args: [
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
    ignoreDefaultArgs: UNWANTED,
    env: { ...process.env, HOME: home, XDG_CONFIG_HOME: home, XDG_CACHE_HOME: home },
  });
  try {
    return await use(browser, `http://127.0.0.1:${server.address().port}/`);
  } finally {
    await browser.close();
    server.close();
    await rm(home, { recursive: true, force: true, maxRetries: 9 });
  }
}
