/** The route, in the address after `#`. A link opens the same view elsewhere. */

/** A panel. */
export type View = 'topics' | 'messages' | 'publish' | 'people' | 'connections' | 'server';

/** The shown view. */
export interface Route {
  readonly view: View;
  /** The chosen topic; undefined for all topics. */
  readonly topic: string | undefined;
  /** Filter by type. */
  readonly type: string | undefined;
  /** Filter by text. */
  readonly query: string;
}

const NAMES: Readonly<Record<View, string>> = {
  topics: 'topics',
  messages: 'messages',
  publish: 'publish',
  people: 'presence',
  connections: 'connections',
  server: 'server',
};

/** For example `#/topics/orders?type=created`, `#/messages?q=timeout`, `#/connections?topic=orders`. */
export function formatRoute({ view, topic, type, query }: Route): string {
  const search = new URLSearchParams();
  const inPath = view === 'messages' && topic !== undefined;
  if (topic !== undefined && !inPath) search.set('topic', topic);
  if (type !== undefined) search.set('type', type);
  if (query) search.set('q', query);
  const path = inPath ? `topics/${encodeURIComponent(topic)}` : NAMES[view];
  return `#/${path}${search.size ? `?${search}` : ''}`;
}

/**
 * The route of an address; undefined if it has none.
 *
 * @param checkTopic Throws for an invalid topic, which is then ignored.
 */
export function parseRoute(
  hash: string,
  checkTopic: (topic: string) => unknown,
): Route | undefined {
  if (!hash.startsWith('#/')) return undefined;
  const [path = '', search = ''] = hash.slice(2).split(/\?(.*)/s);
  const [name, ...rest] = path.split('/');
  const values = new URLSearchParams(search);
  const inPath = name === 'topics' && rest.length > 0;
  const found = (Object.keys(NAMES) as View[]).find((view) => NAMES[view] === (name || 'messages'));
  if (!found) return undefined;
  return {
    view: inPath ? 'messages' : found,
    topic: topicOf(inPath ? decode(rest.join('/')) : values.get('topic'), checkTopic),
    type: values.get('type') || undefined,
    query: values.get('q') ?? '',
  };
}

function topicOf(text: string | null, checkTopic: (topic: string) => unknown): string | undefined {
  if (!text) return undefined;
  try {
    checkTopic(text);
    return text;
  } catch {
    return undefined;
  }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}
