/** Shows other users that the user of this tab is typing. */

import { useEffect, useRef } from 'react';

/** Milliseconds without a key after which a user is no longer shown as typing. */
const PAUSE = 3_000;

/**
 * Report when typing starts and stops, not each key, because updates of presence count as
 * publishes.
 *
 * @returns A function to call for each key, and one that stops at once.
 */
export function useTyping(report: (isTyping: boolean) => void): [() => void, () => void] {
  const pause = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(pause.current), []);
  const rest = (): void => {
    clearTimeout(pause.current);
    if (pause.current !== undefined) report(false);
    pause.current = undefined;
  };
  const touch = (): void => {
    clearTimeout(pause.current);
    if (pause.current === undefined) report(true);
    pause.current = setTimeout(rest, PAUSE);
  };
  return [touch, rest];
}
