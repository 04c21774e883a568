/** An error of the server, as frames and HTTP responses represent it. */

import { compact } from '../compact.js';
import { CODES } from '../generated/errors.js';
import type { ErrorInfo } from '../generated/wire.js';

/** Details of an error in addition to its message. */
export interface ProblemDetails {
  readonly topic?: string | undefined;
  readonly field?: string | undefined;
  /** Default: the remedy of the code. */
  readonly remedy?: string | undefined;
  /** Milliseconds. */
  readonly retryAfter?: number | undefined;
}

/** An error that the server answers with. */
export class Problem extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly details: ProblemDetails = {},
  ) {
    super(message);
  }

  /** The fields of the error in frames and results. */
  get info(): ErrorInfo {
    const { code, message, details } = this;
    return compact<ErrorInfo>({
      code,
      message,
      remedy: details.remedy ?? CODES.get(code)?.remedy,
      topic: details.topic,
      field: details.field,
      retry_after_ms: details.retryAfter,
    });
  }

  /** The close code of a connection that this error ends (`close` of spec/errors.yaml). */
  get close(): number {
    return this.code === 'replaced' ? 4409 : (CODES.get(this.code)?.close ?? 4401);
  }
}

/** HTTP status by code (`status` of spec/errors.yaml); 400 for every other code. */
const STATUSES: Readonly<Record<string, number>> = {
  invalid_payload: 422,
  payload_too_large: 413,
  unauthenticated: 401,
  token_invalid: 401,
  token_expired: 401,
  forbidden: 403,
  not_found: 404,
  conflict: 409,
  rate_limited: 429,
  connection_limit: 429,
  subscription_limit: 429,
  unavailable: 503,
  going_away: 503,
  internal: 500,
};

/** The HTTP response of an error (RFC 9457). */
export function problemResponse(problem: Problem): Response {
  const { message: detail, ...info } = problem.info;
  const status = STATUSES[problem.code] ?? 400;
  const { retryAfter } = problem.details;
  const type = `urn:hanzo:pubsub:error:${problem.code}`;
  const body = { ...info, type, title: problem.code, status, detail };
  const headers = new Headers({ 'Content-Type': 'application/problem+json' });
  if (retryAfter !== undefined) headers.set('Retry-After', String(Math.ceil(retryAfter / 1000)));
  return new Response(JSON.stringify(body), { status, headers });
}
