/** The page's requests to the demonstration. */

/** Addresses and settings of the demonstration. */
export interface Show {
  readonly ws: string;
  readonly http: string;
  readonly topic: string;
  /** Id of the stream on the topic. */
  readonly stream: string;
  /** Number of words in the text. */
  readonly total: number;
  /** The user id of this tab. */
  readonly user: string;
  /** Whether the server keeps running after the end. */
  readonly stays: boolean;
}

/** The state of the demonstration, as the publisher counts it. */
export interface Progress {
  readonly published: number;
  readonly done: boolean;
}

async function ask<Answer>(path: string, method = 'GET'): Promise<Answer> {
  const answer = await fetch(path, { method, signal: AbortSignal.timeout(5_000) });
  if (!answer.ok) throw new Error(`The demonstration answered ${answer.status}.`);
  return (await answer.json()) as Answer;
}

/** Join the demonstration. A tab keeps its user id when you reload it. */
export async function enter(): Promise<Show> {
  const user = sessionStorage.getItem('user');
  const show = await ask<Show>(user ? `show?user=${encodeURIComponent(user)}` : 'show');
  sessionStorage.setItem('user', show.user);
  return show;
}

export const progress = (): Promise<Progress> => ask('progress');

/** A token that expires soon. */
export const token = (user: string): Promise<{ value: string; expiresAt: number }> =>
  ask(`token?user=${encodeURIComponent(user)}`, 'POST');

/** Cut the connections of a tab, or let its token expire. */
export const disturb = (how: 'cut' | 'renew', user: string): Promise<unknown> =>
  ask(`${how}?user=${encodeURIComponent(user)}`, 'POST');
