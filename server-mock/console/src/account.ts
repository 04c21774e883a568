/** The signed-in user: identity, token, limits, and signing in as another user. */

import { now } from './clock.js';
import type { Credentials } from './credentials.js';
import { type Child, h, replace } from './dom.js';
import { bytes, clockTime, countdown } from './format.js';
import type { Identity } from './identity.js';
import { effect, type Signal } from './reactive.js';
import { tokenRing } from './token_life.js';

/** Build the button in the bar, and its menu. */
export function account(
  credentials: Credentials,
  identity: Signal<Identity | undefined>,
  signOut: () => void,
): readonly [button: HTMLElement, panel: HTMLElement] {
  const name = (): string => identity.value?.userId ?? credentials.claims.value.user ?? 'API key';
  const button = h(
    'button',
    {
      class: 'bar-button',
      type: 'button',
      popovertarget: 'account',
    },
    h('span', { class: 'unseen' }, 'Account, token expires in '),
    tokenRing(credentials, identity),
    h('span', { class: 'who-short clip' }, name),
  );
  const facts = h('dl', { class: 'facts' });
  effect(() => {
    const { kind, orgs } = credentials.claims.value;
    const found = identity.value;
    const limits = found?.limits ?? {};
    replace(
      facts,
      ...fact('User', h('b', {}, name())),
      ...(kind ? fact('Kind', kind) : []),
      ...(orgs.length ? fact('Orgs', orgs.join(', ')) : []),
      ...fact('Token', () => life(credentials, found)),
      ...(credentials.way === 'dev' ? fact('Renewed', () => renewed(credentials)) : []),
      ...Object.entries(limits).flatMap(([key, value]) => fact(limitName(key), limit(key, value))),
      ...(found?.features.length ? fact('Features', found.features.join(', ')) : []),
    );
  });
  const panel = h(
    'div',
    {
      id: 'account',
      popover: 'auto',
      class: 'sheet',
      role: 'dialog',
      'aria-label': 'Account',
      tabindex: -1,
      autofocus: true,
    },
    h('h2', {}, 'Signed in'),
    facts,
    h(
      'p',
      { class: 'hint' },
      credentials.way === 'dev'
        ? 'This development server issues the token of its page, and renews it before it expires.'
        : 'The token is stored only in the session storage of this tab, until you sign out or close the tab.',
    ),
    h(
      'p',
      { class: 'actions' },
      h(
        'button',
        { class: 'ghost', type: 'button', onclick: signOut },
        'Sign out or switch users…',
      ),
    ),
  );
  return [button, panel];
}

function life(credentials: Credentials, identity: Identity | undefined): string {
  const until = credentials.life.value.until ?? identity?.expiresAt;
  if (until === undefined) return 'the expiry is not known';
  return `expires in ${countdown(until - Math.max(credentials.life.value.from, now.value))}, at ${clockTime(until).slice(0, 8)}`;
}

function renewed({ life }: Credentials): string {
  const { renewals, from } = life.value;
  if (renewals < 1) return 'not yet';
  return `${renewals === 1 ? 'once' : `${renewals} times`}, last at ${clockTime(from).slice(0, 8)}`;
}

function limitName(key: string): string {
  const words = key.replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function limit(key: string, value: number): string {
  if (key.includes('payload') || key.includes('bytes')) return bytes(value);
  return `${value.toLocaleString('en-US')}${key.endsWith('_rate') ? ' a second' : ''}`;
}

function fact(name: string, value: Child): HTMLElement[] {
  return [h('dt', {}, name), h('dd', {}, value)];
}
