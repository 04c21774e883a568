/** How the parts of an answer become chunks of the AI SDK. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Chunks } from '../../js/src/ai-sdk/chunks.js';

const text = (text: string) => ({ type: 'text', text }) as const;
const call = (text: string) => ({ type: 'tool-call', id: 'c1', name: 'weather', text }) as const;

test('an answer that starts again is closed and follows under new ids', () => {
  const chunks = new Chunks('r1');
  chunks.show([text('The answer is 4')]);
  assert.deepEqual(chunks.show([text('It is 5')]), [
    { type: 'text-end', id: 'r1-0-0' },
    { type: 'text-start', id: 'r1-1-0' },
    { type: 'text-delta', id: 'r1-1-0', delta: 'It is 5' },
  ]);
  // The new answer grows as the first one did.
  assert.deepEqual(chunks.show([text('It is 5.')]), [
    { type: 'text-delta', id: 'r1-1-0', delta: '.' },
  ]);
});

test('arguments of a tool that are not whole JSON end the call with an error', () => {
  const chunks = new Chunks('r1');
  chunks.show([call('{"city": "K')]);
  assert.deepEqual(chunks.show([call('{"city": "K'), text('Sorry.')]).slice(0, 1), [
    {
      type: 'tool-input-error',
      toolCallId: 'c1',
      toolName: 'weather',
      input: '{"city": "K',
      errorText: 'The arguments are incomplete.',
    },
  ]);
});

test('calls that alternate begin once and are available once, each when it is whole', () => {
  const other = { type: 'tool-call', id: 'c2', name: 'time', text: '' } as const;
  const parts = [call(''), other, call('{"city": '), other, call('"Oslo"}'), other];
  const available = {
    type: 'tool-input-available',
    toolCallId: 'c1',
    toolName: 'weather',
  } as const;
  assert.deepEqual(new Chunks('r1').show([...parts, text('Done.')]), [
    { type: 'tool-input-start', toolCallId: 'c1', toolName: 'weather' },
    { type: 'tool-input-start', toolCallId: 'c2', toolName: 'time' },
    { type: 'tool-input-delta', toolCallId: 'c1', inputTextDelta: '{"city": ' },
    { type: 'tool-input-delta', toolCallId: 'c1', inputTextDelta: '"Oslo"}' },
    { ...available, input: { city: 'Oslo' } },
    // A call without arguments is whole when something else follows the calls.
    { type: 'tool-input-available', toolCallId: 'c2', toolName: 'time', input: {} },
    { type: 'text-start', id: 'r1-0-6' },
    { type: 'text-delta', id: 'r1-0-6', delta: 'Done.' },
  ]);
});

test('images are files, citations are sources, and parts of your own are data', () => {
  const chart = { type: 'chart', points: [1, 2] };
  const log = { type: 'log', text: 'started' };
  const parts = [
    { type: 'image', url: 'https://example.com/a.png' },
    { type: 'citation', url: 'https://example.com/' },
    { type: 'citation', url: 'https://example.com/b', title: 'B' },
    chart,
    log,
  ];
  assert.deepEqual(new Chunks('r1').show(parts), [
    { type: 'file', url: 'https://example.com/a.png', mediaType: 'image/*' },
    { type: 'source-url', sourceId: 'r1-0-1', url: 'https://example.com/' },
    { type: 'source-url', sourceId: 'r1-0-2', url: 'https://example.com/b', title: 'B' },
    { type: 'data-chart', id: 'r1-0-3', data: chart },
    { type: 'data-log', id: 'r1-0-4', data: log },
  ]);
});

test('steps, approvals and files are those of the AI SDK', () => {
  const chunks = new Chunks('r1');
  chunks.show([call('{}')]);
  const parts = [
    call('{}'),
    { type: 'tool-result', id: 'c1', denied: true },
    { type: 'step' },
    { type: 'file', url: 'data:text/csv;base64,YSxi', mediaType: 'text/csv' },
    { type: 'tool-approval-request', id: 'c2', approvalId: 'a1', signature: 's' },
  ];
  assert.deepEqual(chunks.show(parts).slice(1), [
    { type: 'tool-output-denied', toolCallId: 'c1' },
    { type: 'finish-step' },
    { type: 'start-step' },
    { type: 'file', url: 'data:text/csv;base64,YSxi', mediaType: 'text/csv' },
    { type: 'tool-approval-request', approvalId: 'a1', toolCallId: 'c2', signature: 's' },
  ]);
});

test('a part of your own is sent whole each time its text grows', () => {
  const chunks = new Chunks('r1');
  chunks.show([{ type: 'log', text: 'one' }]);
  const log = { type: 'log', text: 'one, two' };
  assert.deepEqual(chunks.show([log]), [{ type: 'data-log', id: 'r1-0-0', data: log }]);
});

test('an answer that is complete, cancelled or broken ends with its reason', () => {
  const ended = (end: object) => {
    const chunks = new Chunks('r1');
    chunks.show([text('a')]);
    return chunks.end(end as never).slice(1);
  };
  const done = (reason: string) => ended({ kind: 'done', reason });
  assert.deepEqual(done('tool_calls'), [{ type: 'finish', finishReason: 'tool-calls' }]);
  assert.deepEqual(done('max_rounds'), [{ type: 'finish', finishReason: 'other' }]);
  assert.deepEqual(ended({ kind: 'aborted', reason: 'enough', by: 'alice' }), [
    { type: 'abort', reason: 'enough' },
  ]);
  assert.deepEqual(ended({ kind: 'aborted', reason: 'cancelled' }), [
    { type: 'abort', reason: 'cancelled' },
  ]);
  assert.deepEqual(ended({ kind: 'aborted', reason: 'error' }), [
    { type: 'error', errorText: 'The answer ended early: error' },
  ]);
});
