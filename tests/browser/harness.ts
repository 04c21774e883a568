/**
 * Functions for browser tests. To run these: `node tests/browser/run.mjs [word of a file name]`.
 *
 * ```ts
 * test('a page gets a message', async (t) => {
 *   const server = await startServer(t);
 *   const page = await openPage(t, {
 *     entry: `
 *       import { PubSub } from '@hanzoai/pubsub';
 *       const ps = new PubSub(given.options);
 *       window.got = [];
 *       await ps.subscribe('demo.1', { onMessage: (m) => got.push(m.data) });
 *       window.ready = true;`,
 *     given: { options: { ...addresses(server), token: server.token('--user', 'alice') } },
 *   });
 *   await until(page, () => window.ready);
 *   ...
 *   await shot(page, 'a-message');
 * });
 * ```
 *
 * `given` is a global of the page, also after a reload, so that no address contains a token. A page
 * that throws or writes to `console.error` fails the test, unless it is opened with `mayFail`.
 * Everything is closed when the test ends. With `HANZO_PUBSUB_SCREENSHOTS=1`, screenshots are saved
 * in `tests/browser/artefacts/`.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import type {
  Browser,
  BrowserContext,
  BrowserContextOptions,
  CDPSession,
  Page,
} from 'playwright-core';

import { BOUND, Server } from '../js/runtime/server.js';
import { launchChromium, launchHideable } from './chromium.js';
import { measure } from './coverage.js';
import { atEnd } from './ending.js';
import { type Site, type SiteOptions, serveSite } from './site.js';

export { BOUND, bounded, deferred, type Server, take } from '../js/runtime/server.js';
export { atEnd } from './ending.js';
export { type Site, type SiteOptions, serveSite } from './site.js';

/** Folder of the screenshots. */
export const ARTEFACTS: string = join(process.cwd(), 'tests', 'browser', 'artefacts');

let running: Promise<{ browser: Browser; stop: () => Promise<void> }> | undefined;
after(async () => (await running)?.stop());

const requests = new WeakMap<BrowserContext, string[]>();
const complaints = new WeakMap<Page, string[]>();

/** The browser of this test file, which starts at its first use. */
export async function theBrowser(): Promise<Browser> {
  running ??= launchChromium();
  return (await running).browser;
}

/**
 * Start a server with the fault endpoint until the test ends. Settings are those of its command
 * line.
 */
export async function startServer(t: TestContext, ...settings: string[]): Promise<Server> {
  const server = await Server.start(...settings);
  atEnd(t, () => server.stop());
  return server;
}

/**
 * Options of a client: the addresses of the server, short delays between attempts, and time for the
 * operations of a page on a busy machine.
 */
export function addresses(server: Server): {
  url: string;
  restUrl: string;
  retry: { base: number; cap: number };
  operationTimeout: number;
} {
  const retry = { base: 20, cap: 100 };
  return { url: server.ws, restUrl: server.http, retry, operationTimeout: BOUND };
}

/** A separate profile. Pages of one profile share storage, locks, channels and cache. */
export async function openProfile(
  t: TestContext,
  options: BrowserContextOptions = {},
): Promise<BrowserContext> {
  const browser = await theBrowser();
  const profile = await browser.newContext({ viewport: { width: 900, height: 620 }, ...options });
  profile.setDefaultTimeout(BOUND);
  const seen: string[] = [];
  requests.set(profile, seen);
  profile.on('request', (request) => seen.push(request.url()));
  profile.on('page', (page) => page.on('websocket', (socket) => seen.push(socket.url())));
  atEnd(t, async () => {
    await profile.close();
    // Every JWT starts with this.
    assert.deepEqual(
      seen.filter((address) => address.includes('eyJ')),
      [],
      'a token in an address',
    );
  });
  return profile;
}

/**
 * A separate browser without the changes of Playwright: of two tabs one is hidden, and the hidden
 * one is throttled at once, as others are after five minutes. It can also be frozen.
 */
export async function openHideableProfile(t: TestContext): Promise<BrowserContext> {
  const { profile, stop } = await launchHideable();
  profile.setDefaultTimeout(BOUND);
  atEnd(t, stop);
  return profile;
}

/** Options of a page. */
export interface PageOptions {
  /** Default: a separate profile. */
  readonly profile?: BrowserContext;
  /** The global `given` of the page, as JSON. */
  readonly given?: unknown;
  /** Functions of the test that the page can call as globals; there they return promises. */
  readonly functions?: Readonly<Record<string, (...args: never[]) => unknown>>;
  /** Path and query to open; default `/`. */
  readonly path?: string;
  /** Whether the page may throw and write to `console.error`. */
  readonly mayFail?: boolean;
  /** Options of a separate profile: width, height, colour scheme. */
  readonly look?: BrowserContextOptions;
}

/** Open a page: of a running site, of a new site with these options, or at an address. */
export async function openPage(
  t: TestContext,
  what: Site | (SiteOptions & PageOptions),
  options: PageOptions = 'entry' in what ? what : {},
): Promise<Page> {
  const site = 'entry' in what ? await serveSite(t, what) : what;
  const profile = options.profile ?? (await openProfile(t, options.look));
  const page = await profile.newPage();
  if (options.given !== undefined) {
    await page.addInitScript(`globalThis.given = ${JSON.stringify(options.given)}`);
  }
  for (const [name, body] of Object.entries(options.functions ?? {})) {
    await page.exposeFunction(name, body);
  }
  const wrong: string[] = [];
  complaints.set(page, wrong);
  page.on('pageerror', (error) => wrong.push(error.stack ?? error.message));
  page.on('console', (message) => {
    // The browser itself logs refused connections, which are not errors of the page.
    const own = !/^(WebSocket connection to|Failed to load resource)/.test(message.text());
    if (message.type() === 'error' && own) wrong.push(message.text());
  });
  atEnd(t, () => {
    if (!options.mayFail) assert.deepEqual(wrong, [], 'the page reported errors');
  });
  atEnd(t, await measure(page));
  await page.goto(new URL(options.path ?? '', site.url).href);
  return page;
}

/** Wait until a function in the page returns a truthy value, for at most this many milliseconds. */
export async function until<Arg, Value>(
  page: Page,
  condition: (arg: Arg) => Value | Promise<Value>,
  arg?: Arg,
  timeout: number = BOUND,
): Promise<void> {
  // Poll with a timer, because hidden pages draw no frames.
  const limits = { polling: 25, timeout };
  try {
    // biome-ignore lint/suspicious/noExplicitAny: Playwright's type of what crosses into the page
    await page.waitForFunction(condition as any, arg, limits);
  } catch (error) {
    const wrong = complaints.get(page) ?? [];
    const shown = await page.innerText('body', { timeout: 1_000 }).catch(String);
    const what = `${condition} of ${JSON.stringify(arg)}`;
    throw new Error(`The page never came to ${what}\n${wrong.join('\n')}\nIt shows:\n${shown}`, {
      cause: error,
    });
  }
}

/** Save a screenshot as `artefacts/<name>.png` if the environment asks for screenshots. */
export async function shot(page: Page, name: string): Promise<void> {
  if (!process.env['HANZO_PUBSUB_SCREENSHOTS']) return;
  await page.screenshot({ path: join(ARTEFACTS, `${name}.png`), timeout: BOUND });
}

/** The developer protocol of a page, for functions that Playwright does not offer. */
export async function developerTools(page: Page): Promise<CDPSession> {
  return page.context().newCDPSession(page);
}

/** All addresses that pages of this profile requested, including WebSockets. */
export function addressesAskedFor(profile: BrowserContext): readonly string[] {
  return requests.get(profile) ?? [];
}
