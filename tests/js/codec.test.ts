import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { decodeCanonical } from '../../js/src/wire/canonical.js';
import { decode, encode } from '../../js/src/wire/codec.js';
import { type Decoded, Malformed, Unknown } from '../../js/src/wire/decoded.js';
import { decodeEvent } from '../../js/src/wire/readings.js';
import { load } from './files.js';
import { canonical } from './traces/mapping.js';

interface Reading {
  readonly why: string;
  readonly event?: string;
  readonly text: string;
  readonly frame?: unknown;
  readonly malformed?: string;
  readonly unknown?: string;
}

const SECRET = 'the-payload-nobody-may-log';
const { readings } = load<{ readings: readonly Reading[] }>('readings.json');

async function read({ text, event }: Reading): Promise<Decoded> {
  return event === undefined ? await decode(text) : decodeEvent(event, text);
}

describe('a text is read as specified', () => {
  for (const reading of readings) {
    test(reading.why, async () => {
      const got = await read(reading);
      if (got instanceof Malformed) {
        assert.equal(got.reason.replace(/^not JSON:.*/, 'not JSON'), reading.malformed);
      } else if (got instanceof Unknown) {
        assert.equal(got.type, reading.unknown);
      } else {
        assert.equal(canonical(got), canonical(reading.frame));
      }
      if (reading.event === undefined) {
        const other = await decodeCanonical(reading.text);
        if (!JSON.stringify(reading.frame)?.includes('msg_')) assert.deepEqual(other, got);
      }
    });
  }
});

test('bytes are read like text, and invalid UTF-8 is malformed', async () => {
  const bytes = new TextEncoder().encode('\ufeff{"type":"pong"}');
  assert.deepEqual(await decode(bytes), { type: 'pong' });
  for (const odd of [[0xff, 0xfe], [0xed, 0xa0, 0x80], []]) {
    assert.ok((await decode(Uint8Array.from(odd))) instanceof Malformed);
  }
});

test('hostile keys cannot change a prototype', async () => {
  for (const reading of readings) await read(reading);
  assert.equal(Object.hasOwn(Object.prototype, 'polluted'), false);
  assert.equal(Reflect.get({}, 'polluted'), undefined);
  const got = await decode(
    '{"type":"auth.ok","__proto__":{"version":1},"limits":{"__proto__":{"publish_rate":1}}}',
  );
  assert.ok(!(got instanceof Malformed || got instanceof Unknown) && got.type === 'auth.ok');
  assert.equal(got.version, undefined);
  assert.equal(got.limits?.publish_rate, undefined);
});

test('a message is read with its whole text, although only its envelope is parsed', async () => {
  const envelope = '{"id":"m","topic":"a.b","type":"t","timestamp":1,"data":{"n":{}}}';
  const start = `{"type":"message","message":${envelope}`;
  for (const end of ['}', '}\n', ',"ref":"r"}', ',"more":{"n":{}}}']) {
    assert.deepEqual(await decodeCanonical(start + end), JSON.parse(start + end));
  }
  for (const end of ['', ']', '}}', '}x', ',}', ',"more":{}']) {
    assert.ok((await decodeCanonical(start + end)) instanceof Malformed, end);
  }
});

test('a payload number beyond 2^53 is delivered, rounded', async () => {
  const text =
    '{"type":"message","message":{"id":"m","topic":"a","type":"t","timestamp":1,"data":9007199254740993}}';
  const got = await decode(text);
  assert.ok(!(got instanceof Malformed || got instanceof Unknown) && got.type === 'message');
  assert.equal(got.message.data, 9007199254740992);
});

test('deep nesting is malformed, and does not overflow the stack', async () => {
  for (const depth of [5_000, 200_000]) {
    const text = `{"type":"x","a":${'['.repeat(depth)}${']'.repeat(depth)}}`;
    assert.ok((await decode(text)) instanceof Malformed);
    assert.ok((await decode('['.repeat(depth))) instanceof Malformed);
  }
});

test('a message without an id gets a new one', async () => {
  const text = '{"type":"message","message":{"topic":"a","type":"t","data":1}}';
  const ids = (await Promise.all([decode(text), decode(text)])).map((got) => {
    assert.ok(!(got instanceof Malformed || got instanceof Unknown) && got.type === 'message');
    assert.match(got.message.id, /^msg_[0-9A-HJKMNP-TV-Z]{26}$/);
    assert.equal(got.message.timestamp, 0);
    return got.message.id;
  });
  assert.notEqual(ids[0], ids[1]);
});

test('a reason never contains a payload', async () => {
  for (const text of [
    `{"type":"message","message":{"data":"${SECRET}"}}`,
    `{"type":"subscribed","topics":{"x":"${SECRET}"}}`,
    `{"type":"presence.snapshot","topic":{"a":"${SECRET}"},"members":"${SECRET}"}`,
    `{"type":"message","message":{"data":"${SECRET}"`,
    SECRET,
  ]) {
    const got = await decode(text);
    assert.ok(got instanceof Malformed);
    assert.ok(!JSON.stringify(got).includes(SECRET));
  }
});

test('no text makes the decoder throw', async () => {
  const texts = readings.map(({ text }) => text);
  let seed = 7;
  const below = (n: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 16) % n;
  };
  for (let n = 0; n < 20_000; n += 1) {
    const one = texts[below(texts.length)] ?? '';
    const other = texts[below(texts.length)] ?? '';
    const text = one.slice(0, below(one.length + 1)) + other.slice(below(other.length + 1));
    await decode(text);
    decodeEvent(['message', 'presence', 'subscribed', 'x'][below(4)] ?? '', text);
  }
});

test('a frame is written compactly', async () => {
  assert.equal(encode({ type: 'ping' }), '{"type":"ping"}');
  const message = { topic: 'a', type: 'message', data: { x: null }, id: 'm' };
  const text = encode({ type: 'publish', message, ref: '7' });
  assert.equal(
    text,
    '{"type":"publish","message":{"topic":"a","type":"message","data":{"x":null},"id":"m"},"ref":"7"}',
  );
});
