/** The state of the server: health, addresses, connections, traffic. */

import type { Config } from './config.js';
import { copyButton } from './copy.js';
import type { Demonstration } from './demonstration.js';
import { demonstrationButton } from './demonstration_controls.js';
import { type Child, h } from './dom.js';
import { bytes, compact, rate } from './format.js';
import { readMetrics } from './metrics.js';
import { effect, everyWhileVisible, Signal } from './reactive.js';

const POLL = 5_000;
/** Milliseconds of the shortest measurement of a rate: a change of the connection also polls. */
const SHORTEST = 1_000;

interface Facts {
  readonly healthy: boolean | undefined;
  readonly took: number | undefined;
  readonly metrics: ReadonlyMap<string, number> | undefined;
  /** Rate per second since an earlier poll; undefined at first and without an answer. */
  readonly published: number | undefined;
  readonly delivered: number | undefined;
}

const NO_RATES = { published: undefined, delivered: undefined };

/** Build the panel. */
export function serverPanel(
  config: Config,
  connected: () => boolean,
  demonstration: Demonstration,
): HTMLElement {
  const facts = new Signal<Facts>({
    healthy: undefined,
    took: undefined,
    metrics: undefined,
    published: undefined,
    delivered: undefined,
  });
  let before: { at: number; metrics: ReadonlyMap<string, number> } | undefined;
  const poll = async (): Promise<void> => {
    const { healthy, took } = await health(config.http);
    const metrics = healthy ? await metricsOf(config.http) : undefined;
    const at = performance.now();
    let { published, delivered } = metrics ? facts.value : NO_RATES;
    if (metrics && (!before || at - before.at >= SHORTEST)) {
      const seconds = before && (at - before.at) / 1000;
      const perSecond = (name: string): number | undefined => {
        const [now, then] = [metrics.get(name), before?.metrics.get(name)];
        if (now === undefined || then === undefined || !seconds) return undefined;
        return Math.max(0, (now - then) / seconds);
      };
      published = perSecond('published_total');
      delivered = perSecond('delivered_total');
      before = { at, metrics };
    }
    facts.value = { healthy, took, metrics, published, delivered };
  };
  everyWhileVisible(POLL, () => void poll());
  effect(() => {
    // Poll at once when the connection changes.
    connected();
    void poll();
  });
  const speed = (of: 'published' | 'delivered') => (): string => {
    const value = facts.value[of];
    return value === undefined ? '–' : rate(value);
  };
  const number =
    (name: string, form: (value: number) => string = compact) =>
    (): string => {
      const value = facts.value.metrics?.get(name);
      return value === undefined ? '–' : form(value);
    };
  return h(
    'section',
    { class: 'panel server', id: 'server', 'aria-labelledby': 'server-title', tabindex: -1 },
    h(
      'header',
      { class: 'panel-head' },
      h('h2', { id: 'server-title' }, 'Server'),
      h('span', { class: 'quiet number' }, config.version),
      h('span', { class: 'push' }),
      h(
        'span',
        {
          class: () => {
            const { healthy } = facts.value;
            return `tag ${healthy === undefined ? 'wait' : healthy ? 'good' : 'bad'}`;
          },
        },
        () => {
          const { healthy, took } = facts.value;
          if (healthy === undefined) return 'asking';
          return healthy ? `healthy · ${took} ms` : 'no answer';
        },
      ),
    ),
    h(
      'div',
      { class: 'scroll' },
      h(
        'dl',
        { class: 'tiles' },
        tile(
          'Connections',
          h('a', { href: '#/connections', class: 'tile-link' }, number('connections')),
        ),
        tile('Subscriptions', number('subscriptions')),
        tile('Published/s', speed('published')),
        tile('Delivered/s', speed('delivered')),
        tile('Messages', number('published_total')),
        tile('Sent', number('bytes_out_total', bytes)),
      ),
      h(
        'dl',
        { class: 'facts' },
        ...address('WebSocket', config.ws),
        ...address('HTTP', config.http),
      ),
      h(
        'p',
        { class: 'links' },
        h('a', { href: 'v1/openapi.json' }, 'OpenAPI'),
        h('a', { href: 'metrics' }, 'Metrics'),
        h('a', { href: 'healthz' }, 'Health'),
        h('a', { href: 'readyz' }, 'Readiness'),
      ),
      h('p', { class: 'play' }, demonstrationButton(demonstration, 'ghost small')),
    ),
  );
}

function tile(name: string, value: Child): HTMLElement {
  return h('div', {}, h('dt', {}, name), h('dd', { class: 'number' }, value));
}

function address(name: string, url: string): HTMLElement[] {
  return [
    h('dt', {}, name),
    h(
      'dd',
      { class: 'address' },
      h('code', { class: 'clip' }, url),
      copyButton(`Copy the ${name} address`, () => url, false),
    ),
  ];
}

async function health(http: string): Promise<{ healthy: boolean; took: number }> {
  const began = performance.now();
  try {
    const answer = await fetch(`${http}/healthz`, { cache: 'no-store', credentials: 'omit' });
    await answer.arrayBuffer();
    return { healthy: answer.ok, took: Math.max(1, Math.round(performance.now() - began)) };
  } catch {
    return { healthy: false, took: 0 };
  }
}

async function metricsOf(http: string): Promise<ReadonlyMap<string, number> | undefined> {
  try {
    const answer = await fetch(`${http}/metrics`, { cache: 'no-store', credentials: 'omit' });
    return answer.ok ? readMetrics(await answer.text()) : undefined;
  } catch {
    // A proxy may allow only the scraper to read the metrics.
    return undefined;
  }
}
