import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { build, createServer, preview } from 'vite';

import { launchChromium } from '../browser/chromium.js';
import { atEnd } from '../browser/ending.js';
import { BOUND, Server } from '../js/runtime/server.js';
import { APPLICATION, EVERYDAY, given, ROOT } from './application.js';

const PAGE = `<!doctype html>
<html lang="en">
<title>application</title>
<script type="module">
  import * as sdk from '@hanzoai/pubsub';
  import { everyday } from './everyday.mjs';

  everyday(sdk, given).then(
    (reported) => { globalThis.reported = reported; },
    (error) => { globalThis.reported = String(error.stack ?? error); },
  );
</script>
</html>
`;

test('an application built by Vite works in a browser', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  writeFileSync(join(APPLICATION, 'index.html'), PAGE);
  const settings = { root: APPLICATION, configFile: false, logLevel: 'error' } as const;
  await build(settings);
  const scripts = readdirSync(join(APPLICATION, 'dist', 'assets'));
  assert.ok(
    scripts.some((name) => name.startsWith('sse-')),
    `the event stream is a chunk of its own: ${scripts}`,
  );
  const site = await preview({ ...settings, preview: { host: '127.0.0.1', port: 0 } });
  atEnd(t, () => site.close());
  const { browser, stop } = await launchChromium();
  atEnd(t, stop);
  const page = await browser.newPage();
  const errors: unknown[] = [];
  page.on('pageerror', (error) => errors.push(error.stack ?? error));
  await page.addInitScript(`globalThis.given = ${JSON.stringify(given(server, 'demo.vite'))}`);
  await page.goto(site.resolvedUrls?.local[0] ?? '');
  const reported = await page.waitForFunction('globalThis.reported', undefined, { timeout: BOUND });
  assert.deepEqual(await reported.jsonValue(), EVERYDAY);
  assert.deepEqual(errors, []);
});

/** The files of docs/typescript.md that a reader of Vite puts into a page. */
const SAMPLE = /^```ts title="((?:vite_pubsub|get_token)\.ts)"\n(.*?)^```/gms;

/** A module that accepts what Vite loads again, as a component does. */
const COMPONENT = `
import { ps } from './vite_pubsub';

(globalThis.clients ??= []).push(ps);
void ps.connect();
import.meta.hot.accept();
`;

test('the client of a file that Vite runs again replaces the one before it', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const folder = mkdtempSync(join(APPLICATION, 'hot-'));
  const page = readFileSync(join(ROOT, 'docs', 'typescript.md'), 'utf8');
  for (const [, file = '', shown = ''] of page.matchAll(SAMPLE))
    writeFileSync(join(folder, file), shown.replace('ws://127.0.0.1:8057/ws', server.ws));
  writeFileSync(join(folder, 'component.ts'), COMPONENT);
  const html = '<!doctype html><script type="module" src="/component.ts"></script>';
  writeFileSync(join(folder, 'index.html'), html);
  const token = JSON.stringify({ token: server.token('--user', 'alice') });
  const site = await createServer({
    root: folder,
    configFile: false,
    logLevel: 'error',
    server: { host: '127.0.0.1', port: 0 },
    plugins: [
      {
        name: 'pubsub-token',
        configureServer: ({ middlewares }) =>
          void middlewares.use('/pubsub-token', (_, answer) => void answer.end(token)),
      },
    ],
  });
  atEnd(t, () => site.close());
  await site.listen();
  const { browser, stop } = await launchChromium();
  atEnd(t, stop);
  const tab = await browser.newPage();
  await tab.goto(site.resolvedUrls?.local[0] ?? '');
  const are = (states: string) =>
    tab.waitForFunction(
      (wanted) =>
        `${(globalThis as never as Clients).clients?.map(({ state }) => state)}` === wanted,
      states,
      { timeout: BOUND },
    );
  await are('connected');
  const callback = join(folder, 'get_token.ts');
  writeFileSync(callback, `${readFileSync(callback, 'utf8')}// edited\n`);
  await are('closed,connected');
});

/** What `COMPONENT` keeps. */
interface Clients {
  readonly clients?: readonly { readonly state: string }[];
}
