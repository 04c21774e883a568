import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Colours, TONES } from '../../../server-mock/console/src/colours.js';
import { readMetrics } from '../../../server-mock/console/src/metrics.js';
import {
  linePoints,
  messagesBetween,
  RateSeries,
  SAMPLES,
} from '../../../server-mock/console/src/rates.js';

test('a rate is the mean of the newest samples and remembers a bounded past', () => {
  const series = new RateSeries();
  assert.equal(series.quiet, true);
  for (let n = 0; n < 100; n += 1) series.push(20, 2);
  assert.equal(series.perSecond.length, SAMPLES);
  assert.equal(series.recent, 10);
  for (let n = 0; n < 3; n += 1) series.push(0, 2);
  assert.equal(series.recent, 0);
  assert.equal(series.quiet, false);
  for (let n = 0; n < SAMPLES; n += 1) series.push(0, 2);
  assert.equal(series.quiet, true);
});

test('the rate is 0 for an interval of 0 and for negative counts', () => {
  const series = new RateSeries();
  series.push(5, 0);
  series.push(-5, 2);
  assert.equal(series.quiet, true);
});

test('positions count messages, and a restarted log counts none', () => {
  assert.equal(messagesBetween(5, 12), 7);
  assert.equal(messagesBetween(undefined, 12), 0);
  assert.equal(messagesBetween(12, undefined), 0);
  assert.equal(messagesBetween(12, 5), 0);
  assert.equal(messagesBetween(12, 1_740_000_000_000_000), 0);
});

test('a line stays within its box', () => {
  for (const values of [[0, 0, 0], [1, 5_000, 3], [7]]) {
    for (const point of linePoints(values, 60, 18).split(' ')) {
      const [x = -1, y = -1] = point.split(',').map(Number);
      assert.ok(x >= 0 && x <= 60 && y >= 0 && y <= 18, point);
    }
  }
});

test('metrics are summed over their labels, and invalid lines are skipped', () => {
  const found = readMetrics(
    [
      '# HELP hanzo_pubsub_connections Open connections.',
      'hanzo_pubsub_connections{form="socket"} 3.0',
      'hanzo_pubsub_connections{form="event_stream"} 2.0',
      'hanzo_pubsub_published_total 1.5e+03',
      'process_cpu_seconds_total 7',
      'hanzo_pubsub_broken NaN',
      'nonsense',
    ].join('\n'),
  );
  assert.deepEqual(
    [...found],
    [
      ['connections', 5],
      ['published_total', 1500],
    ],
  );
});

test('a topic keeps its colour, and topics use all colours', () => {
  const topics = Array.from({ length: TONES }, (_, n) => `demo.${n}`);
  const colours = new Colours();
  const tones = topics.map((topic) => colours.of(topic));
  assert.equal(new Set(tones).size, TONES);
  assert.deepEqual(
    topics.map((topic) => colours.of(topic)),
    tones,
  );
});
