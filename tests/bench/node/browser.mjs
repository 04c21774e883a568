// Pages in Chromium that read a blaster's messages.
// Usage: node browser.mjs NAME PORT COUNT; prints {cpu_us, per_second} of the page's process.

import { bundle, withChromium } from './chromium.mjs';
import { TOPIC } from './meter.mjs';

/** The code of a page; it calls `take` with the index of each message. */
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
  function take(index) {
    if (index !== seen) throw new Error(index + ' came where ' + seen + ' was due');
    seen += 1;
    if (seen === 1) began = performance.now();
    if (seen === count) window.finish(performance.now() - began);
  }`;

/** CPU time of the page processes in seconds. */
async function cpuTime(session) {
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  return (
    processInfo
      .filter(({ type }) => type === 'renderer')
      // There is no time of a process that is ending.
      .reduce((sum, { cpuTime }) => sum + (cpuTime ?? 0), 0)
  );
}

const [name, port, number] = process.argv.slice(2);
const count = Number(number);
const content = await bundle(PAGE + PAGES[name]);
const result = await withChromium(async (browser, address) => {
  const page = await browser.newPage();
  await page.goto(address);
  const session = await browser.newBrowserCDPSession();
  const given = { url: `ws://127.0.0.1:${port}/ws`, topic: TOPIC, count };
  // A module may run after `addScriptTag` has returned, so the promise must exist before.
  await page.evaluate((given) => {
    window.given = given;
    window.finished = new Promise((resolve) => {
      window.finish = resolve;
    });
  }, given);
  const before = await cpuTime(session);
  await page.addScriptTag({ type: 'module', content });
  const milliseconds = await page.evaluate(() => window.finished);
  const seconds = (await cpuTime(session)) - before;
  return { cpu_us: (seconds / count) * 1e6, per_second: (count / milliseconds) * 1000 };
});
process.stdout.write(`${JSON.stringify(result)}\n`);
