import assert from 'node:assert/strict';
import { test } from 'node:test';

import { findSlip } from '../../../server-mock/console/src/json_place.js';
import { fc } from '../properties.js';

test('an error has a line, a column, and the expected syntax', () => {
  for (const [text, line, column, expected] of [
    ['', 1, 1, 'a value'],
    ['{a: 1}', 1, 2, 'a name in double quotes'],
    ['{"a" 1}', 1, 6, 'a colon'],
    ['{"a": 1,}', 1, 9, 'a name in double quotes'],
    ['[1, 2', 1, 6, 'a comma or ]'],
    ['{\n  "a": 1\n  "b": 2\n}', 3, 3, 'a comma or }'],
    ["'single'", 1, 1, 'a value'],
    ['01', 1, 1, 'a value'],
    ['{} {}', 1, 4, 'the end of the text'],
  ] as const) {
    assert.deepEqual(findSlip(text), { line, column, expected }, text);
  }
});

test('the position of an error is where the text stops being JSON', () => {
  const broken = fc
    .tuple(fc.json(), fc.nat(), fc.constantFrom('', ',', '"', '}', '0', ' ', '\\', 'e'))
    .map(([json, at, sign]) => {
      const place = at % (json.length + 1);
      return json.slice(0, place) + sign + json.slice(place + 1);
    });
  fc.assert(
    fc.property(fc.oneof(fc.json(), broken), (text) => {
      let isJson = true;
      try {
        JSON.parse(text);
      } catch {
        isJson = false;
      }
      assert.equal(findSlip(text) === undefined, isJson, text);
    }),
    { numRuns: 3_000 },
  );
});
