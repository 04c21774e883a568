/** The panel of present users. */

import type { PresenceMember } from '@hanzoai/pubsub';

import { now } from './clock.js';
import type { Colours } from './colours.js';
import { h, replace } from './dom.js';
import { age, initials, plural } from './format.js';
import type { Feed } from './messages/feed.js';
import type { Movement, People } from './presence.js';
import { effect } from './reactive.js';

const SHOWN = 200;
const LOG_SHOWN = 8;
const VERBS = {
  join: 'joined',
  connect: 'connected again',
  update: 'changed',
  disconnect: 'closed a connection',
  leave: 'left',
} as const;

/** Build the panel. */
export function peoplePanel(
  people: People,
  feed: Feed,
  colours: Colours,
  me: () => string | undefined,
  readersOf: (topic: string | undefined) => number,
): HTMLElement {
  const body = h('div', {
    class: 'scroll',
    tabindex: 0,
    role: 'region',
    'aria-label': 'List of members',
  });
  effect(() => {
    const topic = feed.narrowed.value;
    const groups = [...people.topics.value]
      .filter(([name]) => topic === undefined || name === topic)
      .sort(([a], [b]) => (a < b ? -1 : 1));
    const moves = people.log.value
      .filter((each) => topic === undefined || each.topic === topic)
      .slice(0, LOG_SHOWN);
    let left = SHOWN;
    replace(
      body,
      ...groups.map(([name, members]) => {
        const shown = members.slice(0, Math.max(0, left));
        left -= shown.length;
        return group(name, members.length, shown, colours, me());
      }),
      !groups.length && none(topic, readersOf(topic)),
      moves.length > 0 && h('h3', {}, 'Changes'),
      moves.length > 0 && h('ol', { class: 'moves' }, ...moves.map((move) => moved(move, colours))),
    );
  });
  return h(
    'section',
    { class: 'panel people', id: 'people', 'aria-labelledby': 'people-title', tabindex: -1 },
    h(
      'header',
      { class: 'panel-head' },
      h('h2', { id: 'people-title' }, 'Presence'),
      h('span', { class: 'quiet number' }, () => {
        const members = [...people.topics.value.values()].flat();
        const clients = new Set(members.map(({ client_id }) => client_id)).size;
        return clients ? String(clients) : '';
      }),
    ),
    body,
  );
}

function group(
  topic: string,
  count: number,
  members: readonly PresenceMember[],
  colours: Colours,
  me: string | undefined,
): HTMLElement {
  return h(
    'div',
    { class: `group tone-${colours.of(topic)}` },
    h(
      'h3',
      { title: topic },
      h('i', { class: 'dot' }),
      h('span', { class: 'mono clip' }, topic),
      h('span', { class: 'quiet number' }, count),
    ),
    h('ul', { class: 'members' }, ...members.map((member) => person(member, me))),
    count > members.length &&
      h('p', { class: 'hint' }, `and ${plural(count - members.length, 'other')}`),
  );
}

function person(member: PresenceMember, me: string | undefined): HTMLElement {
  const { client_id, user_id, name, status, metadata, joined_at } = member;
  const data = Object.entries(metadata ?? {}).slice(0, 6);
  return h(
    'li',
    {},
    h('span', { class: 'avatar', 'aria-hidden': 'true' }, initials(name || user_id)),
    h(
      'div',
      { class: 'who' },
      h(
        'div',
        { class: 'names' },
        h('b', { class: 'clip' }, name || user_id),
        client_id === me && h('span', { class: 'tag' }, 'this page'),
        status && h('span', { class: 'tag status' }, status),
      ),
      h(
        'div',
        { class: 'quiet clip', title: `${user_id}, client ${client_id}` },
        name && name !== user_id ? `${user_id} · ` : '',
        () => `here for ${age(now.value - joined_at)}`,
      ),
      data.length > 0 &&
        h(
          'dl',
          { class: 'pairs' },
          ...data.flatMap(([key, value]) => [
            h('dt', {}, key),
            h('dd', { class: 'clip' }, typeof value === 'string' ? value : JSON.stringify(value)),
          ]),
        ),
    ),
  );
}

function moved({ at, topic, change, member }: Movement, colours: Colours): HTMLElement {
  return h(
    'li',
    { class: `tone-${colours.of(topic)}` },
    h('i', { class: 'dot' }),
    h(
      'span',
      { class: 'clip' },
      h('b', {}, member.name || member.user_id),
      ` ${VERBS[change]} `,
      h('span', { class: 'mono quiet' }, topic),
    ),
    h('time', { class: 'quiet number', datetime: new Date(at).toISOString() }, () =>
      age(now.value - at),
    ),
  );
}

function none(topic: string | undefined, readers: number): HTMLElement {
  const text =
    topic === undefined
      ? 'No members. A client that subscribes to a topic by its full name is a member; patterns only observe.'
      : readers
        ? `No members. ${plural(readers, 'connection')} read${readers === 1 ? 's' : ''} this topic by a pattern, as this page does, and a pattern only observes.`
        : 'No members. No client subscribes to this topic.';
  return h('p', { class: 'hint' }, text);
}
