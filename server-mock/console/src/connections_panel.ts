/** The panel of connections: identities, the lag of each, and a button to cut it. */

import { now } from './clock.js';
import type { Connections, Listing, OpenConnection } from './connections.js';
import { h, replace } from './dom.js';
import { age, bytes, fullTime, initials, plural } from './format.js';
import type { Feed } from './messages/feed.js';
import { effect, scope } from './reactive.js';

const PATTERNS = 4;
/** Names of the protocols; any other is shown unchanged. */
const TRANSPORTS: Readonly<Record<string, string>> = {
  socket: 'WebSocket',
  event_stream: 'SSE',
};

/** Build the panel. */
export function connectionsPanel(
  connections: Connections,
  feed: Feed,
  me: () => string | undefined,
): HTMLElement {
  const rows = new Map<string, Row>();
  const list = h('ul', { class: 'connection-list', 'aria-label': 'Open connections' });
  effect(() => {
    const found = connections.listing.value.connections;
    const ids = new Set(found.map(({ client_id }) => client_id));
    for (const [id, row] of rows) {
      if (ids.has(id)) continue;
      row.end();
      rows.delete(id);
    }
    const elements = found.map((each) => {
      let row = rows.get(each.client_id);
      if (!row) {
        row = new Row(each, (id) => connections.cut(id));
        rows.set(each.client_id, row);
      }
      row.show(each, each.client_id === me());
      return row.element;
    });
    // Keep existing elements in place, so that they keep the focus.
    if (elements.some((each, n) => each !== list.children[n]) || !elements.length) {
      replace(list, ...elements);
    } else while (list.children.length > elements.length) list.lastElementChild?.remove();
    list.hidden = !elements.length;
  });
  return h(
    'section',
    {
      class: 'panel connections',
      id: 'connections',
      'aria-labelledby': 'connections-title',
      tabindex: -1,
    },
    h(
      'header',
      { class: 'panel-head' },
      h('h2', { id: 'connections-title', class: 'clip' }, () => {
        const topic = feed.narrowed.value;
        return topic === undefined ? 'Connections' : `Connections that read ${topic}`;
      }),
      h('span', { class: 'quiet number' }, () => {
        const { state, total } = connections.listing.value;
        return state === 'listed' ? String(total) : '';
      }),
      h(
        'button',
        {
          class: 'ghost small',
          type: 'button',
          hidden: () => feed.narrowed.value === undefined,
          onclick: () => feed.narrow(undefined),
        },
        'Show all',
      ),
      h('span', { class: 'push' }),
      h('a', { href: '#/messages', class: 'to-messages' }, 'Messages'),
    ),
    h(
      'div',
      { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'List of connections' },
      list,
      h('p', { class: 'hint', role: 'status' }, () => note(connections.listing.value)),
    ),
  );
}

function note({ state, connections, total }: Listing): string {
  if (state === 'asking') return 'Loading…';
  if (state === 'forbidden') return 'Listing connections requires the token of an administrator.';
  if (state === 'failed') return 'The server does not answer. The list is loaded again soon.';
  if (!total) return 'No connection.';
  const more = total - connections.length;
  return `${more > 0 ? `${plural(more, 'further connection')} with shorter queues. ` : ''}The longest queues come first. These are the connections of the node that answers.`;
}

class Row {
  readonly element: HTMLElement;
  readonly end: () => void;
  private readonly _tags = h('span', { class: 'tags' });
  private readonly _patterns = h('span', { class: 'patterns quiet' });
  private readonly _queue = h('span', { class: 'queue number' });
  private readonly _meter = h('meter', { min: 0, 'aria-label': 'Queue' });
  private readonly _cut: HTMLButtonElement;

  constructor(connection: OpenConnection, cut: (clientId: string) => Promise<boolean>) {
    const { client_id, user_id, name, connected_at } = connection;
    this._cut = h(
      'button',
      {
        class: 'ghost small',
        type: 'button',
        'aria-label': `Cut the connection of ${user_id}, ${client_id}`,
        title: 'Close this connection; its client reconnects and receives what it missed',
        onclick: async () => {
          this._cut.disabled = true;
          this._cut.disabled = await cut(client_id);
        },
      },
      'Cut',
    );
    let element: HTMLElement | undefined;
    this.end = scope(() => {
      element = h(
        'li',
        { 'data-client': client_id },
        h('span', { class: 'avatar', 'aria-hidden': 'true' }, initials(name || user_id)),
        h(
          'div',
          { class: 'who' },
          h('div', { class: 'names' }, h('b', { class: 'clip' }, name || user_id), this._tags),
          h('div', { class: 'quiet clip', title: client_id }, this._about(connection)),
        ),
        this._patterns,
        h('div', { class: 'lag' }, this._meter, this._queue),
        h('time', { class: 'quiet number', title: fullTime(connected_at) }, () => {
          const since = age(now.value - connected_at);
          return since === 'now' ? 'just now' : `for ${since}`;
        }),
        this._cut,
      );
    });
    this.element = element as HTMLElement;
  }

  show(connection: OpenConnection, own: boolean): void {
    const { kind, patterns, subscriptions, queued_bytes, queue_limit, stalled } = connection;
    const { transport } = connection;
    replace(
      this._tags,
      own && h('span', { class: 'tag' }, 'this page'),
      h('span', { class: 'tag' }, kind),
      h('span', { class: 'tag' }, TRANSPORTS[transport] ?? transport),
      stalled === true && h('span', { class: 'tag wait' }, 'stalled'),
    );
    const more = subscriptions - Math.min(PATTERNS, patterns.length);
    const names = patterns.slice(0, PATTERNS).join(', ');
    this._patterns.classList.toggle('mono', subscriptions > 0);
    this._patterns.textContent = subscriptions
      ? `${names}${more ? ` and ${more} more` : ''}`
      : 'no subscription';
    this._patterns.title = patterns.join('\n');
    this._meter.max = queue_limit;
    this._meter.high = queue_limit / 2;
    this._meter.value = queued_bytes;
    this._queue.textContent = queued_bytes ? `${bytes(queued_bytes)} behind` : 'no lag';
    this._queue.title = `The server closes the connection above ${bytes(queue_limit)}.`;
    this._queue.classList.toggle('wait', queued_bytes > 0);
  }

  private _about({ user_id, name, address }: OpenConnection): string {
    return [name && name !== user_id ? user_id : '', address ?? ''].filter(Boolean).join(' · ');
  }
}
