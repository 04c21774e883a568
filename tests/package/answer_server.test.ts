/** The server of docs/streams.md that answers with a token stream, pasted into an empty folder. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { build } from 'esbuild';
import WebSocket from 'ws';

import { PubSub } from '../../js/src/index.js';
import { writeStream } from '../../js/src/streams/index.js';
import { atEnd } from '../browser/ending.js';
import { BOUND, bounded, Server } from '../js/runtime/server.js';
import { APPLICATION, findNode, INSTALLED, ROOT } from './application.js';

const SAMPLE = /^```ts title="answer_server.ts"\n(.*?)^```/ms;

/** Prints the port of the program, which listens on any free one. */
const PORT = `console.log(server.address().port)`;

interface Serving {
  readonly url: string;
  /** The lines that the program logs. */
  readonly log: Interface;
}

async function serve(t: TestContext, server: Server, node: string): Promise<Serving> {
  const folder = join(APPLICATION, 'answer-server');
  mkdirSync(join(folder, 'node_modules', '@hanzoai'), { recursive: true });
  const link = join(folder, 'node_modules', '@hanzoai', 'pubsub');
  symlinkSync(INSTALLED, link);
  const [, sample = ''] = SAMPLE.exec(readFileSync(join(ROOT, 'docs', 'streams.md'), 'utf8')) ?? [];
  await build({
    stdin: {
      contents: `${sample}\nserver.once('listening', () => ${PORT});\n`,
      loader: 'ts',
      resolveDir: folder,
    },
    absWorkingDir: folder,
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    outfile: 'answer_server.mjs',
  });
  const child = spawn(node, ['answer_server.mjs'], {
    cwd: folder,
    env: {
      ...process.env,
      PORT: '0',
      HANZO_PUBSUB_URL: server.ws,
      HANZO_PUBSUB_REST_URL: server.http,
      HANZO_PUBSUB_TOKEN: server.token('--user', 'answers', '--service'),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'exit');
  atEnd(t, async () => {
    child.kill();
    await ended;
  });
  const [port] = await bounded(once(createInterface({ input: child.stdout }), 'line'), 'the port');
  return { url: `http://127.0.0.1:${port}`, log: createInterface({ input: child.stderr }) };
}

/** Wait until the server has so many connections that read this topic. */
async function readers(server: Server, topic: string, count: number): Promise<void> {
  const headers = { Authorization: `Bearer ${server.token('--user', 'root', '--admin')}` };
  const until = Date.now() + BOUND;
  for (;;) {
    const answer = await fetch(`${server.http}/v1/connections?topic=${topic}`, { headers });
    const { connections } = (await answer.json()) as { connections: unknown[] };
    if (connections.length === count) return;
    assert.ok(Date.now() < until, `${connections.length} connections read ${topic}`);
    await sleep(20);
  }
}

test('a Node server answers with a token stream, and leaves it with the browser', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const { url, log } = await serve(t, server, await findNode(24));

  const over = new AbortController();
  const left = await fetch(`${url}/?session=left`, { signal: over.signal });
  assert.equal(left.headers.get('content-type'), 'text/event-stream');
  await readers(server, 'demo.chat.left', 1);
  over.abort();
  await readers(server, 'demo.chat.left', 0);

  const token = server.token('--user', 'writer', '--service');
  const ps = new PubSub({ url: server.ws, restUrl: server.http, token, WebSocket });
  atEnd(t, () => ps.close());
  const answer = await fetch(`${url}/?session=abc`, { signal: AbortSignal.timeout(BOUND) });
  await readers(server, 'demo.chat.abc', 1);
  const writer = await writeStream(ps, 'demo.chat.abc');
  await writer.write('A topic is a name.');
  await writer.complete();
  const names = [...(await answer.text()).matchAll(/^event: (\w+)$/gm)].map(([, name]) => name);
  assert.deepEqual(names, ['started', 'delta', 'done']);

  const logged = bounded(once(log, 'line'), 'the error');
  const wrong = await fetch(`${url}/?session=*`, { signal: AbortSignal.timeout(BOUND) });
  await assert.rejects(wrong.text());
  assert.match(String(await logged), /InvalidTopic/);
});
