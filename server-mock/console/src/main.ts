/**
 * Starts the page. It signs in automatically if the server allows it, and shows the sign-in form
 * otherwise.
 */

import { loadConfig } from './config.js';
import { type Credentials, devCredentials, keepSignedIn, signedInBefore } from './credentials.js';
import { h, replace } from './dom.js';
import { type Problem, problemOf } from './notices.js';
import { scope } from './reactive.js';
import { signIn } from './sign_in.js';
import { workspace } from './workspace.js';

const place = document.getElementById('console') as HTMLElement;

async function start(): Promise<void> {
  const config = await loadConfig();
  let end: () => void = () => {};

  const enter = (credentials: Credentials): void => {
    keepSignedIn(credentials);
    show(() => workspace(config, credentials, leave));
  };
  const leave = (why: Problem | undefined): void => {
    keepSignedIn(undefined);
    show(() => signIn(config, why, enter));
    place.querySelector<HTMLElement>(why ? '#token' : 'input')?.focus();
  };
  const show = (build: () => HTMLElement): void => {
    end();
    end = scope(() => {
      try {
        replace(place, build());
      } catch (error) {
        queueMicrotask(() => leave(problemOf(error)));
      }
    });
  };

  const before = signedInBefore(config.devSignIn);
  if (before === 'out' || (before === undefined && !config.devSignIn)) leave(undefined);
  else enter(before ?? devCredentials('console', 'admin'));
}

start().catch((error: unknown) => {
  const problem = error instanceof Error ? error.message : String(error);
  replace(
    place,
    h(
      'main',
      { class: 'plain' },
      h('h1', {}, 'The console cannot start'),
      h('p', {}, problem),
      h(
        'button',
        { class: 'primary', type: 'button', onclick: () => location.reload() },
        'Try again',
      ),
    ),
  );
});
