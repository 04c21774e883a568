/** The remaining lifetime of the token, as a ring that empties. */

import { now } from './clock.js';
import type { Credentials } from './credentials.js';
import { h, svg } from './dom.js';
import { countdown } from './format.js';
import type { Identity } from './identity.js';
import { effect, type Signal } from './reactive.js';

const SOON = 60_000;
const AROUND = 2 * Math.PI * 8;

/**
 * What remains: a fraction of its lifetime, and milliseconds; undefined for a token without an
 * expiry.
 */
export function leftOf(
  from: number,
  until: number | undefined,
  at: number,
): { readonly share: number; readonly ms: number } | undefined {
  if (until === undefined) return undefined;
  const ms = Math.max(0, until - at);
  return { share: until > from ? Math.min(1, ms / (until - from)) : 0, ms };
}

/** The ring with the time beside it. */
export function tokenRing(
  credentials: Credentials,
  identity: Signal<Identity | undefined>,
): HTMLElement {
  const bar = svg('circle', {
    class: 'left',
    cx: 10,
    cy: 10,
    r: 8,
    'stroke-dasharray': AROUND,
    transform: 'rotate(-90 10 10)',
  });
  const ring = svg(
    'svg',
    { class: 'ring', viewBox: '0 0 20 20', 'aria-hidden': 'true' },
    svg('circle', { class: 'whole', cx: 10, cy: 10, r: 8 }),
    bar,
  );
  const time = h('span', { class: 'number' });
  const element = h('span', { class: 'token-life' }, ring, time);
  effect(() => {
    const { from, until } = credentials.life.value;
    const left = leftOf(from, until ?? identity.value?.expiresAt, Math.max(from, now.value));
    bar.setAttribute('stroke-dashoffset', String(AROUND * (1 - (left?.share ?? 1))));
    time.textContent = left ? countdown(left.ms) : '∞';
    element.classList.toggle('soon', left !== undefined && left.ms < SOON);
    element.title = left
      ? `The token expires in ${countdown(left.ms)}${credentials.way === 'dev' ? '; it is renewed before that' : ''}`
      : 'The expiry of the token is not known';
  });
  // Mark a renewal with an animation.
  effect(() => {
    if (credentials.life.value.renewals > 0) {
      ring.classList.remove('renewed');
      void ring.getBoundingClientRect();
      ring.classList.add('renewed');
    }
  });
  return element;
}
