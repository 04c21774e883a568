/** The page of a signed-in user: one client, and the panels. */

import { PubSub } from '@hanzoai/pubsub';

import { account } from './account.js';
import { Topics } from './active_topics.js';
import { runClock } from './clock.js';
import { Colours } from './colours.js';
import type { Config } from './config.js';
import { Connection } from './connection.js';
import { Connections } from './connections.js';
import { connectionsPanel } from './connections_panel.js';
import { type Credentials, devCredentials } from './credentials.js';
import { Demonstration } from './demonstration.js';
import { captionLine } from './demonstration_controls.js';
import { h } from './dom.js';
import { History } from './history.js';
import { icon, mark } from './icons.js';
import { followIdentity } from './identity.js';
import { Feed } from './messages/feed.js';
import { messagePanel } from './messages/panel.js';
import { navigation } from './navigation.js';
import { noticeArea, notify, type Problem, settleNotices, tellOfClient } from './notices.js';
import { peoplePanel } from './people_panel.js';
import { People } from './presence.js';
import { publishPanel } from './publish_panel.js';
import { effect, onEnd } from './reactive.js';
import { serverPanel } from './server_panel.js';
import { shortcuts } from './shortcuts.js';
import { announcement, status, statusLine } from './status.js';
import { changeTheme, themeButton } from './theme_button.js';
import { topicPanel } from './topic_panel.js';
import { views } from './views.js';
import { Watches } from './watches.js';
import { welcome } from './welcome.js';

/** Build it. It ends with the current scope. */
export function workspace(
  config: Config,
  credentials: Credentials,
  leave: (why: Problem | undefined) => void,
): HTMLElement {
  const ps = new PubSub({
    url: config.ws,
    restUrl: config.http,
    name: 'console',
    suspendAfter: 120_000,
    ...credentials.options,
  });
  onEnd(() => void ps.close({ timeout: 0 }));
  const feed = new Feed();
  onEnd(ps.on('error', tellOfClient));
  onEnd(
    ps.on('state', ({ to }) => {
      if (to === 'connected') feed.connectedAt = Date.now();
    }),
  );
  runClock();
  const connection = new Connection(ps);
  const colours = new Colours();
  const people = new People();
  const topics = new Topics(ps);
  const watches = new Watches(ps, feed, people, (message) => topics.seen(message));
  const history = new History(ps, feed, notify);
  const connected = (): boolean => connection.state.value === 'connected';
  const identity = followIdentity(config.http, credentials, connected);

  const shown = views();
  const connections = new Connections(
    config.http,
    credentials,
    feed.narrowed,
    () => shown.current.value === 'connections' && connected(),
  );
  const choose = (topic: string | undefined): void => {
    if (topic !== undefined && !watches.covers(topic)) watches.add(topic);
    feed.narrow(topic);
  };
  const me = (): string | undefined =>
    connection.state.value === 'connected' ? ps.clientId : undefined;
  const readersOf = (topic: string | undefined): number =>
    topics.list.value.find(({ name }) => name === topic)?.info?.subscribers ?? 0;
  const demonstration = new Demonstration({
    ps,
    cut: (clientId) => connections.cut(clientId),
    client: (user, kind) =>
      new PubSub({
        url: config.ws,
        restUrl: config.http,
        name: 'demonstration',
        ...(credentials.way === 'dev' ? devCredentials(user, kind) : credentials).options,
      }),
  });
  const publish = publishPanel(ps, topics);
  const toMessages = (): void => {
    shown.show('messages');
    messages.list.element.focus();
  };
  const toPublish = (): void => {
    shown.show('publish');
    publish.focus();
  };
  const messages = messagePanel(
    ps,
    feed,
    topics,
    history,
    {
      toneOf: (topic) => colours.of(topic),
      again: (message) => {
        shown.show('publish');
        publish.again(message);
      },
    },
    welcome(config, connected, watches, demonstration, toPublish),
    () => identity.value?.ahead ?? 0,
  );
  const [statusButton, statusPanel] = status(connection);
  const [accountButton, accountPanel] = account(credentials, identity, () => leave(undefined));
  const focus = (view: 'topics' | 'messages', id: string): void => {
    shown.show(view);
    document.getElementById(id)?.focus();
  };
  const keys = shortcuts([
    { key: 'w', does: 'watch a topic or pattern', perform: () => focus('topics', 'watch') },
    { key: '/', does: 'filter the topics', perform: () => focus('topics', 'filter') },
    {
      key: 'm',
      does: 'go to the messages',
      perform: toMessages,
    },
    { key: 's', does: 'search the messages', perform: () => focus('messages', 'search') },
    { key: 'c', does: 'go to the connections', perform: () => shown.show('connections') },
    { key: 'n', does: 'write a new message', perform: toPublish },
    { key: 'p', does: 'pause or resume the list', perform: () => feed.pause(!feed.paused.peek()) },
    { key: 'e', does: 'go to the newest message', perform: () => messages.list.toEnd() },
    { key: 'a', does: 'show all messages', perform: () => feed.narrow(undefined) },
    { key: 't', does: 'change the theme', perform: changeTheme },
    { key: '?', does: 'show this list', perform: () => {} },
  ]);

  effect(() => {
    if (!connected()) return;
    settleNotices();
    void topics.poll();
  });
  effect(() => {
    if (connection.state.value !== 'failed') return;
    const step = connection.last.peek();
    leave({
      code: String(step?.code ?? 'failed'),
      message: step?.reason || 'The client has stopped.',
      remedy: 'Sign in again.',
    });
  });
  ps.connect().catch(() => {
    // Ignore the error, because the displayed state reports it.
  });
  for (const pattern of Watches.before() ?? (credentials.way === 'dev' ? ['**'] : [])) {
    watches.add(pattern);
  }

  effect(() => {
    const topic = feed.narrowed.value;
    if (topic !== undefined) publish.fill({ topic });
  });
  effect(() => {
    if (shown.current.value === 'publish') publish.unfold();
  });
  navigation(shown.current, feed, choose, shown.show);

  return h(
    'div',
    { class: 'workspace' },
    h(
      'a',
      {
        class: 'skip',
        href: '#messages',
        onclick: (event: Event) => {
          event.preventDefault();
          toMessages();
        },
      },
      'Skip to the messages',
    ),
    h(
      'header',
      { class: 'bar' },
      h(
        'h1',
        { class: 'brand' },
        mark(),
        h(
          'span',
          {},
          h('b', {}, h('span', { class: 'brand-first' }, 'Hanzo '), 'PubSub'),
          h('span', { class: 'brand-more' }, ' Console'),
        ),
      ),
      h('span', { class: 'push' }),
      statusButton,
      accountButton,
      themeButton(),
      h(
        'button',
        {
          class: 'ghost icon-only',
          type: 'button',
          'aria-label': 'Keyboard shortcuts',
          title: 'Keyboard shortcuts (?)',
          onclick: keys.open,
        },
        icon('help'),
      ),
    ),
    statusLine(connection),
    announcement(connection),
    captionLine(demonstration),
    h(
      'main',
      { class: 'panels', 'data-view': () => shown.current.value },
      topicPanel(watches, topics, feed, colours, choose, () => shown.show('messages')),
      messages.element,
      publish.element,
      peoplePanel(people, feed, colours, me, readersOf),
      connectionsPanel(connections, feed, me),
      serverPanel(config, connected, demonstration),
    ),
    shown.element,
    noticeArea(),
    statusPanel,
    accountPanel,
    keys.dialog,
  );
}
