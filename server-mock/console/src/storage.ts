/** Storage of the browser. If it is not available, the page works without it. */

/** Read a text. */
export function recall(store: 'localStorage' | 'sessionStorage', key: string): string | undefined {
  try {
    return globalThis[store].getItem(`hanzo-pubsub.${key}`) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Store a text; undefined deletes it. */
export function remember(
  store: 'localStorage' | 'sessionStorage',
  key: string,
  text: string | undefined,
): void {
  try {
    if (text === undefined) globalThis[store].removeItem(`hanzo-pubsub.${key}`);
    else globalThis[store].setItem(`hanzo-pubsub.${key}`, text);
  } catch {
    // Storage is disabled or full.
  }
}
