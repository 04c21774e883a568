/** One row of the list: a message or a gap. */

import type { Gap } from '@hanzoai/pubsub';

import { h } from '../dom.js';
import { clockTime, fullTime, plural, preview } from '../format.js';
import type { Entry } from './buffer.js';
import { hasLarge } from './json_text.js';

const REASONS: Readonly<Record<Gap['reason'], string>> = {
  history_trimmed: 'no longer retained by the server',
  log_reset: 'the log of the topic was reset',
  node_changed: 'this page moved to another node',
  slow_consumer: 'this page read too slowly',
  unproven: 'the server cannot prove that none is missing',
};

const ROUNDED = 'Contains an integer above 2^53, which browsers round';

/** The element of an entry, without its details. */
export function row(entry: Entry, toneOf: (topic: string) => number): HTMLElement {
  if (entry.kind === 'gap') return gapRow(entry.gap, entry.at);
  const { message, topic } = entry;
  return h(
    'article',
    { class: `row tone-${toneOf(topic)}`, 'data-key': entry.key, 'data-id': message.id },
    h(
      'button',
      { class: 'line', type: 'button', tabindex: -1, 'aria-expanded': 'false' },
      h(
        'time',
        { datetime: new Date(message.timestamp).toISOString(), title: fullTime(message.timestamp) },
        clockTime(message.timestamp),
      ),
      h('span', { class: 'topic', title: topic }, h('i', { class: 'dot' }), topic),
      h('span', { class: 'type', title: message.type }, message.type),
      h(
        'span',
        { class: 'data' },
        (hasLarge(message.data) || hasLarge(message.meta)) && h('abbr', { title: ROUNDED }, '≈'),
        preview(message.data),
      ),
      h('span', { class: 'sender' }, message.sender?.id ?? ''),
      h('span', { class: 'seq' }, message.seq === undefined ? '—' : `#${shortSeq(message.seq)}`),
    ),
  );
}

/** The description of a gap. */
export function gapText({ topic, from, to, missed, reason }: Gap): string {
  const count = missed === undefined ? 'Messages' : plural(missed, 'message');
  const where =
    from === undefined ? '' : to === undefined ? ` from #${shortSeq(from)} on` : span(from, to);
  return `${count} of ${topic} missing${where}: ${REASONS[reason] ?? reason}`;
}

function span(from: number, to: number): string {
  return from === to ? `, #${shortSeq(from)}` : `, #${shortSeq(from)} to #${shortSeq(to)}`;
}

function gapRow(gap: Gap, at: number): HTMLElement {
  return h(
    'article',
    { class: 'row gap' },
    h(
      'button',
      { class: 'line', type: 'button', tabindex: -1, title: gapText(gap) },
      h('time', { datetime: new Date(at).toISOString() }, clockTime(at)),
      h('span', { class: 'gap-text' }, h('b', {}, 'Gap'), ' ', gapText(gap)),
    ),
  );
}

/**
 * The last digits of a position. Logs start at a large number, so only these distinguish messages.
 */
export function shortSeq(seq: number): string {
  return seq < 1e6 ? String(seq) : `…${String(seq % 1e6).padStart(6, '0')}`;
}
