// Draws the dashboard with Grafana's own panels, from the data of a Prometheus.
// Usage: node draw.mjs PROMETHEUS PICTURE FROM TO SCRAPED_EVERY. FROM and TO are Unix milliseconds,
// SCRAPED_EVERY is seconds. PICTURE is a WebP. Exits with 1 if a panel has no data or the page reports an error.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';

// Width of the window in CSS pixels. A small width with a high scale is easier to read on a page.
const WIDTH = 1200;
const SCALE = 1.25;
const QUALITY = 75;
/** Maximum milliseconds for each step. */
const BOUND = 20_000;
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const here = fileURLToPath(new URL('.', import.meta.url));
const board = join(here, '../../server-mock/deploy/grafana/hanzo-pubsub.json');
const require = createRequire(import.meta.url);
const icons = join(dirname(require.resolve('@grafana/ui/package.json')), 'dist/public/img/icons');
const fonts = join(dirname(require.resolve('@fontsource/inter/package.json')), 'files');
// Maps the paths that Grafana's code requests to files.
const files = new Map([
  ['public/fonts/inter/Inter-Regular.woff2', join(fonts, 'inter-latin-400-normal.woff2')],
  ['public/fonts/inter/Inter-Medium.woff2', join(fonts, 'inter-latin-500-normal.woff2')],
]);

const [prometheus, picture, from, to, scrapedEvery] = process.argv.slice(2);
// Same origin as Prometheus, because a browser passes its responses to no other page.
const address = `${prometheus}/dashboard/`;
const given = {
  board: JSON.parse(readFileSync(board, 'utf8')),
  from: Number(from),
  to: Number(to),
  scrapedEvery: Number(scrapedEvery),
};

const { outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: ['page/main.tsx'],
  bundle: true,
  format: 'esm',
  jsx: 'automatic',
  outdir: 'out',
  write: false,
  define: { 'process.env.NODE_ENV': '"production"', global: 'globalThis' },
  loader: { '.ttf': 'empty' },
  logLevel: 'error',
});
const script = outputFiles.find(({ path }) => path.endsWith('.js')).text;
const styles = outputFiles.find(({ path }) => path.endsWith('.css'))?.text ?? '';
const html = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><style>body { margin: 0 } ${styles}</style>
<div id="root"></div><script type="module" src="main.js"></script>`;

const program = ['chromium', 'chromium-browser', 'google-chrome']
  .flatMap((name) => process.env.PATH.split(':').map((folder) => join(folder, name)))
  .find(existsSync);
const browser = await chromium.launch({ executablePath: program, args: FLAGS });
const complaints = [];
try {
  const page = await browser.newPage({
    viewport: { width: WIDTH, height: 1000 },
    deviceScaleFactor: SCALE,
  });
  page.setDefaultTimeout(BOUND);
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  await page.route(`${address}**`, async (route) => {
    const path = route.request().url().slice(address.length);
    const icon = path.startsWith('public/build/img/icons/') && path.slice(23);
    if (path === '') await route.fulfill({ contentType: 'text/html', body: html });
    else if (path === 'main.js') {
      await route.fulfill({ contentType: 'text/javascript', body: script });
    } else if (icon) await route.fulfill({ path: join(icons, icon) });
    else if (files.has(path)) await route.fulfill({ path: files.get(path) });
    else await route.abort();
  });
  await page.addInitScript((value) => {
    window.given = value;
  }, given);
  await page.goto(address);
  const empty = await page.waitForFunction(() => window.empty).then((it) => it.jsonValue());
  complaints.push(...empty.map((title) => `no data: ${title}`));
  const graphs = given.board.panels.filter(({ type }) => type === 'timeseries').length;
  await page.waitForFunction((n) => document.querySelectorAll('.uplot').length >= n, graphs);
  // The icons load last.
  await page.waitForLoadState('networkidle');
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.setViewportSize({ width: WIDTH, height });
  const session = await page.context().newCDPSession(page);
  const { data } = await session.send('Page.captureScreenshot', {
    format: 'webp',
    quality: QUALITY,
    clip: { x: 0, y: 0, width: WIDTH, height, scale: SCALE },
  });
  writeFileSync(picture, Buffer.from(data, 'base64'));
} finally {
  await browser.close();
  for (const complaint of complaints) process.stderr.write(`${complaint}\n`);
}
process.exitCode = complaints.length > 0 ? 1 : 0;
