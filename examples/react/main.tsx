/** The page: the user, the address of the server, and the room. */

import { AuthRefused, PubSubError, type PubSubOptions, type Token } from '@hanzoai/pubsub';
import { createRoot } from 'react-dom/client';

import { App } from './chat.js';

const query = new URLSearchParams(location.search);
const user = query.get('user') ?? 'alice';

/**
 * The response of your backend. It identifies the user by its own session, not by a parameter in
 * the address.
 */
async function getToken(_: unknown, { signal }: { signal: AbortSignal }): Promise<Token> {
  const answer = await fetch(`/pubsub-token?user=${user}`, { method: 'POST', signal });
  if (answer.status === 401) throw new AuthRefused('Log in again.');
  if (!answer.ok) {
    throw new PubSubError('token_unavailable', `The backend answered ${answer.status}.`);
  }
  const { token, expiresAt } = await answer.json();
  return { value: token, expiresAt };
}

/** Outside of every component, so that a remount keeps the connection. */
const options: PubSubOptions = {
  url: import.meta.env.VITE_PUBSUB_URL ?? 'ws://127.0.0.1:8057/ws',
  getToken,
  shareTabs: true,
};

const root = createRoot(document.body.appendChild(document.createElement('main')));
root.render(<App options={options} session={query.get('session') ?? 'lobby'} />);
