/** What an event says about the reason of a change: codes, words, and how long to wait. */

import { type CloseAction, CODES, closeAction } from '../generated/errors.js';
import type { AuthErrorFrame, ErrorFrame } from '../generated/wire.js';
import type { Dropped, Event, TimerName } from './events.js';

/** Ends that a middlebox may have caused; with another code the server itself spoke. */
const UNEXPLAINED: readonly unknown[] = [undefined, 1000, 1002, 1005, 1006, 1011, 1015];

/** Whether a middlebox may have ended the connection, and not the server. */
export function unexplained({ code, retryAfter }: Dropped): boolean {
  return retryAfter === undefined && UNEXPLAINED.includes(code);
}

/** What an error code or close code means for a connection. */
export function actionOf(code: string | number | undefined): CloseAction {
  return typeof code === 'string' ? (CODES.get(code)?.action ?? 'retry') : closeAction(code);
}

/** The error that a close code stands for. */
export function codeOf(closeCode: number | undefined): string {
  const known = [...CODES.values()].find(({ close }) => close && close === closeCode);
  return known?.code ?? 'connection_failed';
}

/** The error frame that an event brings, if it does. */
export function errorOf(event: Event): Partial<AuthErrorFrame | ErrorFrame> {
  const frame = event.kind === 'received' ? event.frame : undefined;
  return frame?.type === 'auth.error' || frame?.type === 'error' ? frame : {};
}

type Cause = readonly [code?: string | number | undefined, reason?: string | undefined];

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
  if (event.kind === 'dropped') return [event.code, event.reason];
  if (event.kind === 'tokenFailed') {
    return [event.refused ? 'auth_refused' : 'token_unavailable', event.message];
  }
  if (event.kind === 'timerFired') return TIMEOUTS[event.name] ?? [];
  const { code, message } = errorOf(event);
  return [code, message];
}
