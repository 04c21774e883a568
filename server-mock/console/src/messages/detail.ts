/** The details of a message: its origin and its complete data. */

import { copyButton } from '../copy.js';
import { type Child, h } from '../dom.js';
import { ago, bytes, fullTime } from '../format.js';
import type { Entry } from './buffer.js';
import { hasLarge, pieces, pretty, SHOWN_MAX } from './json_text.js';

type MessageEntry = Extract<Entry, { kind: 'message' }>;

/** The part below the row of an open message. */
export function detail(
  { message }: MessageEntry,
  again: (message: MessageEntry['message']) => void,
): HTMLElement {
  const json = pretty(message.data);
  const shown = json.slice(0, SHOWN_MAX);
  const { sender, meta } = message;
  const parts = json.length > SHOWN_MAX ? [] : pieces(shown);
  return h(
    'div',
    { class: 'detail' },
    h(
      'dl',
      { class: 'facts' },
      ...fact('id', h('code', {}, message.id)),
      ...fact('topic', h('code', {}, message.topic)),
      ...fact('type', h('code', {}, message.type)),
      ...fact(
        'seq',
        message.seq === undefined ? 'none: not retained in history' : String(message.seq),
      ),
      ...fact('sender', sender ? `${sender.id} (${sender.type})` : 'unknown'),
      ...fact('time', `${fullTime(message.timestamp)}, ${ago(Date.now() - message.timestamp)}`),
      ...(message.ttl === undefined ? [] : fact('ttl', `${message.ttl} s`)),
      ...(meta === undefined ? [] : fact('meta', h('code', {}, JSON.stringify(meta)))),
    ),
    h(
      'pre',
      { class: 'json', tabindex: 0, 'aria-label': 'Data' },
      ...(json.length > SHOWN_MAX
        ? [shown, `\n… ${bytes(json.length - SHOWN_MAX)} more; copy the data to see all of it`]
        : parts.map(({ kind, text }) =>
            kind === 'mark' ? text : h('span', { class: `json-${kind}` }, text),
          )),
    ),
    (hasLarge(message.data) || hasLarge(meta)) &&
      h(
        'p',
        { class: 'hint' },
        'Browsers round integers above 2^53. To see them exactly, use ',
        h('code', {}, 'hanzo-pubsub history'),
        '.',
      ),
    h(
      'div',
      { class: 'actions' },
      copyButton('Copy data', () => json),
      copyButton('Copy message', () => pretty(message)),
      h(
        'button',
        { class: 'ghost small', type: 'button', onclick: () => again(message) },
        'Publish again…',
      ),
    ),
  );
}

function fact(name: string, value: Child): HTMLElement[] {
  return [h('dt', {}, name), h('dd', {}, value)];
}
