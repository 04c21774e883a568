/** Requests to the backend of the page. */

import type { Token } from '@hanzoai/pubsub';

/** Addresses of the chat. */
export interface Config {
  readonly ws: string;
  readonly http: string;
  /** Topic of the room. */
  readonly room: string;
  /** Id of the service that answers. */
  readonly scribe: string;
}

async function ask<Answer>(path: string, method = 'GET', signal?: AbortSignal): Promise<Answer> {
  const response = await fetch(path, { method, signal: signal ?? AbortSignal.timeout(10_000) });
  if (!response.ok) throw new Error(`The backend answered ${response.status}.`);
  return (await response.json()) as Answer;
}

export const config = (): Promise<Config> => ask('config');

export const token = (user: string, signal: AbortSignal): Promise<Token> =>
  ask(`token?user=${encodeURIComponent(user)}`, 'POST', signal);

/** Send SIGKILL to the writer process. Its id is null if none is running. */
export const killWriter = (): Promise<{ pid: number | null }> => ask('kill', 'POST');
