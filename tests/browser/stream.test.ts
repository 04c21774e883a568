import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import { writeStream } from '../../js/src/streams/index.js';
import { addresses, openPage, startServer, until } from './harness.js';
import type { Shown } from './pages/stream.js';

declare const shown: Shown;

const TEXT = 'Hello wörld \u{1f468}\u200d\u{1f469}\u200d\u{1f467} 漢字 é '.repeat(12);

async function shows(page: Page, selector: string, wanted: string): Promise<void> {
  const found = ([selector, wanted]: string[]) =>
    document.querySelector(selector as string)?.textContent === wanted;
  await until(page, found, [selector, wanted]);
}

async function* model(text: string) {
  for (const piece of text.match(/.{1,3}/gs) ?? []) {
    await new Promise((resolve) => setTimeout(resolve, 1000 / 150));
    yield piece;
  }
}

test('an answer grows with the frames, survives a remount, and is cancelled by a click', async (t) => {
  const server = await startServer(t);
  const options = { ...addresses(server), token: server.token('--user', 'bob', '--service') };
  const page = await openPage(t, { entry: 'pages/stream.tsx', given: { options } });
  const gateway = server.client({ token: server.token('--user', 'gateway', '--service') });
  await shows(page, '#answer', 'waiting ');
  const writer = await writeStream(gateway, 'demo.answer');
  const piping = writer.pipe(model(TEXT));
  await until(page, () => (shown.stream?.text.length ?? 0) > 100);
  await page.evaluate(() => shown.show(false));
  await page.evaluate(() => shown.show(true));
  await piping;
  await shows(page, '#answer', `done ${TEXT}`);
  const texts = await page.evaluate(() => shown.texts);
  assert.ok(texts.every((text) => TEXT.startsWith(text)));

  await page.evaluate(() => shown.show(false));
  const next = await writeStream(gateway, 'demo.answer');
  await next.write('to be continued');
  await page.evaluate(() => shown.show(true));
  await shows(page, '#answer', 'streaming to be continued');
  await page.evaluate(() => shown.stream?.cancel('enough'));
  await shows(page, '#answer', 'aborted to be continued');
  assert.ok(next.signal.aborted);
});

test('each message is reduced once and in order, however few are kept and rendered', async (t) => {
  const server = await startServer(t, '--publish-rate-service', '10000');
  const options = { ...addresses(server), token: server.token('--user', 'bob', '--service') };
  const page = await openPage(t, { entry: 'pages/stream.tsx', given: { options } });
  const gateway = server.client({ token: server.token('--user', 'gateway', '--service') });
  await shows(page, '#sum', 'live 0');
  await gateway.publishMany(
    Array.from({ length: 1_000 }, (_, n) => ['demo.numbers', { data: n }] as const),
  );
  await shows(page, '#sum', `live ${(999 * 1_000) / 2}`);
  assert.deepEqual(
    await page.evaluate(() => shown.received),
    Array.from({ length: 1_000 }, (_, n) => n),
  );
});

test('a component that changes its topic shows nothing of the previous one', async (t) => {
  const server = await startServer(t);
  const options = { ...addresses(server), token: server.token('--user', 'bob', '--service') };
  const page = await openPage(t, { entry: 'pages/stream.tsx', given: { options } });
  const gateway = server.client({ token: server.token('--user', 'gateway', '--service') });
  await page.evaluate(() => shown.enter('demo.room.a'));
  await shows(page, '#room', 'demo.room.a false ');
  await until(page, () => document.querySelector('#sum')?.textContent === 'live 0');
  const writer = await writeStream(gateway, 'demo.room.a');
  await writer.write('secret');
  await shows(page, '#room', 'demo.room.a true secret');
  await page.evaluate(() => shown.enter('demo.room.b'));
  await shows(page, '#room', 'demo.room.b false ');
  await page.evaluate(() => shown.enter('demo.room.a'));
  await shows(page, '#room', 'demo.room.a true secret');
  await page.evaluate(() => shown.enter(null));
  await shows(page, '#room', 'null false ');
  const others = await page.evaluate(() =>
    shown.rooms.filter(([topic]) => topic !== 'demo.room.a'),
  );
  assert.deepEqual(
    others.filter(([, text, sum]) => text || sum),
    [],
  );
  await writer.abort();
});
