/** Opens the console, which the server serves at `/`. */

import type { TestContext } from 'node:test';
import type { BrowserContextOptions, Page } from 'playwright-core';

import { openPage, type Server } from './harness.js';

/** The connected console of a server. */
export async function openConsole(
  t: TestContext,
  server: Server,
  look: BrowserContextOptions = { viewport: { width: 1440, height: 900 } },
): Promise<Page> {
  const page = await openPage(t, { url: `${server.http}/` }, { look });
  await page.getByRole('button', { name: 'Connection: Connected' }).waitFor();
  await page.locator('.chip.active', { hasText: '**' }).waitFor({ state: 'attached' });
  return page;
}
