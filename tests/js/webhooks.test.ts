import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { InvalidOption, PubSubError } from '../../js/src/errors.js';
import { InvalidWebhook, SeenWebhooks, sign, verify } from '../../js/src/webhooks/index.js';

const SECRET = `whsec_${btoa('0123456789abcdef0123456789abcdef')}`;
const NOW = 1_740_307_200_000;
const EVENTS = [
  { event: 'publish', topic: 'a.b', time: NOW - 500, data: { id: 'm1', data: 'é😀' } },
  { event: 'leave', topic: 'a.b', time: NOW - 400, data: { user_id: 'u' } },
];
const BODY = new TextEncoder().encode(JSON.stringify({ events: EVENTS }));

const signed = (body: Uint8Array = BODY, secret = SECRET) =>
  sign(body, secret, { id: 'wh_1', sentAt: NOW });

function refused(field: string, status = 401) {
  return (error: unknown) => {
    assert.ok(error instanceof InvalidWebhook && error instanceof PubSubError);
    assert.deepEqual([error.name, error.field, error.status], ['InvalidWebhook', field, status]);
    assert.ok(!`${error}`.includes(SECRET));
    return true;
  };
}

describe('webhooks', () => {
  test('a genuine request returns its events in order', async () => {
    const delivery = await verify(BODY, await signed(), SECRET, { now: NOW });
    assert.deepEqual(delivery, { id: 'wh_1', sentAt: NOW, events: EVENTS });
  });

  test('a known request has the known signature', async () => {
    // From the documentation of Standard Webhooks.
    const headers = await sign('{"test": 2432232314}', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', {
      id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      sentAt: 1_614_265_330_000,
    });
    assert.equal(headers['webhook-signature'], 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=');
  });

  test('a body may be any view of its bytes', async () => {
    const { buffer } = Uint8Array.of(0, 0, ...BODY);
    const view = new DataView(buffer, 2) as unknown as Uint8Array;
    assert.deepEqual(await signed(view), await signed());
    assert.equal((await verify(view, await signed(), SECRET, { now: NOW })).id, 'wh_1');
  });

  test('headers may be those of fetch or of Node, in any case', async () => {
    const headers = await signed();
    const titles = Object.entries(headers).map(([name, value]) => [name.toUpperCase(), [value]]);
    for (const each of [new Headers(headers), headers, Object.fromEntries(titles)])
      assert.equal((await verify(BODY, each, SECRET, { now: NOW })).id, 'wh_1');
  });

  test('a changed byte is refused', async () => {
    const headers = await signed();
    for (let place = 0; place < BODY.length; place += 7) {
      const changed = BODY.slice();
      changed[place] = (changed[place] ?? 0) ^ 1;
      const checked = verify(changed, headers, SECRET, { now: NOW });
      await assert.rejects(checked, refused('webhook-signature'));
    }
  });

  test('a body that is not bytes is a bad request, whatever a framework made of it', async () => {
    const headers = await signed();
    const { buffer } = BODY;
    for (const body of [undefined, null, {}, [], { events: EVENTS }, 5, buffer]) {
      const checked = Reflect.apply(verify, undefined, [body, headers, SECRET, { now: NOW }]);
      await assert.rejects(checked, refused('body', 400));
    }
  });

  test('a missing header is named', async () => {
    for (const name of ['webhook-id', 'webhook-timestamp', 'webhook-signature']) {
      const headers = { ...(await signed()), [name]: undefined };
      await assert.rejects(verify(BODY, headers, SECRET, { now: NOW }), refused(name));
    }
  });

  test('the signed headers cannot be changed', async () => {
    const headers = await signed();
    for (const changed of [
      { 'webhook-id': 'wh_2' },
      { 'webhook-timestamp': '1740307201' },
      { 'webhook-signature': 'v1,AAAA' },
      { 'webhook-signature': 'v1,?' },
      { 'webhook-signature': headers['webhook-signature'].replace('v1', 'v2') },
    ]) {
      const checked = verify(BODY, { ...headers, ...changed }, SECRET, { now: NOW });
      await assert.rejects(checked, refused('webhook-signature'));
    }
  });

  test('a time that is not a number, or outside the tolerance, is rejected', async () => {
    const headers = await signed();
    for (const stamp of ['soon', '-5', '1e9', '9'.repeat(40)]) {
      const odd = { ...headers, 'webhook-timestamp': stamp };
      await assert.rejects(verify(BODY, odd, SECRET, { now: NOW }), refused('webhook-timestamp'));
    }
    for (const now of [NOW + 301_000, NOW - 301_000]) {
      await assert.rejects(verify(BODY, headers, SECRET, { now }), refused('webhook-timestamp'));
      await verify(BODY, headers, SECRET, { now, tolerance: 302_000 });
    }
  });

  test('a tolerance that is not above zero is refused, and a clock that is no number accepts nothing', async () => {
    const headers = await signed();
    for (const tolerance of [0, -1, Number.NaN])
      await assert.rejects(
        verify(BODY, headers, SECRET, { now: NOW, tolerance }),
        (error) => error instanceof InvalidOption && error.field === 'tolerance',
      );
    const checked = verify(BODY, headers, SECRET, { now: Number.NaN });
    await assert.rejects(checked, refused('webhook-timestamp'));
  });

  test('both secrets are accepted during a rotation', async () => {
    for (const secret of [SECRET, 'plain text'])
      await verify(BODY, await signed(BODY, secret), [SECRET, 'plain text'], { now: NOW });
    const [old, current] = [await signed(), await signed(BODY, 'new')];
    const both = `${old['webhook-signature']} ${current['webhook-signature']}`;
    await verify(BODY, { ...old, 'webhook-signature': both }, 'new', { now: NOW });
  });

  test('the error for an invalid secret names the option', async () => {
    const wrong: unknown[] = ['', [], ['a', ''], 'whsec_?', 'whsec_', undefined, null, 5, [null]];
    wrong.push(Buffer.from('ab'), {}, new Set(['x']));
    for (const secret of wrong) {
      const isNamed = (error: unknown) =>
        error instanceof InvalidOption && error.field === 'secret';
      await assert.rejects(verify(BODY, await signed(), secret as string, { now: NOW }), isNamed);
      if (!Array.isArray(secret)) {
        const signing = sign(BODY, secret as string, { id: 'wh_1', sentAt: NOW });
        await assert.rejects(signing, isNamed);
      }
    }
  });

  test('headers that verify would refuse are not signed', async () => {
    const right = { body: BODY, id: 'wh_1', sentAt: NOW };
    const wrong: readonly [string, unknown[]][] = [
      ['body', [undefined, null, {}, 5, EVENTS]],
      ['id', [undefined, null, 5, '']],
      ['sentAt', [undefined, null, `${NOW}`, new Date(NOW), Number.NaN, Infinity, -1, 1e15]],
      ['idd', ['wh_1']],
    ];
    for (const [field, values] of wrong)
      for (const value of values) {
        const { body, ...options } = { ...right, [field]: value };
        await assert.rejects(sign(body, SECRET, options), (error) => {
          assert.ok(error instanceof InvalidOption, `${field}: ${error}`);
          assert.equal(error.field, field);
          return error.remedy.length > 0;
        });
      }
    await assert.rejects(Reflect.apply(sign, undefined, [BODY, SECRET]), { field: 'options' });
  });

  test('headers that are not an object are named', async () => {
    for (const headers of [undefined, null, 'webhook-id: wh_1'])
      await assert.rejects(
        verify(BODY, headers as unknown as Headers, SECRET, { now: NOW }),
        (error) => error instanceof InvalidOption && error.field === 'headers',
      );
  });

  test('a signed body that is not a batch is a bad request', async () => {
    const event = { event: 'publish', topic: 'a', time: 1, data: 1 };
    const wrong = [{ event: 1 }, { topic: null }, { time: true }, { data: undefined }];
    for (const text of [
      ...['', '[]', '{}', '{"events":5}', '{"events":[]}', '{"events":[{}]}', '{"events":[null]}'],
      '{"events":[{"event":"publish","topic":"a","time":1e999,"data":1}]}',
      ...wrong.map((part) => JSON.stringify({ events: [event, { ...event, ...part }] })),
    ]) {
      const body = new TextEncoder().encode(text);
      const checked = verify(body, await signed(body), SECRET, { now: NOW });
      await assert.rejects(checked, refused('body', 400));
    }
  });

  test('a delivery is new only once, for as long as it would be accepted', () => {
    const seen = new SeenWebhooks(10_000);
    const news = (ids: string, now: number) => [...ids].map((id) => seen.isNew(id, now));
    assert.deepEqual(news('abab', NOW), [true, true, false, false]);
    assert.deepEqual(news('ac', NOW + 20_000), [false, true]);
    assert.deepEqual(news('cd', NOW + 21_000), [false, true]);
    assert.equal(seen.size, 2);
    for (const tolerance of [0, -1, Number.NaN])
      assert.throws(() => new SeenWebhooks(tolerance), InvalidOption);
  });
});
