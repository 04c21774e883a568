/** What a client stands on: what the platform tells of sleep and network. */

interface Target {
  addEventListener?(type: string, listener: (event: unknown) => void): void;
  removeEventListener?(type: string, listener: (event: unknown) => void): void;
}

/**
 * Hear of a network that is back and of a page that is looked at again, where there are pages.
 *
 * @param woke Called then; `true` where a connection from before cannot be trusted.
 * @returns Stops it.
 */
export function watchPlatform(woke: (certain: boolean) => void): () => void {
  const page = globalThis as Target & {
    readonly document?: Target & { readonly visibilityState?: string };
  };
  const { document } = page;
  const online = (): void => woke(true);
  const shown = (): void => {
    if (document?.visibilityState === 'visible') woke(false);
  };
  const restored = (event: unknown): void => {
    if ((event as { readonly persisted?: boolean }).persisted) woke(true);
  };
  const watched: [Target | undefined, string, (event: unknown) => void][] = [
    [page, 'online', online],
    [page, 'pageshow', restored],
    [document, 'visibilitychange', shown],
  ];
  for (const [target, type, listener] of watched) target?.addEventListener?.(type, listener);
  return () => {
    for (const [target, type, listener] of watched) target?.removeEventListener?.(type, listener);
  };
}
