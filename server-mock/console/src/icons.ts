/** The icons of the page, drawn in the colour of the surrounding text. */

import { svg } from './dom.js';

const PATHS = {
  sun: 'M12 4V2m0 20v-2m8-8h2M2 12h2m13.7-5.7 1.4-1.4M4.9 19.1l1.4-1.4m11.4 0 1.4 1.4M4.9 4.9l1.4 1.4M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8Z',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z',
  auto: 'M12 3a9 9 0 1 0 0 18V3Zm0 0a9 9 0 0 1 0 18',
  help: 'M9.2 9a2.9 2.9 0 1 1 4.1 2.7c-.9.4-1.3 1-1.3 1.8v.4m0 3.1h.01M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0Z',
  close: 'm6 6 12 12M18 6 6 18',
  pause: 'M8 5v14M16 5v14',
  play: 'M7 4.5v15l12-7.5-12-7.5Z',
  copy: 'M9 9h10v11H9zM15 9V4H5v11h4',
  check: 'm5 12.5 4.5 4.5L19 7.5',
  down: 'M12 5v14m-6-6 6 6 6-6',
  chevron: 'm9 6 6 6-6 6',
  topics: 'M4 7h16M4 12h10M4 17h13',
  messages: 'M4 5h16v11H9l-5 4V5Z',
  send: 'M4 12 20 4l-5 16-3.5-6.5L4 12Z',
  people:
    'M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7Zm-6 9c0-3.5 2.5-6 6-6s6 2.5 6 6M16 4.5a3.5 3.5 0 0 1 0 6M18 14.5c2 .8 3 2.900 3 5.500',
  link: 'M10 14a4.5 4.5 0 0 0 6.4 0l3-3a4.5 4.5 0 0 0-6.400-6.400l-1 1M14 10a4.500 4.500 0 0 0-6.400 0l-3 3a4.500 4.500 0 0 0 6.400 6.400l1-1',
  server: 'M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01',
} as const;

/** The name of an icon. */
export type IconName = keyof typeof PATHS;

/** An icon of 16 pixels, hidden from assistive technology. */
export function icon(name: IconName): SVGElement {
  return svg(
    'svg',
    { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true', focusable: 'false' },
    svg('path', { d: PATHS[name] }),
  );
}

/** The logo: a source and its outgoing messages. */
export function mark(): SVGElement {
  return svg(
    'svg',
    { class: 'mark', viewBox: '0 0 32 32', 'aria-hidden': 'true', focusable: 'false' },
    svg('rect', { width: 32, height: 32, rx: 8 }),
    svg('circle', { cx: 10, cy: 16, r: 3.5 }),
    svg('path', { d: 'M15.5 9.6a9 9 0 0 1 0 12.8M20 5.8a14.6 14.6 0 0 1 0 20.4' }),
  );
}
