/** The events of the lifecycle, and what the codes in them mean. */

import type { Loose } from '../compact.js';
import { type CloseAction, CODES, closeAction } from '../generated/errors.js';
import type { ErrorFrame, ErrorInfo } from '../generated/wire.js';
import type { Peer, TimerName } from './ports.js';

/**
 * Input of the guards and actions of the lifecycle; an event sets the fields that it has. An error
 * frame is such an event.
 */
export interface SessionEvent extends Partial<Omit<Loose<ErrorInfo>, 'code'>> {
  /** The error code or close code of the cause. */
  readonly code?: string | number | undefined;
  readonly timer?: TimerName | undefined;
  /** When a frame arrived, by this machine's clock, Unix milliseconds. */
  readonly at?: number | undefined;
  /** The content of `auth.ok`. */
  readonly peer?: Peer | undefined;
  /** Milliseconds until the token expires, from `auth.expiring`. */
  readonly left?: number | undefined;
  /** The token, and the milliseconds until it ends. */
  readonly token?: string | undefined;
  readonly expiresIn?: number | undefined;
  /** The result of a probe. */
  readonly ok?: boolean | undefined;
  /** Milliseconds to wait for publishes before the end. */
  readonly wait?: number | undefined;
  /** Milliseconds since the last byte. */
  readonly idle?: number | undefined;
}

/** The cause for a timer that fired. */
export const TIMEOUTS: Readonly<Partial<Record<TimerName, SessionEvent>>> = {
  fetch: { code: 'timeout', message: 'The token callback did not answer in time.' },
  open: { code: 'timeout', message: 'The connection could not be opened in time.' },
  pong: { code: 'idle_timeout', message: 'The server sent nothing.' },
  suspend: { message: 'The client has not been connected for a long time.' },
  fallback: { message: 'The WebSocket does not open; the client tries the event stream.' },
  drain: { code: 'timeout', message: 'Some publishes were not settled in time.' },
};

/** Close codes that a middlebox may have caused; other codes are from the server. */
const UNEXPLAINED: readonly unknown[] = [undefined, 1000, 1002, 1005, 1006, 1011, 1015];

/** Whether a middlebox may have ended the connection, and not the server. */
export function unexplained({ code, retry_after_ms }: SessionEvent): boolean {
  return retry_after_ms === undefined && UNEXPLAINED.includes(code);
}

/** What an error code or close code means for a connection. */
export function actionOf({ code }: SessionEvent): CloseAction {
  return typeof code === 'string' ? (CODES.get(code)?.action ?? 'retry') : closeAction(code);
}

/** Whether this is the server's reason for closing the connection. */
export function endsConnection({ code, ref }: ErrorFrame): boolean {
  return ref === undefined && CODES.get(code)?.close !== undefined;
}

/** The error code itself, or that of a close code. */
export function codeOf(given: SessionEvent['code']): string {
  if (typeof given === 'string') return given;
  for (const { code, close } of CODES.values()) if (close && close === given) return code;
  return 'connection_failed';
}

/** The code of a token callback that refuses permanently. */
export const REFUSED = 'auth_refused';

export const RATE_LIMITED = 'rate_limited';
