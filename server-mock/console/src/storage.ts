/** What the browser keeps; where it keeps nothing, the page works without. */

/** Read a text. */
export function recall(store: 'localStorage' | 'sessionStorage', key: string): string | undefined {
  try {
    return globalThis[store].getItem(`hanzo-pubsub.${key}`) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Keep a text, or with undefined forget it. */
export function remember(
  store: 'localStorage' | 'sessionStorage',
  key: string,
  text: string | undefined,
): void {
  try {
    if (text === undefined) globalThis[store].removeItem(`hanzo-pubsub.${key}`);
    else globalThis[store].setItem(`hanzo-pubsub.${key}`, text);
  } catch {
    // Storage is off or full.
  }
}
