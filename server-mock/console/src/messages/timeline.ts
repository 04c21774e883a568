/** The timeline of the chosen topic, above the list. */

import { now } from '../clock.js';
import { h, replace, svg } from '../dom.js';
import { clockTime, plural } from '../format.js';
import { effect, onEnd, Signal } from '../reactive.js';
import type { Feed } from './feed.js';
import { type Mark, nearest, type Timeline, timelineOf } from './timeline_model.js';

const HEIGHT = 52;
const GROUND = 34;
const SPANS = [
  ['', 'All'],
  ['60000', '1 min'],
  ['600000', '10 min'],
  ['3600000', '1 h'],
] as const;

/**
 * Build it; hidden while all topics are shown.
 *
 * @param ahead How far the clock of the server is ahead of the clock of this machine, in ms.
 * @param show Shows an entry in the list.
 */
export function timeline(
  feed: Feed,
  ahead: () => number,
  show: (key: number) => void,
): HTMLElement {
  const width = new Signal(0);
  const span = new Signal<number | undefined>(undefined);
  let drawn: Timeline | undefined;
  const picture = svg('svg', { class: 'timeline-picture', height: HEIGHT, role: 'img' });
  const sizes = new ResizeObserver(([size]) => {
    width.value = Math.floor(size?.contentRect.width ?? 0);
  });
  sizes.observe(picture);
  onEnd(() => sizes.disconnect());
  picture.addEventListener('click', (event) => {
    const { left } = picture.getBoundingClientRect();
    const mark = nearest(drawn?.marks ?? [], (event as MouseEvent).clientX - left);
    if (mark) show(mark.key);
  });
  const legend = h('p', { class: 'timeline-legend' });
  const element = h(
    'section',
    { class: 'timeline', 'aria-label': 'Timeline of the topic', hidden: true },
    h(
      'div',
      { class: 'timeline-head' },
      legend,
      h(
        'select',
        {
          'aria-label': 'Time span',
          onchange: (event: Event) => {
            const { value } = event.target as HTMLSelectElement;
            span.value = value ? Number(value) : undefined;
          },
        },
        ...SPANS.map(([value, name]) => h('option', { value }, name)),
      ),
    ),
    picture,
  );
  effect(() => {
    void feed.changed.value;
    const topic = feed.narrowed.value;
    element.hidden = topic === undefined || !feed.scope.length;
    if (element.hidden) return;
    drawn = timelineOf(feed.scope, width.value, now.value + ahead(), span.value, ahead());
    if (!drawn) return;
    replace(legend, ...legendOf(drawn));
    picture.setAttribute('aria-label', summary(topic ?? '', drawn));
    replace(picture, ...draw(drawn, width.value));
  });
  return element;
}

function draw({ marks, labels }: Timeline, width: number): SVGElement[] {
  return [
    svg('line', { class: 'axis', x1: 0, x2: width, y1: GROUND, y2: GROUND }),
    ...labels.flatMap(({ x, at }) => [
      svg('line', { class: 'axis', x1: x, x2: x, y1: GROUND, y2: GROUND + 4 }),
      svg(
        'text',
        // A label at the edge would be cut off.
        { x: Math.max(24, Math.min(width - 24, x)), y: HEIGHT - 3, 'text-anchor': 'middle' },
        clockTime(at).slice(0, 8),
      ),
    ]),
    ...marks.map(markOf),
  ];
}

function markOf({ kind, x, count }: Mark): SVGElement {
  const what =
    kind === 'gap'
      ? `Gap: ${count === undefined ? 'messages' : plural(count, 'message')} missing`
      : `${plural(count ?? 0, 'message')}${kind === 'replayed' ? ' replayed' : ''}`;
  const title = svg('title', {}, what);
  if (kind === 'gap') {
    return svg('rect', { class: 'gap', x: x - 3, y: 2, width: 6, height: GROUND - 2 }, title);
  }
  const height = Math.min(24, 10 + 4 * Math.log2(count || 1));
  return svg('rect', { class: kind, x: x - 1, y: GROUND - height, width: 3, height, rx: 1 }, title);
}

function legendOf({ live, replayed, gaps, missing }: Timeline): HTMLElement[] {
  const part = (kind: Mark['kind'], text: string): HTMLElement =>
    h('span', {}, h('i', { class: `swatch ${kind}` }), text);
  const lost = missing ? ` (${missing.toLocaleString('en-US')} missing)` : '';
  return [
    part('live', `${live.toLocaleString('en-US')} live`),
    part('replayed', `${replayed.toLocaleString('en-US')} replayed`),
    part('gap', `${plural(gaps, 'gap')}${lost}`),
  ];
}

function summary(topic: string, { from, to, live, replayed, gaps, missing }: Timeline): string {
  const times = `${clockTime(from).slice(0, 8)} to ${clockTime(to).slice(0, 8)}`;
  const lost = missing ? ` with ${plural(missing, 'missing message')}` : '';
  return `${topic}, ${times}: ${live} live, ${replayed} replayed, ${plural(gaps, 'gap')}${lost}`;
}
