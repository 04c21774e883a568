import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import type { Locator } from 'playwright-core';

import { openConsole } from './console.js';
import { openPage, openProfile, shot, startServer, until } from './harness.js';

const FREE = ['--publish-rate-service', '1000000', '--publish-rate-user', '1000000'];

test('a cut connection reconnects, and receives what it missed', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const ana = server.client({ token: server.token('--user', 'ana') });
  const got: unknown[] = [];
  await ana.subscribe('demo.room', { onMessage: ({ data }) => got.push(data) });
  const before = ana.clientId;
  const reconnected = new Promise<void>((resolve) => {
    ana.on('state', ({ from, to }) => {
      if (to === 'connected' && from !== 'initialized') resolve();
    });
  });
  await page.keyboard.press('c');
  const list = page.getByRole('list', { name: 'Open connections' });
  const row = list.getByRole('listitem').filter({ hasText: 'ana' });
  await row.getByText('WebSocket').waitFor();
  assert.match((await row.textContent()) ?? '', /127\.0\.0\.1.*demo\.room.*no lag/);
  await row.getByRole('button', { name: 'Cut' }).click();
  await reconnected;
  assert.ok(before);
  await ana.publish('demo.room', { data: 'after the cut' });
  await list.getByRole('listitem').filter({ hasText: 'ana' }).waitFor();
  assert.equal(await page.locator('.notice').count(), 0);
});

test('the page that cuts itself reconnects without an alert', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  await page.goto(`${server.http}/#/connections`);
  const own = page.getByRole('listitem').filter({ hasText: 'this page' });
  await own.getByRole('button', { name: 'Cut' }).click();
  await page.getByRole('button', { name: /^Connection: / }).click();
  const steps = page.getByRole('dialog', { name: 'Connection' }).locator('.steps li');
  await steps.filter({ hasText: 'Reconnecting' }).first().waitFor();
  await page.getByRole('button', { name: 'Connection: Connected' }).waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
});

test('without an administrator’s token the connections are not listed, and the page explains it', async (t) => {
  const server = await startServer(t);
  const page = await openPage(t, { url: `${server.http}/` }, { path: '#/connections' });
  await page.getByRole('button', { name: /^Account/ }).click();
  await page.getByRole('button', { name: /Sign out/ }).click();
  await page.getByLabel('Kind').selectOption('user');
  await page.getByRole('button', { name: 'Continue on this machine' }).click();
  await page.getByText('Listing connections requires the token of an administrator.').waitFor();
});

test('a link opens its view, and back returns to the previous one', async (t) => {
  const server = await startServer(t);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publish('demo.orders', { type: 'created', data: { n: 1 } });
  await bot.publish('demo.orders', { type: 'paid', data: { n: 2 } });
  await bot.publish('demo.other', { type: 'created', data: { n: 3 } });
  const profile = await openProfile(t, { viewport: { width: 1280, height: 860 } });
  const path = '#/topics/demo.orders?type=paid';
  const page = await openPage(t, { url: `${server.http}/` }, { profile, path });
  const shown = page.locator('.row .data');
  await shown.getByText('{n: 2}').waitFor();
  assert.deepEqual(await shown.allTextContents(), ['{n: 2}']);
  await page.getByLabel('Type of message').selectOption('');
  await shown.getByText('{n: 1}').waitFor();
  assert.equal(new URL(page.url()).hash, '#/topics/demo.orders');
  await page.locator('.topic-list button', { hasText: 'demo.other' }).click();
  await until(page, () => location.hash === '#/topics/demo.other');
  assert.equal(await page.title(), 'demo.other · Hanzo PubSub Console');
  await page.keyboard.press('c');
  await until(page, () => location.hash === '#/connections?topic=demo.other');
  await page.goBack();
  await shown.getByText('{n: 3}').waitFor();
  await page.goBack();
  await shown.getByText('{n: 1}').waitFor();
  assert.equal(new URL(page.url()).hash, '#/topics/demo.orders');
  await page.goForward();
  await until(page, () => location.hash === '#/topics/demo.other');
});

test('a search finds text in the data, and the export contains the shown messages', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publish('demo.a', { data: { city: 'Köln' } });
  await bot.publish('demo.b', { data: { city: 'Bremen' } });
  await page.locator('.row', { hasText: 'Bremen' }).waitFor();
  await page.keyboard.press('s');
  await page.keyboard.type('KÖLN');
  await page.locator('.row', { hasText: 'Bremen' }).waitFor({ state: 'hidden' });
  assert.equal(await page.locator('.row').count(), 1);
  for (const format of ['NDJSON', 'JSON']) {
    const [saved] = await Promise.all([
      page.waitForEvent('download'),
      page.getByLabel('Export what is shown').selectOption(format.toLowerCase()),
    ]);
    assert.equal(saved.suggestedFilename(), `messages.${format.toLowerCase()}`);
    const read: unknown = JSON.parse(await readFile(await saved.path(), 'utf8'));
    const [message] = [read].flat() as { topic: string; data: unknown }[];
    assert.deepEqual([message?.topic, message?.data], ['demo.a', { city: 'Köln' }]);
  }
  await page.getByLabel('Search messages').fill('nowhere');
  await page.getByText('No message matches.').waitFor();
  await page.getByRole('button', { name: 'Show all messages' }).click();
  await page.locator('.row', { hasText: 'Bremen' }).waitFor();
});

test('a message with an integer that browsers round is marked in the list and in its details', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publish('demo.data', { data: { count: 12e21 } });
  await bot.publish('demo.meta', { data: 1, meta: { count: 2 ** 60 } });
  await bot.publish('demo.exact', { data: { count: 2 ** 53 - 1 } });
  const found: Record<string, number[]> = {};
  for (const topic of ['demo.data', 'demo.meta', 'demo.exact']) {
    const row = page.locator('.row', { hasText: topic });
    await row.locator('.line').click();
    await row.locator('.detail').waitFor();
    const hints = row.locator('.detail', { hasText: 'Browsers round integers above 2^53.' });
    found[topic] = [await row.locator('.line abbr').count(), await hints.count()];
  }
  assert.deepEqual(found, { 'demo.data': [1, 1], 'demo.meta': [1, 1], 'demo.exact': [0, 0] });
});

test('while the server does not answer, the page neither listens nor shows rates', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const greeting = page.getByRole('heading', { name: 'No message yet.' });
  const rates = page.locator('.tiles div', { hasText: '/s' }).locator('dd');
  await greeting.filter({ hasText: 'Listening' }).waitFor();
  await rates.filter({ hasText: '0' }).nth(1).waitFor();
  await server.stop();
  await page.getByRole('heading', { name: 'No message yet.', exact: true }).waitFor();
  await rates.filter({ hasText: '–' }).nth(1).waitFor();
});

test('without a connection the rate falls to zero, and a publish waits', async (t) => {
  const server = await startServer(t, ...FREE);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  const page = await openConsole(t, server);
  const rate = page.locator('.topic-list .all .rate');
  await bot.publishMany(Array.from({ length: 600 }, (_, n) => ['demo.busy', { data: n }]));
  await rate.filter({ hasNotText: /^0\/s$/ }).waitFor();
  await server.stop();
  await rate.filter({ hasText: /^0\/s$/ }).waitFor();
  await page.keyboard.press('n');
  await page.keyboard.press('Control+Enter');
  await page.getByText('Waiting for the connection…').waitFor();
});

test('a filter finds a topic among hundreds by the beginning of its name, and shows no rate for it', async (t) => {
  const server = await startServer(t, ...FREE);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  const topics = Array.from({ length: 350 }, (_, n) => `demo.t${n + 1_000}`);
  await bot.publishMany(topics.map((topic) => [topic, { data: 0 }]));
  const page = await openConsole(t, server);
  const list = page.locator('#topics');
  await list.getByText('Only the first 300 topics are listed.').waitFor();
  const filter = page.getByLabel('Filter topics');
  await filter.fill('demo.t1340');
  const found = list.getByRole('button', { name: 'demo.t1340' });
  await found.waitFor();
  assert.equal(await found.locator('.rate').textContent(), '0/s');
  await filter.fill('t1340');
  await list.getByText('only the beginning of their names is searched').waitFor();
});

for (const width of [1024, 1440]) {
  test(`at ${width} px an error leaves the messages and the form free, and ends with the sign-in`, async (t) => {
    const server = await startServer(t);
    const page = await openConsole(t, server, { viewport: { width, height: 768 } });
    const signInAs = async (user: string): Promise<void> => {
      await page.getByRole('button', { name: /^Account/ }).click();
      await page.getByRole('button', { name: /Sign out/ }).click();
      await page.getByLabel('User').fill(user);
      await page.getByLabel('Kind').selectOption('user');
      await page.getByRole('button', { name: 'Continue on this machine' }).click();
      await page.getByRole('button', { name: 'Connection: Connected' }).waitFor();
    };
    await signInAs('ana');
    await page.getByLabel('Topic or pattern to watch').fill('secret.plans');
    await page.keyboard.press('Enter');
    const notice = page.getByRole('alert').filter({ hasText: 'forbidden' });
    await notice.getByText(/^The access rules/).waitFor();
    await notice.getByText('hanzo-pubsub doctor --topic TOPIC', { exact: true }).waitFor();
    const alert = await notice.boundingBox();
    const messages = await page.locator('#messages').boundingBox();
    assert.ok(alert && messages);
    assert.ok(alert.x >= messages.x + messages.width || alert.x + alert.width <= messages.x);
    // Waits until nothing covers the button.
    await page.getByRole('button', { name: 'Write a message' }).click();
    await page.getByRole('button', { name: 'Stop watching secret.plans' }).click();
    await signInAs('ben');
    assert.equal(await page.getByRole('alert').count(), 0);
  });
}

test('with the forced colours of a system the chosen topic stays marked', async (t) => {
  const server = await startServer(t);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publish('demo.chosen', { data: 1 });
  const page = await openConsole(t, server, { forcedColors: 'active' });
  const topic = page.locator('.topic-list button', { hasText: 'demo.chosen' });
  const edge = (): Promise<string> =>
    topic.evaluate((element) => getComputedStyle(element).borderInlineStartWidth);
  await topic.waitFor();
  const before = await edge();
  await topic.click();
  await page.locator('.topic-list [aria-pressed=true]', { hasText: 'demo.chosen' }).waitFor();
  assert.notEqual(await edge(), before);
});

test('choosing a topic selects it for publishing', async (t) => {
  const server = await startServer(t);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publish('demo.chosen', { data: 1 });
  const page = await openConsole(t, server);
  await page.locator('.topic-list button', { hasText: 'demo.chosen' }).click();
  await page.getByRole('button', { name: 'Write a message' }).click();
  assert.equal(await page.getByLabel('Topic', { exact: true }).inputValue(), 'demo.chosen');
  await page.getByLabel('Data, JSON').fill('"from the form"');
  await page.keyboard.press('Control+Enter');
  await page.locator('.row', { hasText: 'from the form' }).waitFor();
});

test('the numbers of a topic are whole at 1280 px, beside its chart or the age of its last message', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server, { viewport: { width: 1280, height: 800 } });
  const ana = server.client({ token: server.token('--user', 'ana') });
  await ana.publish('demo.chat', { data: 1 });
  const topic = page
    .getByRole('list', { name: 'Topics' })
    .getByRole('button', { name: 'demo.chat' });
  await topic.waitFor();
  for (const [quiet, text, least] of [
    [false, '100 retained · 100 readers', 24],
    [true, '100 retained · 100 readers · 45 min ago', 0],
  ] as const) {
    const [hidden, chart] = await topic.evaluate(
      (button, [isQuiet, shown]) => {
        const [numbers] = button.querySelectorAll('.more');
        const [line] = button.querySelectorAll('.sparkline');
        if (!numbers || !line) throw new Error('A topic has numbers and a chart.');
        button.classList.toggle('quiet-topic', isQuiet);
        numbers.textContent = shown;
        return [numbers.scrollWidth - numbers.clientWidth, line.clientWidth] as const;
      },
      [quiet, text] as const,
    );
    assert.equal(hidden, 0, text);
    assert.ok(chart >= least, `${chart} px`);
  }
});

for (const width of [390, 1280]) {
  test(`at ${width} px the names of a message are whole, and long ones in the view of its topic`, async (t) => {
    const server = await startServer(t);
    const page = await openConsole(t, server, { viewport: { width, height: 844 } });
    const bot = server.client({ token: server.token('--user', 'bot', '--service') });
    const topic = `demo.${'project-of-a-customer.'.repeat(5)}tools`;
    const long = 'tool.call.completed.again';
    await bot.publish('demo.short', { type: 'message.complete', data: 1 });
    await bot.publish(topic, { type: long, data: 2 });
    const isCut = (shown: Locator): Promise<boolean> =>
      shown.evaluate((element) => element.scrollWidth > element.clientWidth);
    await page.goto(`${server.http}/#/messages`);
    const type = (name: string): Locator => page.locator('.row .type', { hasText: name });
    assert.equal(await isCut(type('message.complete')), false, 'type of a message');
    await page.goto(`${server.http}/#/topics/${topic}`);
    await page.locator('.list.narrowed').waitFor();
    assert.equal(await isCut(type(long)), false, 'type in the view of a topic');
    assert.equal(await isCut(page.locator('#messages-title')), false, 'name of the topic');
  });
}

test('the timeline of a topic shows what is live, replayed and missing, and opens a message', async (t) => {
  const server = await startServer(t, ...FREE, '--history-max-messages', '5');
  const page = await openConsole(t, server);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publish('demo.log', { data: 'before' });
  await page.locator('.row .data', { hasText: 'before' }).waitFor();
  await page.locator('.topic-list button', { hasText: 'demo.log' }).click();
  const timeline = page.getByRole('region', { name: 'Timeline of the topic' });
  await timeline.getByText('1 live').waitFor();
  await server.fault({ fault: 'refuse', on: true });
  await server.fault({ fault: 'drop', user: 'console' });
  await page.locator('.status-line', { hasText: 'Reconnecting' }).waitFor();
  for (let n = 0; n < 20; n += 1) await bot.publish('demo.log', { data: n }, { via: 'rest' });
  // A replayed message is one that arrives more than a second after it was published.
  const last = Date.now();
  await until(page, (then) => Date.now() > then + 1_500, last);
  await server.fault({ fault: 'refuse', on: false });
  await page.locator('.row.gap').waitFor();
  await timeline.getByText('5 replayed').waitFor();
  await timeline.getByText('1 gap (15 missing)').waitFor();
  const picture = timeline.getByRole('img', { name: /^demo\.log, .* 1 gap with 15 missing/ });
  await shot(page, 'console-timeline');
  const { width = 0 } = (await picture.boundingBox()) ?? {};
  assert.ok(width > 300);
  const isCut = await picture.evaluate((drawing) => {
    const [mark = drawing] = drawing.querySelectorAll('rect');
    const isOver = mark.getBoundingClientRect().left < drawing.getBoundingClientRect().left;
    return isOver && getComputedStyle(drawing).overflow !== 'visible';
  });
  assert.equal(isCut, false, 'the edge cuts the first mark');
  await picture.click({ position: { x: 2, y: 20 } });
  await page.locator('.json', { hasText: '"before"' }).waitFor();
});

test('the list of a phone follows the newest message through a lost connection', async (t) => {
  const server = await startServer(t, ...FREE);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  const publish = (from: number, to: number): Promise<unknown> =>
    bot.publishMany(
      Array.from({ length: to - from }, (_, n) => ['demo.log', { data: { n: from + n } }]),
    );
  await publish(0, 30);
  const page = await openConsole(t, server, { viewport: { width: 360, height: 740 } });
  const go = (hash: string): Promise<void> =>
    page.evaluate((hash) => {
      location.hash = hash;
    }, hash);
  await go('#/server');
  await publish(30, 50);
  await go('#/topics/demo.log');
  await page.locator('.row .data', { hasText: '{n: 49}' }).waitFor();
  await server.fault({ fault: 'refuse', on: true });
  await server.fault({ fault: 'drop', user: 'console' });
  // The notice takes more than one row from the height of the list.
  const waiting = { hasText: /Reconnecting.*attempt \d+ (in \d+ s|now)/ };
  await page.locator('.status-line', waiting).waitFor();
  for (let n = 50; n < 70; n += 1) await bot.publish('demo.log', { data: { n } }, { via: 'rest' });
  await server.fault({ fault: 'refuse', on: false });
  await page.getByRole('button', { name: 'Connection: Connected' }).waitFor();
  await publish(70, 80);
  await until(
    page,
    () => {
      const list = document.querySelector('.list');
      return (
        list?.textContent?.includes('{n: 79}') &&
        list.scrollHeight - list.scrollTop - list.clientHeight < 2
      );
    },
    undefined,
    20_000,
  );
  assert.equal(await page.getByRole('button', { name: /Latest|\d+ new/ }).isVisible(), false);
});

test('the button to the newest messages covers no message', async (t) => {
  const server = await startServer(t, ...FREE);
  const bot = server.client({ token: server.token('--user', 'bot', '--service') });
  await bot.publishMany(Array.from({ length: 30 }, (_, n) => ['demo.log', { data: { n } }]));
  const page = await openConsole(t, server);
  await page.locator('.row .data', { hasText: '{n: 29}' }).click();
  const jump = await page.getByRole('button', { name: 'Latest' }).boundingBox();
  const list = await page.locator('.list').boundingBox();
  assert.ok(jump && list && jump.y >= list.y + list.height);
});

test('the demonstration shows presence, a cut and its replay, and its button stays reachable', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  const play = page
    .getByRole('region', { name: 'Server' })
    .getByRole('button', { name: 'Play a demonstration' });
  await play.click();
  const people = page.getByRole('region', { name: 'Presence' });
  for (const name of ['ana', 'ben']) {
    await people.locator('.members li', { hasText: name }).waitFor();
  }
  await people.locator('.status', { hasText: 'typing' }).first().waitFor();
  await page.locator('.topic-list button', { hasText: 'demo.run-7.answer' }).click();
  const answer = page.getByRole('region', { name: 'Token stream' });
  await answer.getByText('A topic is a log with a limit.').waitFor();
  await page.locator('.topic-list button', { hasText: 'demo.chat.lobby' }).click();
  await page.getByText('The connection of Ben is cut.').waitFor();
  await page.getByText('The connection of this page was cut. It is back').waitFor();
  // At the same time: later messages move both out of the list.
  await Promise.all([
    page.locator('.row', { hasText: 'sent during the cut, 5' }).waitFor(),
    page
      .getByRole('region', { name: 'Timeline of the topic' })
      .getByText(/[1-9]\d* replayed/)
      .waitFor(),
  ]);
  await shot(page, 'console-demonstration');
  assert.equal(await page.locator('.notice').count(), 0);
  await page.getByRole('button', { name: 'Stop the demonstration' }).click();
  await play.waitFor();
  await until(page, () => !document.querySelector('.members li'));
});

test('the rates of the server are unknown until they are measured', async (t) => {
  const server = await startServer(t);
  const page = await openConsole(t, server);
  let answers = 0;
  await page.route('**/metrics', async (route) => {
    answers += 1;
    await route.fulfill({ body: `hanzo_pubsub_published_total ${1_000_000 * answers}\n` });
  });
  const seen: string[] = [];
  await page.exposeFunction('note', (text: string) => seen.push(text));
  await page.addInitScript(() => {
    const note = (): void => {
      const tile = [...document.querySelectorAll('.tiles > div')].find((each) =>
        each.textContent.startsWith('Published/s'),
      );
      if (tile) (globalThis as unknown as { note: (text: string) => void }).note(tile.textContent);
    };
    new MutationObserver(note).observe(document, {
      characterData: true,
      childList: true,
      subtree: true,
    });
  });
  await page.reload();
  const tile = page.locator('.tiles > div').filter({ hasText: 'Published/s' });
  await tile.filter({ hasText: /\d/ }).waitFor();
  assert.ok(answers > 1);
  assert.ok(seen.includes('Published/s–'));
  // A million more in each answer are never 0 per second.
  assert.deepEqual(
    seen.filter((each) => each === 'Published/s0'),
    [],
  );
});
