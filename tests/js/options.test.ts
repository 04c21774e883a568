/** Options that protect the user: `new PubSub` rejects these before it sends anything. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PubSub } from '../../js/src/index.js';
import { readOptions } from '../../js/src/settings/read_options.js';
import { endpoints } from '../../js/src/settings/urls.js';

const token = 'x';

for (const [field, urls] of [
  ['url', { url: 'ws://example.com/ws', restUrl: 'https://example.com' }],
  ['url', { url: 'ws://example.com/ws' }],
  ['url', { url: 'http://example.com' }],
  ['restUrl', { url: 'wss://example.com/ws', restUrl: 'http://example.com' }],
] as const) {
  test(`no token goes unencrypted to ${Object.values(urls).join(' and ')}`, () => {
    assert.throws(() => new PubSub({ ...urls, token }), { code: 'insecure_url', field });
    assert.ok(new PubSub({ ...urls, token, allowInsecure: true }));
  });
}

for (const [url, socket, http] of [
  ['wss://h:8057/', 'wss://h:8057/ws', 'https://h:8056'],
  ['wss://h:9000/a/b', 'wss://h:9000/a/b', 'https://h:9000'],
  ['wss://h:8057/ws?tenant=x', 'wss://h:8057/ws?tenant=x', 'https://h:8056'],
  ['https://h:8056/', 'wss://h:8057/ws', 'https://h:8056'],
  ['https://h/pubsub/', 'wss://h/pubsub/ws', 'https://h/pubsub'],
  ['http://[::1]:8056', 'ws://[::1]:8057/ws', 'http://[::1]:8056'],
  ['https://h:8057/ws', 'wss://h:8057/ws', 'https://h:8056'],
  ['http://127.0.0.1:9000/a/ws', 'ws://127.0.0.1:9000/a/ws', 'http://127.0.0.1:9000'],
] as const)
  test(`${url} gives the addresses of the socket and of HTTP`, () => {
    assert.deepEqual(endpoints(url), { socket, http });
  });

test('an empty `restUrl` is rejected with an explanation', () => {
  const options = { url: 'wss://example.com/ws', restUrl: '', token };
  assert.throws(() => new PubSub(options), { field: 'restUrl', message: /is empty/ });
});

test('a missing option mentions its variable only on platforms with an environment', () => {
  const url = 'wss://example.com/ws';
  const remedies = (environ: Record<string, string>) => {
    const found: string[] = [];
    for (const options of [{}, { url }]) {
      assert.throws(
        () => readOptions(options, environ),
        ({ field, remedy }) => found.push(`${field}: ${remedy}`) > 0,
      );
    }
    return found;
  };
  assert.deepEqual(remedies({ HOME: '/root' }), [
    'url: Pass `url`, for example wss://pubsub.example.com/ws, or set HANZO_PUBSUB_URL.',
    'token: Pass `token` or `getToken`, or set HANZO_PUBSUB_TOKEN.',
  ]);
  assert.deepEqual(remedies({}), [
    'url: Pass `url`, for example wss://pubsub.example.com/ws.',
    'token: Pass `token` or `getToken`.',
  ]);
});

test('a local address without a scheme is shown with one; others may be a token', () => {
  for (const [url, remedy] of [
    ['localhost:8057', 'Write it like ws://localhost:8057.'],
    ['127.0.0.1:8057/ws', 'Write it like ws://127.0.0.1:8057/ws.'],
    ['x1y2', 'Use one of ws://, wss://, http://, https://.'],
  ]) {
    assert.throws(() => new PubSub({ url, token }), { field: 'url', remedy });
  }
});

test('an unknown name in a group is named with its group', () => {
  const url = 'wss://example.com/ws';
  for (const [given, field, remedy] of [
    [{ sendQueue: { zz: 1 } }, 'sendQueue.zz', '`sendQueue` takes messages, bytes, policy.'],
    [{ receiveQueue: { mesages: 1 } }, 'receiveQueue.mesages', 'Write `messages`.'],
    [{ zz: 1 }, 'zz', /^`options` takes url, /],
  ] as const) {
    const message = `There is no option \`${field}\`.`;
    assert.throws(() => new PubSub({ url, token, ...given } as object), { field, message, remedy });
  }
});

test('a token may be what a signer returns', () => {
  const url = 'wss://example.com/ws';
  const signed = { value: ' Bearer abc ', expiresAt: 1 };
  assert.equal(readOptions({ url, token: signed }).token, 'Bearer abc');
  for (const wrong of [{}, { value: '' }, { value: 7 }, []])
    assert.throws(() => new PubSub({ url, token: wrong } as never), { field: 'token' });
});
