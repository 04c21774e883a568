/** The page without a bundler of docs/browsers.md, pasted into an empty folder. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { type TestContext, test } from 'node:test';
import { build } from 'esbuild';

import { launchChromium } from '../browser/chromium.js';
import { atEnd } from '../browser/ending.js';
import { BOUND, bounded, Server } from '../js/runtime/server.js';
import { APPLICATION, INSTALLED, ROOT } from './application.js';
import { hasStatus, openTab } from './guide.js';

const FILE = /^```\w+ title="(plain_server\.ts|public\/[^"]+|pubsub_token\.ts)"\n(.*?)^```/gms;

/** Tells the port of the program, which listens on any free one. */
const TELL_PORT = `
  import { Server } from 'node:net';
  const { listen } = Server.prototype;
  Server.prototype.listen = function (...given) {
    return listen.apply(this, given).once('listening', () => console.log(this.address().port));
  };
`;

/** Paste the files with the addresses of this server, and run the program; returns its URL. */
async function serve(t: TestContext, server: Server): Promise<string> {
  const folder = mkdtempSync(join(APPLICATION, 'plain-'));
  const { origin } = new URL(server.ws);
  for (const page of ['browsers', 'typescript']) {
    const text = readFileSync(join(ROOT, 'docs', `${page}.md`), 'utf8');
    for (const [, file = '', shown = ''] of text.matchAll(FILE)) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      const local = shown
        .replaceAll('ws://127.0.0.1:8057', origin)
        .replaceAll('http://127.0.0.1:8056', server.http);
      writeFileSync(join(folder, file), local);
    }
  }
  mkdirSync(join(folder, 'node_modules', '@hanzoai'), { recursive: true });
  symlinkSync(INSTALLED, join(folder, 'node_modules', '@hanzoai', 'pubsub'));
  symlinkSync(join(ROOT, 'node_modules', 'express'), join(folder, 'node_modules', 'express'));
  writeFileSync(join(folder, 'port.mjs'), TELL_PORT);
  await build({
    absWorkingDir: folder,
    entryPoints: ['plain_server.ts'],
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    outfile: 'plain_server.mjs',
  });
  const child = spawn(process.execPath, ['--import', './port.mjs', 'plain_server.mjs'], {
    cwd: folder,
    env: { ...process.env, PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  atEnd(t, async () => {
    child.kill();
    await ended;
  });
  const [port] = await bounded(once(createInterface({ input: child.stdout }), 'line'), 'the port');
  return `http://127.0.0.1:${Number(port)}/`;
}

test('a page without a bundler sends and shows messages under a strict policy', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const address = await serve(t, server);
  const { browser, stop } = await launchChromium();
  atEnd(t, stop);
  const [ana, ben] = [await openTab(browser, address), await openTab(browser, address)];
  const problems: string[] = [];
  for (const page of [ana, ben]) {
    page.on('pageerror', ({ message }) => problems.push(message));
    await hasStatus(page, 'connected');
  }
  await ana.getByLabel('Message', { exact: true }).fill('<b>hello</b>');
  await ana.getByRole('button', { name: 'Send' }).click();
  for (const page of [ana, ben])
    await page.getByText('alice: <b>hello</b>').waitFor({ timeout: BOUND });
  const late = await openTab(browser, address);
  await late.getByText('alice: <b>hello</b>').waitFor({ timeout: BOUND });
  assert.deepEqual(problems, []);
});

test('the console of Chromium shows the remedy of an uncaught error', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const url = await serve(t, server);
  const { browser, stop } = await launchChromium();
  atEnd(t, stop);
  const page = await browser.newPage();
  await page.goto(url);
  const console = await page.context().newCDPSession(page);
  const shown = new Promise<string>((resolve) => {
    console.on('Runtime.exceptionThrown', ({ exceptionDetails: { exception } }) =>
      resolve(exception?.description ?? ''),
    );
  });
  await console.send('Runtime.enable');
  await page.evaluate(async (module) => {
    const { PubSub } = await import(module);
    setTimeout(() => new PubSub({}));
  }, '/pubsub/index.js');
  const lines = (await bounded(shown, 'the error')).split('\n');
  assert.equal(lines[0], 'InvalidOption: No URL was given.');
  assert.match(lines.at(-1) ?? '', /^No URL was given\. Pass `url`.* See https:/);
});
