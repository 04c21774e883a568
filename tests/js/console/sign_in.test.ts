import assert from 'node:assert/strict';
import { test } from 'node:test';

import { InvalidTopic, validateTopic } from '../../../js/src/index.js';
import { readClaims } from '../../../server-mock/console/src/claims.js';
import { explain, type Step } from '../../../server-mock/console/src/connection.js';
import { readDraft } from '../../../server-mock/console/src/publication.js';
import { snippets } from '../../../server-mock/console/src/snippets.js';
import { leftOf } from '../../../server-mock/console/src/token_life.js';

const DRAFT = { topic: 'demo.a', type: '', data: '{}', ttl: '', id: '' };

function jwt(claims: object): string {
  return `e30.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.x`;
}

function step(more: Partial<Step>): Step {
  return {
    from: 'connected',
    to: 'reconnecting',
    code: 1006,
    reason: 'The connection broke.',
    retryIn: undefined,
    attempt: 0,
    at: 1_000,
    ...more,
  };
}

test('the claims of a token are read for display, also those that are not ASCII', () => {
  const claims = readClaims(jwt({ sub: 'zoë', kind: 'admin', orgs: ['a', 7], iat: 1, exp: 2 }));
  assert.deepEqual(claims, {
    user: 'zoë',
    kind: 'admin',
    orgs: ['a'],
    issued: 1_000,
    expires: 2_000,
  });
});

test('a token that is not a JWT has no claims', () => {
  for (const token of ['', 'key_abc', 'a.b.c', 'e30.bnVsbA.x', `e30.${btoa('[')}.x`]) {
    assert.equal(readClaims(token), undefined, token);
  }
});

test('the remaining lifetime of a token is a fraction from 1 to 0', () => {
  assert.deepEqual(leftOf(1_000, 5_000, 2_000), { share: 0.75, ms: 3_000 });
  assert.deepEqual(leftOf(1_000, 5_000, 9_000), { share: 0, ms: 0 });
  assert.deepEqual(leftOf(5_000, 5_000, 1_000), { share: 0, ms: 4_000 });
  assert.equal(leftOf(1_000, undefined, 2_000), undefined);
});

test('the state shows the reason, the attempt, and the time until the next one', () => {
  assert.equal(
    explain(step({ retryIn: 4_200, attempt: 2 }), 2_000),
    'The connection broke · attempt 3 in 4 s',
  );
  assert.equal(
    explain(step({ retryIn: 4_200, attempt: 2 }), 9_000),
    'The connection broke · attempt 3 now',
  );
  assert.equal(explain(step({ to: 'connected' }), 2_000), '');
  assert.equal(explain(undefined, 2_000), '');
});

test('a publish is checked field by field', () => {
  assert.deepEqual(
    readDraft({ ...DRAFT, type: ' t ', ttl: '0', id: 'i', data: '[1]' }, validateTopic),
    {
      topic: 'demo.a',
      message: { data: [1], type: 't' },
      options: { ttl: 0, id: 'i' },
    },
  );
  for (const [field, text] of [
    ['topic', 'demo.*'],
    ['topic', ''],
    ['ttl', '-1'],
    ['ttl', '1.5'],
    ['data', ''],
    ['data', '{"a": }'],
  ] as const) {
    const slip = readDraft({ ...DRAFT, [field]: text }, validateTopic);
    assert.equal('field' in slip && slip.field, field, text);
  }
});

test('an invalid topic is rejected with the message of the SDK', () => {
  const slip = readDraft({ ...DRAFT, topic: 'a..b' }, validateTopic);
  assert.throws(
    () => validateTopic('a..b'),
    (error: InvalidTopic) => {
      assert.ok(error instanceof InvalidTopic);
      assert.equal('message' in slip && slip.message, `${error.message} ${error.remedy}`);
      return true;
    },
  );
});

test('an integer that browsers round is not published', () => {
  const publishing = (data: string) => readDraft({ ...DRAFT, data }, validateTopic);
  const rounded = ['9007199254740993', '{"n": [-9007199254740992]}', '1234567890123456789012'];
  const written = [
    '9007199254740993.0',
    '[12345678901234567e1]',
    '0.9007199254740993E+16',
    '1e400',
  ];
  for (const data of [...rounded, ...written]) {
    const slip = publishing(data);
    assert.ok('field' in slip && slip.field === 'data', data);
    assert.match(slip.message, /^Browsers would round -?[\d.]+([eE]\+?\d+)?\. Enter it as text/);
  }
  for (const data of [
    '9007199254740991',
    '"9007199254740993"',
    '{"9007199254740993": 1.5e300}',
    '1e22',
    '0.5e20',
  ]) {
    assert.ok(!('field' in publishing(data)), data);
  }
});

test('an error in the data names line and column', () => {
  const slip = readDraft({ ...DRAFT, data: '{\n  "a": oops\n}' }, validateTopic);
  assert.match(
    'field' in slip ? String(slip.message) : '',
    /^Not JSON: expected a value at line 2, column 8\.$/,
  );
});

test('snippets contain the addresses of the server, and never a token', () => {
  const all = snippets({ ws: 'ws://h:1/ws', http: 'http://h:2', version: '1', devSignIn: true });
  assert.deepEqual(
    all.map(({ name }) => name),
    ['Python', 'TypeScript', 'curl'],
  );
  for (const { code } of all) {
    assert.match(code, /h:[12]/);
    assert.doesNotMatch(code, /Bearer ey/);
  }
});
