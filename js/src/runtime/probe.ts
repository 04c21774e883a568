/** Whether the better transport would open, while the other one serves. */

import type { Driver } from './driver.js';

/** Open a WebSocket beside the present transport and close it; whether that went well in time. */
export async function probe({ around, clock, options }: Driver): Promise<boolean> {
  const transport = await around.dial('websocket', options, true);
  const ok = await new Promise<boolean>((resolve) => {
    const timer = clock.callLater(options.openTimeout, () => resolve(false));
    const answer = (open: boolean): void => {
      timer.cancel();
      resolve(open);
    };
    transport.open({ opened: () => answer(true), frame: () => {}, ended: () => answer(false) });
  });
  transport.close();
  return ok;
}
