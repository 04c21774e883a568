/** What a client stands on: how it reaches a server, what the platform tells of sleep and network. */

import type { Clock } from '../clock.js';
import type { TransportName } from '../session/effects.js';
import type { ClientOptions } from '../settings/options.js';
import type { Transport } from '../transports/transport.js';
import { WebSocketTransport } from '../transports/websocket.js';

/** Make a transport that is not open yet; the event stream is loaded when it is first needed. */
export function dial(
  name: TransportName,
  options: ClientOptions,
  clock: Clock,
  random: () => number,
): Transport | Promise<Transport> {
  if (name === 'websocket') return new WebSocketTransport(options, clock);
  return import('../transports/sse.js').then(
    ({ SseTransport }) => new SseTransport(options, clock, random),
  );
}

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
