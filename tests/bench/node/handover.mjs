// Tabs that share a connection. The tab that owns it is closed, again and again.
// Usage: node handover.mjs URL TOKEN TURNS; prints {delays, usual}, milliseconds from the publish
// of a message to its arrival in a tab: the longest per turn and tab, and all those between turns.

import { setTimeout as pause } from 'node:timers/promises';
import WebSocket from 'ws';
import { PubSub } from '../../../js/dist/index.js';
import { bundle, withChromium } from './chromium.mjs';

/** Tabs that remain open in a turn. */
const OTHERS = 3;
/** Milliseconds between two messages. */
const PACE = 4;
/** Messages between two turns. */
const CALM = 25;

const TAB = `
  import { PubSub } from '../../../js/dist/index.js';
  window.delays = [];
  window.next = 0;
  const ps = new PubSub({ ...window.given, shareTabs: true });
  await ps.subscribe('demo.tabs', {
    history: 0,
    onMessage: ({ data: { index, at } }) => {
      if (window.next && index !== window.next) throw new Error(index + ' came, ' + window.next + ' was due');
      window.next = index + 1;
      window.delays.push(Date.now() - at);
    },
  });`;

const [url, token, number] = process.argv.slice(2);
const publisher = new PubSub({ url, token, WebSocket });
await publisher.connect();
let index = 0;
const going = new AbortController();
const publishing = (async () => {
  while (!going.signal.aborted) {
    index += 1;
    publisher.publish('demo.tabs', { data: { index, at: Date.now() } });
    await pause(PACE);
  }
})();

const content = await bundle(TAB);
const result = await withChromium(async (browser, address) => {
  const profile = await browser.newContext();
  const fresh = async () => {
    const page = await profile.newPage();
    await page.goto(address);
    await page.evaluate((given) => Object.assign(window, { given }), { url, token });
    await page.addScriptTag({ type: 'module', content });
    await reach(page, index + CALM);
    return page;
  };
  const reach = (page, goal) =>
    page.waitForFunction((goal) => window.next > goal, goal, { polling: 20 });
  /** The delays since the last call. */
  const taken = (page) => page.evaluate(() => window.delays.splice(0));
  const tabs = [];
  while (tabs.length <= OTHERS) tabs.push(await fresh());
  const found = { delays: [], usual: [] };
  for (let turn = 0; turn < Number(number); turn += 1) {
    const leader = tabs.shift();
    for (const page of tabs) await taken(page);
    const calm = index + CALM;
    for (const page of tabs) await reach(page, calm);
    for (const page of tabs) found.usual.push(...(await taken(page)));
    await leader.close();
    const goal = index + CALM;
    for (const page of tabs) {
      await reach(page, goal);
      found.delays.push(Math.max(...(await taken(page))));
    }
    tabs.push(await fresh());
  }
  return found;
});
going.abort();
await publishing;
process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
