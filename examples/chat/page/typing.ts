/** Shows other users that the user of this tab types. */

import { useEffect, useRef } from 'react';

/** Milliseconds without a key after which a user is no longer shown as typing. */
const PAUSE = 3_000;

/**
 * Report when typing begins and when it ends, not each key: updates of presence count as publishes.
 *
 * @returns What a key calls, and what ends it at once.
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
