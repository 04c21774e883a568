/**
 * Events and effects of a session as JSON, in the form of `spec/traces/` and of simulation logs.
 *
 * Undefined fields and counters of zero are omitted. A state change is `[from, to]`, a delivery is
 * the id of the message, and a member of a presence list is its client id.
 */

import { publicState } from '../../../js/src/generated/lifecycle.js';
import {
  isPublication,
  isServerFrame,
  type JsonObject,
  type Publication,
  type ServerFrame,
} from '../../../js/src/generated/wire.js';
import type { Outcome, Rejected, TimerName } from '../../../js/src/session/ports.js';
import type { Effect, Event } from './events.js';

/** An event of a trace. Its first key is its name; `at` and `idle` may follow. */
export type StepEvent = {
  readonly connect?: { readonly opened?: boolean };
  readonly answered?: { readonly ok: boolean };
  readonly offline?: unknown;
  readonly close?: { readonly wait?: number };
  readonly abort?: unknown;
  readonly token?: { readonly fetch: number; readonly value: string; readonly expires_in?: number };
  readonly token_failed?: {
    readonly fetch: number;
    readonly refused: boolean;
    readonly message: string;
  };
  readonly opened?: { readonly incremental: boolean };
  readonly dropped?: {
    readonly code: number | null;
    readonly reason: string;
    readonly retry_after?: number;
  };
  readonly probed?: { readonly ok: boolean };
  readonly woke?: unknown;
  readonly frame?: unknown;
  readonly messages?: readonly unknown[];
  readonly at?: number;
  readonly timer?: TimerName;
  readonly idle?: number;
  readonly subscribe?: {
    readonly sub: number;
    readonly topics: readonly string[];
    readonly since?: number;
    readonly history?: number;
    readonly after?: Readonly<Record<string, number>>;
    readonly presence?: boolean;
  };
  readonly unsubscribe?: number;
  readonly publish?: {
    readonly ref: number;
    readonly messages: readonly unknown[];
    readonly size: number;
    readonly policy?: 'error' | 'block' | 'drop_oldest' | 'latest';
    readonly key?: string;
    readonly batch?: boolean;
    readonly background?: boolean;
  };
  readonly expire?: number;
  readonly update_presence?: {
    readonly topic?: string;
    readonly data: JsonObject;
    readonly ref: number;
  };
};

/** The event of a step. */
export function readEvent(step: StepEvent): Event {
  const { token, token_failed, opened, dropped, probed, subscribe, publish } = step;
  if (step.connect) return { kind: 'connect', ...step.connect };
  if (step.answered) return { kind: 'answered', ...step.answered };
  if (step.offline) return { kind: 'offline' };
  if (step.close) return { kind: 'close', ...step.close };
  if (step.abort) return { kind: 'abort' };
  if (step.woke) return { kind: 'woke' };
  if (token) {
    return { kind: 'token', fetch: token.fetch, value: token.value, expiresIn: token.expires_in };
  }
  if (token_failed) return { kind: 'tokenFailed', ...token_failed };
  if (opened) return { kind: 'opened', ...opened };
  if (dropped) {
    const { code, reason, retry_after: retryAfter } = dropped;
    return { kind: 'dropped', code: code ?? undefined, reason, retryAfter };
  }
  if (probed) return { kind: 'probed', ...probed };
  if (step.frame) return { kind: 'received', frame: serverFrame(step.frame), at: step.at ?? 0 };
  if (step.messages) {
    const messages = step.messages.map((message) => serverFrame({ type: 'message', message }));
    return { kind: 'receivedMessages', messages };
  }
  if (step.timer) return { kind: 'timerFired', name: step.timer, idle: step.idle ?? 0 };
  if (subscribe) {
    const after = new Map(Object.entries(subscribe.after ?? {}));
    return { kind: 'subscribe', ...subscribe, after };
  }
  if (step.unsubscribe !== undefined) return { kind: 'unsubscribe', sub: step.unsubscribe };
  if (publish) {
    return { kind: 'publish', ...publish, messages: publish.messages.map(publication) };
  }
  if (step.expire !== undefined) return { kind: 'expire', ref: step.expire };
  if (step.update_presence) {
    return { kind: 'updatePresence', topic: undefined, ...step.update_presence };
  }
  throw new TypeError(`no event: ${JSON.stringify(step)}`);
}

function serverFrame(value: unknown): ServerFrame {
  if (!isServerFrame(value)) throw new TypeError(`no frame: ${JSON.stringify(value)}`);
  return value;
}

function publication(value: unknown): Publication {
  if (!isPublication(value)) throw new TypeError(`no publication: ${JSON.stringify(value)}`);
  return { type: 'message', ...value };
}

/** An effect as JSON. */
export function showEffect(effect: Effect): JsonObject {
  switch (effect.kind) {
    case 'stateChanged': {
      const { from, to, code, reason, retryIn: retry_in } = effect;
      if (effect.public !== publicState(to)) throw new Error(`${to} is shown as ${effect.public}`);
      return { state: [from, to], code, reason, retry_in, attempt: effect.attempt || undefined };
    }
    case 'fetch':
      return { fetch: effect.id, reason: effect.reason, attempt: effect.attempt };
    case 'abandonFetch':
      return { abandon_fetch: effect.id };
    case 'dial':
      return { dial: effect.transport };
    case 'hangUp':
      return { hang_up: effect.code };
    case 'send':
      return { send: effect.frame };
    case 'startTimer':
      return { start: effect.name, after: effect.after };
    case 'cancelTimer':
      return { cancel: effect.name };
    case 'probe':
      return { probe: {} };
    case 'probeHttp':
      return { probe_http: effect.auth };
    case 'deliver':
      return { deliver: effect.message.id, sub: effect.sub };
    case 'gap': {
      const { topic, sub, from, to, missed, reason } = effect;
      return { gap: topic, sub, from, to, missed, reason };
    }
    case 'joined': {
      const { topics, sub, denied } = effect;
      return { joined: topics, sub, denied: denied.length ? denied : undefined };
    }
    case 'presenceChanged': {
      const { topic, sub, change, member } = effect;
      const members = effect.members.map(({ client_id }) => client_id);
      return { presence: topic, sub, members, change, member };
    }
    case 'settle':
      return { settle: effect.ref, ...outcome(effect.outcome) };
    case 'problem': {
      const { code, message, topic } = effect;
      return { problem: code, message, topic };
    }
    case 'finished':
      return { finished: effect.error ? rejected(effect.error) : null };
  }
}

/** One line of JSON with sorted keys, so that equal values have equal bytes in every language. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) => {
    if (typeof one !== 'object' || one === null || Array.isArray(one)) return one;
    return Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}

function outcome(value: Outcome): JsonObject {
  switch (value.kind) {
    case 'acked':
      return {
        acked: value.results.map(({ id, timestamp, seq, duplicate, error }) => ({
          ...{ id, timestamp, seq, duplicate, error },
        })),
      };
    case 'rejected':
      return { rejected: rejected(value) };
    case 'unknown':
      return { unknown: {} };
  }
}

function rejected(error: Rejected): JsonObject {
  const { code, message, remedy, topic, retry_after_ms: retry_after } = error;
  return { code, message, remedy, topic, retry_after };
}
