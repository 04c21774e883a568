/** The sign-in form. */

import type { Config } from './config.js';
import { type Credentials, devCredentials, KINDS, pastedCredentials } from './credentials.js';
import { h } from './dom.js';
import { icon, mark } from './icons.js';
import { type Problem, sentence } from './notices.js';
import { Signal } from './reactive.js';
import { themeButton } from './theme_button.js';

const EXPLAINED = {
  admin: 'may do everything, lists all topics',
  service: 'publishes everywhere, reads what the rules allow',
  agent: 'reads and publishes what the rules allow',
  user: 'reads and publishes what the rules allow',
} as const;

/** Build the form. */
export function signIn(
  config: Config,
  why: Problem | undefined,
  done: (credentials: Credentials) => void,
): HTMLElement {
  return h(
    'div',
    { class: 'sign-in' },
    h('div', { class: 'corner' }, themeButton()),
    h(
      'main',
      { class: 'card' },
      h('p', { class: 'brand' }, mark(), h('span', {}, h('b', {}, 'Hanzo PubSub'), ' Console')),
      h('h1', {}, 'Sign in'),
      why &&
        h(
          'div',
          { class: 'notice', role: 'alert' },
          h(
            'div',
            {},
            h('code', { class: 'code' }, why.code),
            h('p', {}, ...sentence(why.message)),
            why.remedy && h('p', { class: 'quiet' }, ...sentence(why.remedy)),
          ),
        ),
      config.devSignIn && devForm(done),
      config.devSignIn && h('p', { class: 'or quiet' }, 'or with a token'),
      tokenForm(config, done),
    ),
  );
}

function devForm(done: (credentials: Credentials) => void): HTMLElement {
  const user = h('input', {
    id: 'user',
    value: 'console',
    required: true,
    maxlength: 64,
    pattern: '[a-zA-Z0-9_.@\\-]+',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const kind = h('select', { id: 'kind' }, ...KINDS.map((each) => h('option', {}, each)));
  const explained = new Signal<string>(EXPLAINED.admin);
  kind.addEventListener('change', () => {
    explained.value = EXPLAINED[KINDS[kind.selectedIndex] ?? 'user'];
  });
  return h(
    'form',
    {
      onsubmit: (event: Event) => {
        event.preventDefault();
        done(devCredentials(user.value, KINDS[kind.selectedIndex] ?? 'user'));
      },
    },
    h(
      'div',
      { class: 'fields' },
      h('div', { class: 'field wide' }, h('label', { for: 'user' }, 'User'), user),
      h('div', { class: 'field' }, h('label', { for: 'kind' }, 'Kind'), kind),
    ),
    h('p', { class: 'hint' }, () => `${kind.value || 'admin'}: ${explained.value}.`),
    h('button', { class: 'primary block' }, 'Continue on this machine'),
  );
}

function tokenForm(config: Config, done: (credentials: Credentials) => void): HTMLElement {
  const slip = new Signal('');
  const token = h('input', {
    id: 'token',
    type: 'password',
    class: 'mono',
    autocomplete: 'off',
    spellcheck: 'false',
    'aria-describedby': 'token-hint token-slip',
    'aria-invalid': () => (slip.value ? 'true' : undefined),
    oninput: () => {
      slip.value = '';
    },
  });
  const shown = new Signal(false);
  return h(
    'form',
    {
      onsubmit: (event: Event) => {
        event.preventDefault();
        const text = token.value.trim().replace(/^bearer\s+/i, '');
        if (/^[\x21-\x7e]+$/.test(text)) done(pastedCredentials(text));
        else
          slip.value = text ? 'A token is one word without spaces.' : 'Paste a token or API key.';
      },
    },
    h(
      'div',
      { class: 'field' },
      h('label', { for: 'token' }, 'Token or API key'),
      h(
        'div',
        { class: 'joined' },
        token,
        h(
          'button',
          {
            class: 'ghost',
            type: 'button',
            'aria-pressed': () => String(shown.value),
            onclick: () => {
              shown.value = !shown.peek();
              token.type = shown.peek() ? 'text' : 'password';
            },
          },
          'Show',
        ),
      ),
    ),
    h('p', { class: 'slip', id: 'token-slip', 'aria-live': 'polite' }, () => slip.value),
    h(
      'p',
      { class: 'hint', id: 'token-hint' },
      'The token is stored only in the session storage of this tab, until you sign out or close the tab. It is sent in a header, never in a URL. ',
      config.devSignIn
        ? h(
            'span',
            {},
            'A development server accepts the output of ',
            h('code', {}, 'hanzo-pubsub token --user me'),
            '.',
          )
        : 'Use a JWT of your identity provider, or an API key that this server knows. Listing all topics requires the token of an administrator.',
    ),
    h(
      'button',
      { class: config.devSignIn ? 'ghost block' : 'primary block' },
      icon('check'),
      'Sign in with the token',
    ),
  );
}
