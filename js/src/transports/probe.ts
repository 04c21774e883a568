/** Probes the other transport; loads with the event stream, which takes part in each probe. */

import type { Clock } from '../clock.js';
import type { AuthFrame } from '../generated/wire.js';
import { actionOf } from '../session/events.js';
import type { TransportName } from '../session/ports.js';
import type { ClientOptions } from '../settings/options.js';
import type { Decoded } from '../wire/decoded.js';
import type { Transport } from './transport.js';

/** The client that probes. */
interface Prober {
  readonly environment: {
    dial(
      name: TransportName,
      options: ClientOptions,
      alone: boolean,
    ): Transport | Promise<Transport>;
  };
  readonly clock: Clock;
  readonly options: ClientOptions;
  readonly over: AbortSignal;
}

/**
 * Open a WebSocket in addition to the current transport and close it; whether this succeeded in
 * time.
 *
 * @param auth Instead, send this to the HTTP address: whether it answers as a PubSub service, even
 * if it rejects the token.
 */
export async function probe(
  { environment, clock, options, over }: Prober,
  auth?: AuthFrame,
): Promise<boolean> {
  const transport = await environment.dial(auth ? 'sse' : 'websocket', options, true);
  if (over.aborted) return false;
  const ok = await new Promise<boolean>((resolve) => {
    const timer = clock.callLater(options.openTimeout, () => resolve(false));
    const answer = (open: boolean): void => {
      timer.cancel();
      resolve(open);
    };
    // One probe at a time.
    over.onabort = () => answer(false);
    transport.open({
      opened: () => (auth ? transport.send([auth]) : answer(true)),
      frame: (read) => answer(isAnswer(read)),
      ended: () => answer(false),
    });
  });
  transport.close();
  return ok;
}

function isAnswer(read: Decoded | Promise<Decoded>): boolean {
  const { type, code } = read as { readonly type?: string; readonly code?: string };
  return type === 'auth.error' ? actionOf({ code }) !== 'retry' : type === 'auth.ok';
}
