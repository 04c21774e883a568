import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { build, preview } from 'vite';

import { launchChromium } from '../browser/chromium.js';
import { atEnd } from '../browser/ending.js';
import { BOUND, Server } from '../js/runtime/server.js';
import { APPLICATION, EVERYDAY, given } from './application.js';

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
