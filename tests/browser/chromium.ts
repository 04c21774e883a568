/** The Chromium of the system, without a window. */

import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/** Playwright starts browsers with these, so that pages behave alike; here real behaviour counts. */
const UNWANTED = [
  '--disable-back-forward-cache',
  '--disable-background-timer-throttling',
  '--disable-backgrounding-occluded-windows',
  '--disable-renderer-backgrounding',
];

const ARGUMENTS = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** The path of the browser. */
export function findChromium(): string {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    for (const name of NAMES) {
      const path = join(folder, name);
      try {
        accessSync(path, constants.X_OK);
        return path;
      } catch {
        // Not here.
      }
    }
  }
  throw new Error(`No Chromium on PATH (${NAMES.join(', ')}): run \`make chromium\`.`);
}

/** Start one; what it writes is gone with it. */
export async function launchChromium(
  more: readonly string[] = [],
): Promise<{ browser: Browser; stop: () => Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), 'pubsub-browser-'));
  const browser = await chromium.launch({
    executablePath: findChromium(),
    args: [...ARGUMENTS, ...more],
    ignoreDefaultArgs: UNWANTED,
    // Crash reports and caches go where the profile is.
    env: { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder, XDG_CACHE_HOME: folder },
  });
  return {
    browser,
    stop: async () => {
      await browser.close();
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
