import assert from 'node:assert/strict';
import { test } from 'node:test';

import { validateTopic } from '../../../js/src/index.js';
import {
  formatRoute,
  parseRoute,
  type Route,
  type View,
} from '../../../server-mock/console/src/route.js';
import { fc } from '../properties.js';

const VIEWS: readonly View[] = [
  ...(['topics', 'messages', 'publish', 'people', 'connections', 'server'] as const),
];

test('an address names the topic, the type and the text', () => {
  const route: Route = { view: 'messages', topic: 'orders.eu', type: 'created', query: 'a b' };
  assert.equal(formatRoute(route), '#/topics/orders.eu?type=created&q=a+b');
  assert.equal(
    formatRoute({ view: 'people', topic: 'orders', type: undefined, query: '' }),
    '#/presence?topic=orders',
  );
});

test('every route is read back from its address', () => {
  const name = fc.stringMatching(/^[a-z0-9_-]{1,8}(\.[a-z0-9_-]{1,8}){0,3}$/);
  fc.assert(
    fc.property(
      fc.record({
        view: fc.constantFrom(...VIEWS),
        topic: fc.option(name, { nil: undefined }),
        type: fc.option(fc.string({ minLength: 1 }), { nil: undefined }),
        query: fc.string(),
      }),
      (route) => assert.deepEqual(parseRoute(formatRoute(route), validateTopic), { ...route }),
    ),
  );
});

test('an invalid address changes nothing, and one without a valid topic shows all', () => {
  for (const hash of ['', '#', '#messages', '#/elsewhere']) {
    assert.equal(parseRoute(hash, validateTopic), undefined);
  }
  const all: Route = { view: 'messages', topic: undefined, type: undefined, query: '' };
  for (const hash of ['#/', '#/messages', '#/topics/a..b', '#/topics/%E0%A4%A', '#/topics/']) {
    assert.deepEqual(parseRoute(hash, validateTopic), all, hash);
  }
});
