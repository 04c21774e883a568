/** Text of servers and other clients in a log. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fromCode } from '../../js/src/errors.js';
import { logText } from '../../js/src/log_text.js';
import { respond } from '../../js/src/requests/index.js';
import { Listeners } from '../../js/src/runtime/handlers.js';
import { writeStream } from '../../js/src/streams/index.js';
import { MemoryServer } from '../../js/src/testing/index.js';
import { turns, virtualClient } from './runtime/virtual.js';

const EVIL = 'gone\n2026-01-01 ERROR root: forged\r\x1b[2J\x85\u2028\u202e';
const SHOWN = 'gone\\x0a2026-01-01 ERROR root: forged\\x0d\\x1b[2J\\x85\\u2028\\u202e';
const UNSAFE = /[\p{Cc}\p{Zl}\p{Zp}\u202e]/u;

test('text for a log is one line of at most 300 characters', () => {
  assert.equal(logText('héllo 漢字'), 'héllo 漢字');
  assert.equal(logText(EVIL), SHOWN);
  assert.equal(logText('x'.repeat(300)), 'x'.repeat(300));
  assert.equal(logText('x'.repeat(301)), `${'x'.repeat(300)}…`);
  assert.equal(logText('😀'.repeat(301)), `${'😀'.repeat(300)}…`);
});

for (const code of ['internal', 'going_away', EVIL]) {
  test(`an error of the server with the code ${JSON.stringify(code)} is one line of the log`, () => {
    const lines: string[] = [];
    const log = (text: string): void => void lines.push(text);
    const error = fromCode(code, EVIL + 'x'.repeat(1_000), { remedy: EVIL });
    new Listeners({ info: log, warn: log, error: log }).report(error);
    const [line = ''] = lines;
    assert.equal(lines.length, 1);
    assert.doesNotMatch(line, UNSAFE);
    assert.ok(line.split(SHOWN).length >= 3, line);
    assert.ok(line.length < 1_000, `${line.length}`);
    assert.equal(error.remedy, EVIL);
  });
}

test('the reasons of lost connections, and what a frame names, are one line each in the log', async () => {
  const lines: string[] = [];
  const log = (text: string): void => void lines.push(text);
  const logger = { debug: log, warn: log, error: log };
  const { ps, peer, clock } = virtualClient({ logger, transport: 'websocket' });
  await ps.connect();
  peer.socket.receive({ type: 'error', code: EVIL, message: EVIL, remedy: EVIL });
  peer.socket.receive({ type: EVIL });
  await turns();
  peer.silent.add('auth');
  for (let n = 0; n < 8; n += 1) {
    peer.socket.drop(4500, EVIL.slice(0, 60));
    await clock.advance(40_000);
  }
  await ps.close({ timeout: 0 });
  for (const part of ['unknown type', 'No connection to', 'forged\\x0d'])
    assert.ok(
      lines.some((line) => line.includes(part)),
      part,
    );
  for (const line of lines) assert.doesNotMatch(line, UNSAFE);
});

test('a topic that a server invents forges no line of the log', async () => {
  const lines: string[] = [];
  const log = (text: string): void => void lines.push(text);
  const { ps, peer } = virtualClient({ logger: { warn: log, error: log } });
  const sub = await ps.subscribe('**', { queue: { messages: 1 } });
  const topic = 'a.b\nERROR forged';
  for (let n = 0; n < 9; n += 1) {
    peer.socket.receive(peer.message(topic, n));
    await turns(1);
  }
  await sub[Symbol.asyncIterator]().next();
  await ps.close();
  assert.equal(lines.length, 1);
  for (const line of lines) assert.doesNotMatch(line, UNSAFE);
});

test('a request for a reply on an invented topic forges no line of the log', async () => {
  await using server = await new MemoryServer().start();
  const lines: string[] = [];
  const logger = { warn: (text: string) => void lines.push(text), error: () => {} };
  await respond(server.client({ logger }), 'a.sum', () => 0);
  const meta = { reply_to: EVIL };
  await server.publish('a.sum', { type: 'request', data: [], meta });
  await server.clock.advance(1_000);
  assert.equal(lines.length, 1);
  assert.ok(lines[0]?.includes(`asks for its reply on ${SHOWN}`));
  assert.doesNotMatch(lines[0] as string, UNSAFE);
});

test('the reason why readers cannot cancel a stream is one line of the log', async () => {
  await using server = await new MemoryServer().start();
  const lines: string[] = [];
  const logger = { warn: (text: string) => void lines.push(text), error: () => {} };
  const ps = server.client({ logger });
  ps.subscribe = async () => {
    throw fromCode('forbidden', EVIL);
  };
  const writer = await writeStream(ps, 'a.answer');
  const completing = writer.complete();
  await server.clock.advance(1_000);
  await completing;
  assert.equal(lines.length, 1);
  assert.ok(lines[0]?.includes(SHOWN));
  assert.doesNotMatch(lines[0] as string, UNSAFE);
});
