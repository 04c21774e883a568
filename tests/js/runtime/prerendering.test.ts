/** A prerendered page: the browser runs its programs before the user opens it, if at all. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';

import { SystemClock } from '../../../js/src/clock.js';
import { turns, virtualClient } from './virtual.js';

/** A simulated document that the user has not opened. */
class Page extends EventTarget {
  prerendering = true;
  readonly visibilityState = 'visible';

  /** The user opens the page. */
  async open(): Promise<void> {
    this.prerendering = false;
    this.dispatchEvent(new Event('prerenderingchange'));
    await turns();
  }
}

let page: Page;

beforeEach(() => {
  page = new Page();
  Object.defineProperty(globalThis, 'document', { value: page, configurable: true });
});
afterEach(() => {
  Reflect.deleteProperty(globalThis, 'document');
});

/** A client whose program counts the token requests. */
function prerendered() {
  const asked: string[] = [];
  const getToken = ({ reason }: { readonly reason: string }): string => {
    asked.push(reason);
    return 'token';
  };
  return { ...virtualClient({ token: undefined, getToken }), asked };
}

test('a prerendered page neither requests a token nor connects until the user opens it', async () => {
  const { ps, peer, asked } = prerendered();
  const subscribing = ps.subscribe('demo.room');
  await turns();
  assert.deepEqual([asked, peer.sockets.length], [[], 0]);
  await page.open();
  await subscribing;
  assert.deepEqual([asked, peer.sockets.length, ps.state], [['connect'], 1, 'connected']);
  await ps.close();
});

test('a fixed token does not connect a prerendered page either', async () => {
  const { ps, peer } = virtualClient();
  const connecting = ps.connect();
  await turns();
  assert.equal(peer.sockets.length, 0);
  await page.open();
  await connecting;
  await ps.close();
});

test('a client that was closed in a prerendered page stays closed when the user opens it', async () => {
  const { ps, peer, asked } = prerendered();
  const refused = assert.rejects(ps.connect(), { code: 'closed' });
  await turns();
  await ps.close();
  await refused;
  await page.open();
  assert.deepEqual([asked, peer.sockets.length, ps.state], [[], 0, 'closed']);
});

test('the time before the user opens the page is no suspension of the machine', async () => {
  const { ps, peer, clock } = prerendered();
  const connecting = ps.connect();
  await turns();
  clock.sleep(600_000, true);
  await page.open();
  await connecting;
  await clock.advance(10_000);
  assert.equal(peer.sockets.length, 1);
  await ps.close();
});

test('the timers of a client start when the user opens the page', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const clock = new SystemClock();
  const fired: string[] = [];
  clock.callLater(10_000, () => fired.push('timeout'));
  clock.callLater(10_000, () => fired.push('cancelled before')).cancel();
  const cancelled = clock.callLater(10_000, () => fired.push('cancelled after'));
  t.mock.timers.tick(60_000);
  await page.open();
  cancelled.cancel();
  t.mock.timers.tick(9_999);
  assert.deepEqual(fired, []);
  t.mock.timers.tick(1);
  assert.deepEqual(fired, ['timeout']);
});
