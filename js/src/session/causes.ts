/** What an event says about the reason of a change: codes, words, and how long to wait. */

import { type CloseAction, CODES } from '../generated/errors.js';
import type { AuthErrorFrame, ErrorFrame } from '../generated/wire.js';
import type { Dropped, Event, TimerName } from './events.js';

/** Ends that a middlebox may have caused; with another code the server itself spoke. */
const UNEXPLAINED: ReadonlySet<number | undefined> = new Set([
  undefined,
  1000,
  1002,
  1005,
  1006,
  1011,
  1015,
]);

/** What an error code means for a connection. */
export function actionOf(code: string | number | undefined): CloseAction {
  return (typeof code === 'string' && CODES.get(code)?.action) || 'retry';
}

/** Whether a middlebox may have ended the connection, and not the server. */
export function unexplained(event: Dropped): boolean {
  return event.retryAfter === undefined && UNEXPLAINED.has(event.code);
}

/** The error frame that an event brings, if it does. */
export function errorOf(event: Event): AuthErrorFrame | ErrorFrame | undefined {
  if (event.kind !== 'received') return undefined;
  const { frame } = event;
  return frame.type === 'auth.error' || frame.type === 'error' ? frame : undefined;
}

/** Milliseconds that the server asked to wait; 0 if it asked nothing. */
export function retryAfter(event: Event): number {
  if (event.kind === 'dropped') return event.retryAfter ?? 0;
  return errorOf(event)?.retry_after_ms ?? 0;
}

type Cause = readonly [code: string | number | undefined, reason: string | undefined];

const TIMEOUTS: Readonly<Partial<Record<TimerName, Cause>>> = {
  fetch: ['timeout', 'The token callback did not answer in time.'],
  open: ['timeout', 'The connection could not be opened in time.'],
  pong: ['idle_timeout', 'Nothing was heard from the server.'],
  suspend: [undefined, 'There has been no connection for long.'],
  fallback: [undefined, 'The WebSocket does not open; the event stream is tried.'],
  drain: ['timeout', 'Not everything was settled in time.'],
};

/** The code behind a change of state, and the reason in words. */
export function cause(event: Event): Cause {
  switch (event.kind) {
    case 'dropped':
      return [event.code, event.reason];
    case 'tokenFailed':
      return [event.refused ? 'auth_refused' : 'token_unavailable', event.message];
    case 'timerFired':
      return TIMEOUTS[event.name] ?? [undefined, undefined];
    default: {
      const frame = errorOf(event);
      return [frame?.code, frame?.message];
    }
  }
}
