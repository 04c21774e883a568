/** Starts the Chromium of the system without a window. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { type Browser, type BrowserContext, chromium } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/**
 * The same engine without windows, tabs and their throttling. It takes a third of the CPU time to
 * start.
 */
const SHELL = 'chromium-headless-shell';

/**
 * Playwright passes these options to make browsers deterministic. The tests need real behaviour.
 */
const UNWANTED = [
  '--disable-back-forward-cache',
  '--disable-background-timer-throttling',
  '--disable-backgrounding-occluded-windows',
  '--disable-renderer-backgrounding',
];

/**
 * Features to disable: the first three load pages for the address bar, two in each window;
 * Playwright disables the others.
 */
const UNUSED = [
  ...['WebUIOmniboxPopup', 'WebUIOmniboxAimPopup', 'WebUIOmniboxFullPopup', 'AimEnabled'],
  ...['AvoidCorsURLLoaderRestartOnRedirect', 'AvoidUnnecessaryBeforeUnloadCheckSync'],
  ...['DestroyProfileOnBrowserClose', 'HttpsFirstBalancedModeAutoEnable', 'HttpsUpgrades'],
  ...['LensOverlay', 'MediaRouter', 'NetworkTimeServiceQuerying', 'OptimizationHints'],
  ...['PaintHolding', 'PreconnectToSearch', 'ThirdPartyStoragePartitioning'],
];

const ARGUMENTS = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  `--disable-features=${UNUSED.join()}`,
];

/** The path of the first of these names on PATH; `target` of the Makefile installs it. */
export function findProgram(names: readonly string[], target = 'setup'): string {
  for (const name of names) {
    for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
      const path = join(folder, name);
      try {
        accessSync(path, constants.X_OK);
        return path;
      } catch {
        // Not in this folder.
      }
    }
  }
  throw new Error(`PATH has none of ${names.join(', ')}: run \`make ${target}\`.`);
}

/** A folder for the profile, and environment variables that keep caches and crash reports in it. */
function quarters(): { folder: string; env: NodeJS.ProcessEnv; clear: () => Promise<void> } {
  const folder = mkdtempSync(join(tmpdir(), 'pubsub-browser-'));
  const places = { HOME: folder, XDG_CONFIG_HOME: folder, XDG_CACHE_HOME: folder };
  const clear = (): Promise<void> => rm(folder, { recursive: true, force: true, maxRetries: 9 });
  return { folder, env: { ...process.env, ...places }, clear };
}

/** Start a browser. Its files are removed with it. */
export async function launchChromium(): Promise<{ browser: Browser; stop: () => Promise<void> }> {
  const { env, clear } = quarters();
  const browser = await chromium.launch({
    executablePath: findProgram([SHELL, ...NAMES]),
    args: ARGUMENTS,
    ignoreDefaultArgs: UNWANTED,
    env,
  });
  const stop = async (): Promise<void> => {
    await browser.close();
    await clear();
  };
  return { browser, stop };
}

/** Start a browser whose hidden pages are throttled, and whose pages don't all have the focus. */
export async function launchHideable(): Promise<{
  profile: BrowserContext;
  stop: () => Promise<void>;
}> {
  const { folder, env, clear } = quarters();
  const child = spawn(
    findProgram(NAMES),
    [
      ...ARGUMENTS,
      '--headless',
      '--no-sandbox',
      '--remote-debugging-port=0',
      `--user-data-dir=${folder}`,
      // Run the timers of a hidden page once a minute, without the usual five minutes of delay.
      '--intensive-wake-up-throttling-policy=force-enable',
      '--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/1',
      'about:blank',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'], env },
  );
  const ended = once(child, 'exit');
  let browser: Browser | undefined;
  const stop = async (): Promise<void> => {
    // With a request to close, it ends its child processes first.
    const asked = await browser?.newBrowserCDPSession();
    if (!asked) child.kill();
    await asked?.send('Browser.close').catch(() => child.kill());
    await ended;
    await clear();
  };
  try {
    const door = await Promise.race([
      doorOf(child.stderr),
      ended.then(() => Promise.reject(new Error('Chromium ended at once.'))),
    ]);
    browser = await chromium.connectOverCDP(door, { noDefaults: true });
    const [profile] = browser.contexts();
    if (!profile) throw new Error('Chromium has no profile.');
    return { profile, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The address of the developer protocol, which Chromium writes to a file. */
function doorOf(stderr: Readable): Promise<string> {
  return new Promise((resolve) => {
    createInterface({ input: stderr }).on('line', (line) => {
      const found = /DevTools listening on (\S+)/.exec(line);
      if (found?.[1]) resolve(found[1]);
    });
  });
}
