/** One request over HTTP, as every part of the client makes it. */

import { bareToken } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';

/** A request to send. */
export interface Request {
  readonly method: 'GET' | 'POST';
  /** Path below the base URL, quoted, with its query. */
  readonly path: string;
  /** JSON, or undefined. */
  readonly body?: string | undefined;
  /** In addition to `Authorization`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Send a request with a token in its header; returns the head of the answer. */
export function ask(
  { fetch, httpUrl }: ClientOptions,
  token: string,
  { method, path, body, headers }: Request,
  signal: AbortSignal,
): Promise<Response> {
  return fetch(httpUrl + path, {
    method,
    headers: {
      Authorization: `Bearer ${bareToken(token)}`,
      ...(body && { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body && { body }),
    // A redirect would send the token elsewhere.
    redirect: 'manual',
    credentials: 'omit',
    cache: 'no-store',
    signal,
  });
}

/** The status of an answer; browsers hide that of a redirect that is not followed. */
export function statusOf({ status }: Response): number {
  return status || 302;
}

/**
 * The bytes of an answer as they arrive.
 *
 * @throws RangeError There are more than `limit`.
 */
export async function* bytesOf(response: Response, limit: number): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  try {
    for (let left = limit; reader; ) {
      const { done, value } = await reader.read();
      if (done) return;
      left -= value.length;
      if (left < 0) throw new RangeError('too large');
      yield value;
    }
  } finally {
    reader?.cancel().catch(() => {});
  }
}

/** The whole text of an answer; throws as `bytesOf` does. */
export async function textOf(response: Response, limit: number): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of bytesOf(response, limit))
    text += decoder.decode(bytes, { stream: true });
  return text + decoder.decode();
}
