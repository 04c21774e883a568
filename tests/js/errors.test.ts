import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import * as errors from '../../js/src/errors.js';
import {
  AuthError,
  ConnectionFailed,
  fromCode,
  InsecureUrl,
  InvalidOption,
  InvalidTopic,
  LimitExceeded,
  OperationTimeout,
  PermissionDenied,
  PubSubError,
  TokenExpired,
} from '../../js/src/errors.js';
import { CODES } from '../../js/src/generated/errors.js';
import { codeOf } from '../../js/src/session/events.js';

const CLASSES = { ...errors };

test('every code builds its class with its remedy', () => {
  assert.ok(CODES.size > 30);
  for (const [code, row] of CODES) {
    const error = fromCode(code);
    assert.equal(error.name, row.error);
    assert.equal(error.constructor, CLASSES[row.error]);
    assert.deepEqual(
      [error.code, error.message, error.remedy, error.retryable],
      [code, row.meaning ?? `Error \`${code}\`.`, row.remedy, row.retryable],
    );
  }
});

test('a cause without an error code counts as a failed connection', () => {
  for (const close of [undefined, 0, 1006, 4999]) assert.equal(codeOf(close), 'connection_failed');
});

test('a refusal names its topic', () => {
  const refused: readonly [message: string, topic: string | undefined, text: string][] = [
    ['you may not read this', 'chat.a', 'you may not read this (topic chat.a).'],
    ['You may not.', 'chat.**', 'You may not (topic chat.**).'],
    ['a rule forbids it', 'a.b', 'a rule forbids it (topic a.b).'],
    ['A user may not publish.', 'user', 'A user may not publish.'],
    ['`chat.a` is not for you', 'chat.a', '`chat.a` is not for you'],
    ['nobody may read chat.a.', 'chat.a', 'nobody may read chat.a.'],
    ['nobody may read chat.a.b', 'chat.a', 'nobody may read chat.a.b (topic chat.a).'],
    ['no access', undefined, 'no access'],
  ];
  for (const [message, topic, text] of refused) {
    const error = fromCode('forbidden', message, { topic });
    assert.ok(error instanceof PermissionDenied);
    assert.equal(error.message, text);
    assert.equal(fromCode('forbidden', error.message, { topic }).message, text);
    assert.ok(String(error.stack).includes(text));
    if (topic) assert.ok(new PermissionDenied(undefined, { topic }).message.includes(topic));
  }
});

test('remedies name the functions of the TypeScript SDK', () => {
  for (const { code, remedy } of CODES.values()) {
    assert.doesNotMatch(
      remedy,
      /get_token|send_queue|retry_after|outcome_|allow_i|=True|[{}]/,
      code,
    );
  }
  assert.match(fromCode('queue_full').remedy, /`sendQueue`/);
  assert.match(fromCode('insecure_url').remedy, /`allowInsecure: true`/);
});

test('an inspector shows the class of an error', () => {
  for (const code of CODES.keys()) {
    const error = fromCode(code);
    assert.match(inspect(error), new RegExp(`^${error.name}:`));
  }
});

test('an inspector shows no detail that an error lacks', () => {
  const error = fromCode('forbidden', 'no access', { topic: undefined, retryAfter: undefined });
  assert.doesNotMatch(inspect(error), /undefined/);
  assert.equal(error.topic, undefined);
});

test('every class has a code with its name in the table', () => {
  const names = new Set(Array.from(CODES.values(), (row) => row.error));
  for (const name of names) {
    const error = new CLASSES[name]();
    assert.equal(error.name, name);
    assert.equal(CODES.get(error.code)?.error, name);
    assert.ok(error instanceof PubSubError && error instanceof Error);
    assert.match(error.stack ?? '', new RegExp(`^${name}: `));
  }
  assert.equal(names.size, 28);
});

test('the class hierarchy is the same in every SDK', () => {
  assert.ok(new TokenExpired() instanceof AuthError);
  assert.ok(new InsecureUrl() instanceof InvalidOption);
  assert.ok(fromCode('connection_limit') instanceof LimitExceeded);
  assert.ok(fromCode('auth_refused') instanceof AuthError);
});

test('the text of an error contains the problem and the remedy', () => {
  const error = new InvalidTopic('`a..b` has an empty segment.', {
    topic: 'a..b',
    remedy: 'Write `a.b`.',
  });
  const whole =
    'InvalidTopic: `a..b` has an empty segment. Write `a.b`. See https://pubsub.hanzo.ai/docs/errors/#invalid_topic';
  assert.equal(String(error), whole);
  assert.equal(error.message, '`a..b` has an empty segment.');
  assert.equal(error.docs, 'https://pubsub.hanzo.ai/docs/errors/#invalid_topic');
  assert.equal(error.topic, 'a..b');
});

test('an uncaught error shows its remedy and where its code is described', () => {
  const error = new InvalidTopic('`a..b` has an empty segment.', { remedy: 'Write `a.b`.' });
  const whole = String(error).replace('InvalidTopic: ', '');
  assert.equal(error.stack?.split('\n').at(-1), whole);
  assert.ok(inspect(error).includes(whole));
  assert.equal(fromCode('quota_exceeded').docs, '');
});

test('an unknown code of a newer server is kept, and not retried', () => {
  for (const code of ['quota_exceeded', 'constructor', '__proto__']) {
    const error = fromCode(code, 'Out of credits.', { retryAfter: 2_500 });
    assert.equal(error.name, 'PubSubError');
    assert.deepEqual([error.code, error.message, error.remedy], [code, 'Out of credits.', '']);
    assert.ok(!error.retryable);
    assert.equal(error.retryAfter, 2_500);
  }
  assert.equal(fromCode('x').message, 'Error `x`.');
});

test('a timeout says whether the outcome is unknown', () => {
  assert.ok(!new OperationTimeout().outcomeUnknown);
  const unknown = fromCode('outcome_unknown');
  assert.ok(unknown instanceof OperationTimeout && unknown.outcomeUnknown);
  assert.equal(new OperationTimeout('late', { id: 'msg_1' }).id, 'msg_1');
});

test('a long message of a server is truncated', () => {
  assert.equal(fromCode('internal', 'x'.repeat(1_000_000)).message.length, 2_001);
  assert.equal(fromCode('internal', '😀'.repeat(2_001)).message, `${'😀'.repeat(2_000)}…`);
});

test('a cause is kept', () => {
  const cause = new Error('refused');
  assert.equal(new ConnectionFailed(undefined, { cause }).cause, cause);
});
