/** The text of a token stream, shown above the messages of its topic. */

import type { PubSub } from '@hanzoai/pubsub';
import { type StreamState, streamStore } from '@hanzoai/pubsub/svelte';

import { h, replace } from '../dom.js';
import { effect, onEnd, Signal } from '../reactive.js';
import type { Entry } from './buffer.js';
import type { Feed } from './feed.js';

/** Newest entries that are searched for a frame of a stream. */
const SEARCHED = 200;

const FRAMES: ReadonlySet<string> = new Set([
  ...['stream.start', 'token', 'token.snapshot', 'message.complete', 'stream.abort'],
]);

/** The displayed names of the statuses. */
const SAID: Readonly<Record<StreamState['status'], string>> = {
  idle: '',
  waiting: 'waiting',
  streaming: 'streaming',
  stalled: 'stalled: no frame for 10 s',
  done: 'complete',
  aborted: 'aborted',
  failed: 'not readable',
};

/**
 * Id of the newest stream among the entries; `latest` if it has no id, undefined if there is no
 * stream.
 */
export function newestStream(entries: readonly Entry[]): string | undefined {
  const last = Math.max(0, entries.length - SEARCHED);
  for (let n = entries.length - 1; n >= last; n -= 1) {
    const entry = entries[n];
    if (entry?.kind !== 'message' || !FRAMES.has(entry.message.type)) continue;
    const { stream, index } = Object(entry.message.data);
    if (typeof stream === 'string') return stream;
    if (typeof index === 'number') return 'latest';
  }
  return undefined;
}

/** Build it. It is hidden if the topic has no stream. */
export function answer(ps: PubSub, feed: Feed): HTMLElement {
  const stream = new Signal<string | undefined>(undefined);
  const state = new Signal<StreamState | undefined>(undefined);
  effect(() => {
    void feed.changed.value;
    stream.value = feed.narrowed.value === undefined ? undefined : newestStream(feed.scope);
  });
  effect(() => {
    const [topic, id] = [feed.narrowed.value, stream.value];
    state.value = undefined;
    if (topic === undefined || id === undefined) return;
    const store = streamStore(ps, topic, { id });
    onEnd(
      store.subscribe((shown) => {
        state.value = shown;
      }),
    );
  });
  const text = h('div', {
    class: 'answer-text',
    tabindex: 0,
    role: 'region',
    'aria-label': 'Text of the stream',
  });
  effect(() => {
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
    const { parts = [], error } = state.value ?? {};
    replace(
      text,
      error ? h('p', {}, error.message) : undefined,
      ...parts.map((part) =>
        part.type === 'text'
          ? h('span', {}, part.text ?? '')
          : h(
              'p',
              { class: 'answer-part' },
              h('span', { class: 'quiet' }, `${part.type} `),
              h('code', {}, describe(part)),
            ),
      ),
    );
    if (atEnd) text.scrollTop = text.scrollHeight;
  });
  return h(
    'section',
    { class: 'answer', 'aria-label': 'Token stream', hidden: () => !state.value },
    h(
      'p',
      { class: 'answer-head quiet' },
      h('span', { class: 'mono clip' }, () => stream.value ?? ''),
      h('span', { class: () => `answer-status ${state.value?.status ?? ''}` }, () => {
        const { status = 'idle', stale, end } = state.value ?? {};
        const reason = end && 'reason' in end ? `: ${end.reason}` : '';
        return `${SAID[status]}${reason}${stale ? ', tokens are missing' : ''}`;
      }),
    ),
    text,
  );
}

/** The fields of a part without its type, in one line. */
function describe({ type, ...rest }: StreamState['parts'][number]): string {
  const { text } = rest;
  if (type === 'tool-call') return `${rest['name']} ${text}`;
  return Object.keys(rest).length === 1 && text !== undefined ? text : JSON.stringify(rest);
}
