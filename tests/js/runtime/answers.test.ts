/** HTTP answers: only those of a PubSub server confirm a publish, or identify a peer. */

import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';

import { ProtocolError, PubSub, type PubSubOptions } from '../../../js/src/index.js';
import { EventParser } from '../../../js/src/transports/event_stream.js';

type Answer = (response: ServerResponse, request: IncomingMessage) => void;

const page: Answer = (response) => {
  response.writeHead(200, { 'Content-Type': 'text/html' }).end('<html>Log in</html>');
};
const status =
  (code: number): Answer =>
  (response) => {
    response.writeHead(code).end();
  };
const json =
  (value: unknown, code = 200): Answer =>
  (response) => {
    response.writeHead(code, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));
  };
const redirect: Answer = (response) => {
  response.writeHead(302, { Location: '/login' }).end();
};

/** Run with a site whose answers the test chooses by path. Other paths return 404. */
async function withSite(
  answers: Readonly<Record<string, Answer>>,
  settings: PubSubOptions,
  run: (ps: PubSub, asked: string[]) => Promise<void>,
): Promise<void> {
  const asked: string[] = [];
  const site = createServer((request, response) => {
    const path = request.url?.split('?')[0] ?? '';
    asked.push(`${request.method} ${path}`);
    request.resume().on('end', () => (answers[path] ?? status(404))(response, request));
  });
  await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  const logger = { warn: () => {}, error: () => {} };
  const ps = new PubSub({ url: `${url}/ws`, restUrl: url, token: 'x', logger, ...settings });
  try {
    await run(ps, asked);
  } finally {
    await ps.close({ timeout: 0 });
    site.closeAllConnections();
    site.close();
  }
}

const MESSAGES = '/v1/topics/a.b/messages';

const STRANGE: readonly [output: string, answer: Answer][] = [
  ['HTTP 200 and an HTML page', page],
  ['HTTP 200 and an empty body', status(200)],
  ['HTTP 204 and an empty body', status(204)],
  ['HTTP 200 and JSON', json({})],
  ['HTTP 201 and JSON', json({ id: 'm1' }, 201)],
  ['HTTP 302 and a redirect', redirect],
];
for (const [output, answer] of STRANGE) {
  test(`a publish is not confirmed by ${output}`, async () => {
    await withSite({ [MESSAGES]: answer }, {}, async (ps, asked) => {
      const call = ps.publish('a.b', { data: 1 }, { via: 'rest' });
      await assert.rejects(call, (error: ProtocolError) => {
        assert.ok(error instanceof ProtocolError, String(error));
        assert.match(error.message, /^127\.0\.0\.1:\d+ answered /);
        assert.equal(error.topic, 'a.b');
        return error.message.includes(output);
      });
      assert.deepEqual(asked, [`POST ${MESSAGES}`]);
    });
  });
}

const FOREIGN: readonly [what: string, session: Answer, stream: Answer][] = [
  ['nothing found', status(404), status(404)],
  ['redirects', redirect, redirect],
  ['pages', page, page],
  ['a refusal in HTML', status(404), (response) => response.writeHead(400).end('<html></html>')],
];
for (const [what, session, stream] of FOREIGN) {
  test(`a site that shows no event streams is no plain peer: ${what}`, async () => {
    const answers = { '/v1/session': session, '/v1/subscribe': stream };
    await withSite(answers, { transport: 'sse' }, async (ps) => {
      const states = ps.states();
      const published = assert.rejects(ps.publish('a.b', { data: 1 }));
      for await (const { to, reason } of states) {
        assert.notEqual(to, 'connected');
        if (/answered GET \/v1\/subscribe with HTTP \d+/.test(reason)) break;
      }
      await ps.close({ timeout: 0 });
      await published;
    });
  });
}

test('beside an event stream a plain peer confirms a publish by the answer to its request', async () => {
  const plain = { '/v1/subscribe': json({ error: 'no topics' }, 400) };
  const taken = json({ id: 'm1', timestamp: 5 });
  await withSite({ ...plain, [MESSAGES]: taken }, { transport: 'sse' }, async (ps, asked) => {
    const { timestamp } = await ps.publish('a.b', { data: 1 });
    assert.equal(timestamp, 5);
    assert.equal(asked.at(-1), `POST ${MESSAGES}`);
  });
  await withSite({ ...plain, [MESSAGES]: page }, { transport: 'sse' }, async (ps) => {
    await assert.rejects(ps.publish('a.b', { data: 1 }), ProtocolError);
  });
});

test('an event is bounded by its lines, whether or not they have a value', () => {
  const parser = new EventParser(1_000);
  const lines = new TextEncoder().encode('data\n'.repeat(150));
  parser.push(lines);
  assert.throws(() => parser.push(lines), RangeError);
});
