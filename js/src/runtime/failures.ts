/** Why an operation failed: the errors of calls. */

import { DEVELOPMENT } from '../build.js';
import {
  type CodedDetails,
  ConnectionFailed,
  fromCode,
  OperationTimeout,
  type PubSubError,
} from '../errors.js';
import { CODES } from '../generated/errors.js';
import type { Publication } from '../generated/wire.js';
import { remedyOf } from '../http/remedies.js';
import { TIMEOUTS } from '../session/events.js';
import type { Rejected, Subscribe, Unknown } from '../session/ports.js';
import type { Client } from './environment.js';
import { rejected } from './rejected.js';
import type { Timed } from './waiting.js';

const LATE = 'No answer arrived in time. The message may have been published.';

/** The error class for the last failure. */
export function notConnected(
  client: Client,
  { timeout }: Timed,
  given: CodedDetails = {},
): PubSubError {
  const { lastFailure, tokenFailure } = client;
  const about = DEVELOPMENT ? { ...given, ...likelyRemedy(client) } : given;
  const message = `Not connected within ${timeout} ms: ${reasonOf(client)}`;
  const code = String(lastFailure?.code);
  if (code === tokenFailure?.code) {
    return fromCode(code, message, { ...about, cause: tokenFailure.cause });
  }
  const remedy = about.code || code === 'timeout' ? undefined : CODES.get(code)?.remedy;
  return new ConnectionFailed(message, { remedy, ...about });
}

/** The state, the duration of the outage, and the last failure, in words. */
function describeState(client: Client): string {
  const { disconnectedSince, clock, lastFailure, state } = client;
  const time = Math.round(clock.now() - disconnectedSince);
  const outage = state === 'connected' ? '' : `, no connection for ${time} ms`;
  const why = lastFailure ? ` Last failure: ${reasonOf(client)}` : '';
  return `State: ${state}${outage}.${why}`;
}

/** The errors of messages that were not accepted. */
export function failed(
  client: Client,
  items: readonly { readonly _message: Publication }[],
  { timeout, end }: Timed,
  outcome: Rejected | Unknown,
): PubSubError[] {
  const isLate = client.clock.now() >= end;
  const unsent = (): string => {
    if (!DEVELOPMENT) return `Not sent within ${timeout} ms: ${reasonOf(client)}`;
    const rate = client.state === 'connected' && client.peer?.rate;
    return (
      `The message could not be sent within ${timeout} ms. ${describeState(client)}` +
      (rate ? ` The client limits publishes to ${rate} per second, the limit of the server.` : '')
    );
  };
  return items.map(({ _message: { topic, id } }) => {
    if (outcome.kind === 'rejected') {
      const message = outcome.code === 'timeout' ? unsent() : outcome.message;
      return rejected(
        {
          ...outcome,
          message,
          ...(DEVELOPMENT && outcome.code === 'timeout' && lastRemedy(client)),
        },
        topic,
        id,
      );
    }
    const code = isLate ? 'timeout' : 'outcome_unknown';
    const about = { code, topic, id, outcomeUnknown: true };
    return new OperationTimeout(DEVELOPMENT && isLate ? LATE : undefined, about);
  });
}

/** An update of presence without an answer. */
export function unansweredUpdate(
  client: Client,
  options: Timed,
  topic: string | undefined,
): PubSubError {
  if (client.state !== 'connected') {
    return notConnected(client, options, { code: 'not_connected', topic });
  }
  return new OperationTimeout(
    DEVELOPMENT
      ? `The server did not answer the update of presence within ${options.timeout} ms. ${describeState(client)}`
      : undefined,
    {
      topic,
      outcomeUnknown: true,
      remedy: 'No action is needed: the client sends the update again until it is answered.',
    },
  );
}

/** The text about a subscription without an answer, and whether it stays active. */
export function late(
  client: Client,
  { timeout }: Timed,
  { sub, topics }: Subscribe,
  stays: boolean,
): OperationTimeout {
  return new OperationTimeout(
    DEVELOPMENT
      ? `The server ${problemOf(client, sub, timeout)}` +
          `${stays ? '; it stays active and may still be answered' : ''}. ${describeState(client)}`
      : undefined,
    {
      topic: topics[0],
      outcomeUnknown: stays,
      remedy: 'Try again, or wait longer; `hanzo-pubsub doctor` finds the first cause.',
      ...(DEVELOPMENT && lastRemedy(client)),
    },
  );
}

function problemOf({ session, tokens }: Client, sub: number, timeout: number): string {
  const refusal = session.operations.subscriptions.all.get(sub)?.refusal;
  if (!refusal) return `did not answer the subscription within ${timeout} ms`;
  const { code, message } = refusal;
  const why = tokens._redacted(message || code).replace(/\.$/, '');
  return `rejected the subscription for now: ${why} (${code})`;
}

/** The remedy for the likely cause of the last failure, if there is one. */
function likelyRemedy({ lastFailure, tokenFailure }: Client): { readonly remedy?: string } {
  const { code, reason } = lastFailure ?? {};
  if (reason === TIMEOUTS.fetch?.message)
    return { remedy: 'Let `getToken` return within `fetchTimeout`, 10 s by default.' };
  if (tokenFailure && code === tokenFailure.code) return { remedy: tokenFailure.remedy };
  const remedy = remedyOf(reason);
  return remedy ? { remedy } : {};
}

/** The remedy of the last failure, if there is one. */
export function lastRemedy(client: Client): { readonly remedy?: string } {
  const { lastFailure } = client;
  if (!lastFailure) return {};
  const { code = 1006 } = lastFailure;
  const isLost = code === 1006 || code === 'timeout';
  const known = CODES.get(isLost ? 'connection_failed' : String(code));
  return { ...(known && { remedy: known.remedy }), ...likelyRemedy(client) };
}

/** The reason why a client is not connected, in words. */
export function reasonOf({ lastFailure, state, tokens }: Client): string {
  if (!lastFailure && !tokens.last) return '`getToken` has not returned.';
  const { code = 1006, reason = '', to = state } = lastFailure ?? {};
  const problem = reason.replace(/\.$/, '') || `the state is ${to}`;
  return `${problem}${code === 1006 ? '' : ` (${code})`}.`;
}
