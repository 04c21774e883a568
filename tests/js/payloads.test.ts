import assert from 'node:assert/strict';
import { test } from 'node:test';

import { InvalidPayload, PayloadTooLarge } from '../../js/src/errors.js';
import { checkData, checkPublication } from '../../js/src/wire/payloads.js';
import { sizeOf } from '../../js/src/wire/plain.js';

const LIMIT = 262_144;

function nested(depth: number): unknown[] {
  let value: unknown[] = [];
  for (let n = 1; n < depth; n += 1) value = [value];
  return value;
}

function looped(): unknown[] {
  const loop: unknown[] = [];
  loop.push(loop);
  return loop;
}

class Point {
  x = 1;
}

test('plain JSON passes and is measured as it is sent', () => {
  const bare: object = Object.create(null);
  const plain = [
    null,
    true,
    0,
    -1.5,
    -(2 ** 63),
    2 ** 63,
    1e21,
    '',
    'ü😀',
    [],
    {},
    { a: [{ b: null }] },
    nested(100),
    bare,
  ];
  for (const data of [...plain, { constructor: 1, toString: 'x' }, JSON.parse('{"__proto__":1}')]) {
    assert.equal(checkData(data, LIMIT), Buffer.byteLength(JSON.stringify(data)));
  }
  assert.equal(checkData({ a: undefined }, LIMIT), 2);
});

test('the error names the invalid value in a payload', () => {
  const cases: [data: unknown, path: string, problem: RegExp][] = [
    [Number.NaN, 'data', /NaN/],
    [{ price: Infinity }, 'data.price', /NaN or infinite/],
    [{ items: [1, { n: 2n ** 64n }] }, 'data.items[1].n', /bigint/],
    [2 ** 64, 'data', /64 bits/],
    [[-(2 ** 63) - 2_048], 'data[0]', /64 bits/],
    [new Array(1), 'data[0]', /is of type undefined/],
    [{ t: 'a\ud800' }, 'data.t', /surrogate/],
    [{ '\udfff': 1 }, 'data', /surrogate/],
    [{ s: new Set([1]) }, 'data.s', /is of type Set/],
    [new Uint8Array(2), 'data', /is of type Uint8Array/],
    [{ d: new Date(0) }, 'data.d', /is of type Date/],
    [new Point(), 'data', /is of type Point/],
    [undefined, 'data', /is of type undefined/],
    [[undefined], 'data[0]', /is of type undefined/],
    [() => 1, 'data', /is of type function/],
    [{ toJSON: () => 1 }, 'data', /JSON does not support/],
    [nested(101), 'data[0]', /deeper than 100/],
    [looped(), 'data[0]', /deeper than 100/],
  ];
  for (const [data, path, problem] of cases) {
    assert.equal(sizeOf(data), Number.NaN);
    assert.throws(
      () => checkData(data, LIMIT, 'a.b'),
      (error: unknown) => {
        assert.ok(error instanceof InvalidPayload, String(error));
        assert.ok(error.field?.startsWith(path), error.field);
        assert.match(error.message, problem);
        assert.equal(error.topic, 'a.b');
        assert.ok(error.remedy && error.message.length < 200);
        return true;
      },
    );
  }
});

test('the error for a payload over the limit contains both sizes', () => {
  assert.equal(checkData('x'.repeat(LIMIT - 2), LIMIT), LIMIT);
  assert.throws(
    () => checkData('x'.repeat(LIMIT - 1), LIMIT),
    (error: unknown) => {
      assert.ok(error instanceof PayloadTooLarge && error.size === LIMIT + 1);
      assert.equal(error.limit, LIMIT);
      assert.equal(error.message, 'The payload has 262,145 bytes of JSON; the limit is 262,144.');
      return true;
    },
  );
  assert.equal(checkData('😀', LIMIT), 6);
});

test('meta is checked and counted too', () => {
  const meta = { traceparent: '00' };
  assert.equal(checkPublication({ topic: 'a', data: 1, meta }, LIMIT), 21);
  assert.throws(() => checkPublication({ topic: 'a', data: 1, meta: { x: 1n } }, LIMIT), /meta\.x/);
});
