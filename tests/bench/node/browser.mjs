// Pages in Chromium that read a blaster's messages.
// Usage: node browser.mjs NAME PORT COUNT; prints {cpu_us, per_second}: of the page's process.

import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';
import { TOPIC } from './meter.mjs';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const here = fileURLToPath(new URL('.', import.meta.url));

/** What a page does; `take` gets the index of each message. */
const PAGES = {
  'WebSocket + JSON.parse': `
    const socket = new WebSocket(url);
    const say = (frame) => socket.send(JSON.stringify(frame));
    const read = ({ data }) => take(JSON.parse(data).message.data.index);
    socket.onopen = () => say({ type: 'auth', token: 't' });
    socket.onmessage = () => {
      socket.onmessage = () => { socket.onmessage = read; };
      say({ type: 'subscribe', topics: [topic] });
    };`,
  '@hanzoai/pubsub, for await': `
    import { PubSub } from '../../../js/dist/index.js';
    const ps = new PubSub({ url, token: 't', transport: 'websocket' });
    for await (const { data } of await ps.subscribe(topic)) take(data.index);`,
};

const PAGE = `
  const { url, topic, count } = window.given;
  let seen = 0;
  let began;
  const finished = new Promise((resolve) => { window.finish = resolve; });
  window.finished = finished;
  function take(index) {
    if (index !== seen) throw new Error(index + ' came where ' + seen + ' was due');
    seen += 1;
    if (seen === 1) began = performance.now();
    if (seen === count) window.finish(performance.now() - began);
  }`;

async function bundle(name) {
  const { outputFiles } = await build({
    stdin: { contents: PAGE + PAGES[name], resolveDir: here },
    bundle: true,
    format: 'esm',
    minify: true,
    write: false,
  });
  return outputFiles[0].text;
}

/** CPU time of the processes of pages, seconds. */
async function cpuTime(session) {
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  return processInfo
    .filter(({ type }) => type === 'renderer')
    .reduce((sum, one) => sum + one.cpuTime, 0);
}

const [name, port, given] = process.argv.slice(2);
const count = Number(given);
const executablePath = (process.env.PATH ?? '')
  .split(delimiter)
  .flatMap((folder) => NAMES.map((one) => join(folder, one)))
  .find(existsSync);
if (!executablePath) throw new Error('No Chromium on PATH.');
const server = createServer((_, response) => {
  response.setHeader('Content-Type', 'text/html').end('<!doctype html>');
});
await once(server.listen(0, '127.0.0.1'), 'listening');
const home = mkdtempSync(join(tmpdir(), 'pubsub-bench-'));
const browser = await chromium.launch({
  executablePath,
  args: ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'],
  env: { ...process.env, HOME: home, XDG_CONFIG_HOME: home, XDG_CACHE_HOME: home },
});
try {
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  const session = await browser.newBrowserCDPSession();
  const url = `ws://127.0.0.1:${port}/ws`;
  await page.evaluate((all) => Object.assign(window, { given: all }), { url, topic: TOPIC, count });
  const before = await cpuTime(session);
  await page.addScriptTag({ type: 'module', content: await bundle(name) });
  const milliseconds = await page.evaluate(() => window.finished);
  const seconds = (await cpuTime(session)) - before;
  const result = { cpu_us: (seconds / count) * 1e6, per_second: (count / milliseconds) * 1000 };
  process.stdout.write(`${JSON.stringify(result)}\n`);
} finally {
  await browser.close();
  server.close();
  rmSync(home, { recursive: true, force: true, maxRetries: 9 });
}
