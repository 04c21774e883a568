/** Subscriptions with `types` or own presence: loaded with the first of them. */

import { DEVELOPMENT } from '../build.js';
import { checkType, invalid, kind, PATTERNS_MAX } from '../settings/checks.js';
import { isWildcard } from '../topics.js';
import type { JsonObject, Message } from '../values.js';
import { isObject, isSome, isText } from '../wire/guard.js';
import { checkData, inWords } from '../wire/payloads.js';
import type { Client } from './client.js';
import type { Filter, Inbox } from './inbox.js';
import type { Publisher } from './publisher.js';
import { rejected } from './rejected.js';

/** Maximum topics with a position while messages wait. */
const SKIPPED = 100_000;

/**
 * Check `types` and `presence` of a subscription, and let its inbox keep the types. When the server
 * has answered, set the presence of this client, and report a rejection.
 *
 * @param publisher Sets it for one topic.
 * @throws InvalidOption One of them is not valid; `field` names it.
 * @throws InvalidPayload The presence is not plain JSON.
 */
export function prepareInbox(
  { listeners, maxPayload }: Client,
  publisher: Publisher,
  inbox: Inbox,
  { types, presence }: { readonly types?: unknown; readonly presence?: unknown },
): void {
  if (types !== undefined) inbox.filter = new TypeFilter(checkTypes(types), inbox);
  if (typeof presence !== 'object') {
    if (DEVELOPMENT) checkType('presence', presence, 'boolean');
    return;
  }
  const own = checkOwn(presence, inbox.topics);
  checkData(own, maxPayload, undefined, 'presence');
  void inbox.answered.then(() => {
    if (inbox.finished) return;
    for (const topic of inbox.granted) {
      if (isWildcard(topic)) continue;
      void publisher.setPresence(topic, own).then((outcome) => {
        if (outcome.kind !== 'rejected' || outcome.code === 'closed') return;
        listeners.report(rejected(outcome, topic));
      });
    }
  });
}

/** Keeps messages of some types; others only move the positions, after the waiting messages. */
class TypeFilter implements Filter {
  private readonly _skipped = new Map<string, number>();

  constructor(
    private readonly _types: ReadonlySet<string>,
    private readonly _inbox: Inbox,
  ) {}

  skips({ type, topic, seq }: Message): boolean {
    if (this._types.has(type)) return false;
    const { _skipped } = this;
    if (seq !== undefined && (_skipped.has(topic) || _skipped.size < SKIPPED)) {
      _skipped.set(topic, seq);
    }
    this.taken();
    return true;
  }

  taken(): void {
    const { _skipped, _inbox } = this;
    if (!_skipped.size || !_inbox.empty) return;
    for (const [topic, seq] of _skipped) {
      if (seq > (_inbox.positions.get(topic) ?? -1)) _inbox._setPosition(topic, seq);
    }
    _skipped.clear();
  }
}

function checkTypes(types: unknown): ReadonlySet<string> {
  if (!isSome(types, PATTERNS_MAX, (type) => isText(type, 1, 128))) {
    if (!DEVELOPMENT) throw invalid('types');
    const problem = !Array.isArray(types)
      ? `is ${kind(types)}`
      : types.length
        ? types.length > PATTERNS_MAX
          ? `has ${inWords(types.length)} types; a subscription has at most ${inWords(PATTERNS_MAX)}`
          : 'contains something else'
        : 'is empty';
    throw invalid('types', problem, 'Pass 1 to 1,000 message types of 1 to 128 characters.');
  }
  return new Set(types as readonly string[]);
}

function checkOwn(presence: object | null, topics: readonly string[]): JsonObject {
  if (!isObject(presence)) {
    throw invalid(
      'presence',
      `is ${kind(presence)}`,
      'Pass true, false, or an object of what members see of this client.',
    );
  }
  if (topics.every(isWildcard)) {
    throw invalid(
      'presence',
      'is an object, and every topic has a wildcard',
      'Give a topic by its name: only its subscribers are members.',
    );
  }
  return presence;
}
