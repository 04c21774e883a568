/** Probes the other transport; loads with the event stream, which takes part in each probe. */

import { DEVELOPMENT } from '../build.js';
import type { Clock } from '../clock.js';
import type { AuthFrame } from '../generated/wire.js';
import { actionOf } from '../session/events.js';
import type { TransportName } from '../session/ports.js';
import type { ClientOptions } from '../settings/options.js';
import type { StateChange } from '../values.js';
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
  lastFailure: StateChange | undefined;
  /** The failure whose reason the platform hides. */
  readonly unexplained: StateChange | undefined;
}

/**
 * Open a WebSocket beside the current transport, and close it. Returns whether this succeeded in
 * time.
 *
 * @param auth Is sent to the HTTP address instead. Returns whether a PubSub service answers, even if
 *   it rejects the token.
 */
export async function probe(prober: Prober, auth?: AuthFrame): Promise<boolean> {
  const transport = await prober.environment.dial(auth ? 'sse' : 'websocket', prober.options, true);
  if (prober.over.aborted) return false;
  const ok = await new Promise<boolean>((resolve) => {
    const timer = prober.clock.callLater(prober.options.openTimeout, () => resolve(false));
    const answer = (open: boolean): void => {
      timer.cancel();
      resolve(open);
    };
    // One probe at a time.
    prober.over.onabort = () => answer(false);
    transport.open({
      opened: () => (auth ? transport.send([auth]) : answer(true)),
      frame: (read) => answer(isAnswer(read)),
      ended: (end) => answer(DEVELOPMENT && auth ? explain(prober, end.reason) : false),
    });
  });
  transport.close();
  return ok;
}

/**
 * Put the reason of the HTTP address into a failure whose reason the platform hides: the WebSocket of
 * Node does not say why it did not open, and its `fetch` does. Returns false.
 */
function explain(prober: Prober, reason: string): false {
  const { lastFailure: failure, unexplained } = prober;
  if (failure && failure === unexplained) prober.lastFailure = { ...failure, reason };
  return false;
}

function isAnswer(read: Decoded | Promise<Decoded>): boolean {
  const { type, code } = read as { readonly type?: string; readonly code?: string };
  return type === 'auth.error' ? actionOf({ code }) !== 'retry' : type === 'auth.ok';
}
