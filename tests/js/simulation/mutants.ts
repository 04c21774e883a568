/** Faults of one line each, planted in a copy of the session's sources. */

/** The replacement of one fault. Its text occurs exactly once in the file. */
export interface Mutant {
  /** Path below `js/src`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
  /** No invariant detects it; its log differs from that of the session in Python. */
  readonly silent?: true;
}

/** The faults by description. */
export const MUTANTS: Readonly<Record<string, Mutant>> = {
  // ---------------------------------------------------------------- replays
  'a duplicate is delivered': {
    file: 'session/cursor.ts',
    from: "return 'known';",
    to: "return 'new';",
  },
  'a jump of positions is ignored': {
    file: 'session/cursor.ts',
    from: 'seq > mark._seq + 1) {',
    to: 'seq > mark._seq + 1e15) {',
  },
  'positions are not requested': {
    file: 'session/cursor.ts',
    from: 'after: after.size ? Object.fromEntries(after) : undefined',
    to: 'after: undefined',
  },
  'a topic that appears later is not replayed from its start': {
    file: 'session/cursor.ts',
    from: 'Math.max(0, began - this._overlap)',
    to: 'began + this._overlap',
  },
  'a restarted log causes no gap': {
    file: 'session/cursor.ts',
    from: 'for (const topic of answer.reset) {',
    to: 'for (const topic of []) {',
  },
  'a replay is delivered in reverse order': {
    file: 'session/cursor.ts',
    from: 'for (const message of history) take(message, true);',
    to: 'for (const message of [...history].reverse()) take(message, true);',
  },
  'missing messages are counted wrong': {
    file: 'session/cursor.ts',
    from: 'known ? last - mark._seq : undefined',
    to: 'known ? last - mark._seq + 1 : undefined',
  },
  'a mark does not move with the position in an answer': {
    file: 'session/cursor.ts',
    from: 'advance(topic, position, began, true);',
    to: '',
    silent: true,
  },
  'live messages are not held': {
    file: 'session/subscriptions.ts',
    from: 'held.push(message);',
    to: '',
  },
  'messages that could not be held are forgotten': {
    file: 'session/subscriptions.ts',
    from: 'replay.whole = false;',
    to: 'replay.whole = true;',
  },
  'a subscription stays live after a lost connection': {
    file: 'session/routes.ts',
    from: "this.phase = 'pending';",
    to: '',
  },
  'a pattern that others use is unsubscribed': {
    file: 'session/subscriptions.ts',
    from: 'patterns.filter((pattern) => !this.routes.byPattern.has(pattern))',
    to: 'patterns',
  },
  'a cached route is not updated': {
    file: 'session/routes.ts',
    from: 'this._wildcards.add(pattern);\n    }\n    this._known.clear();',
    to: 'this._wildcards.add(pattern);\n    }',
  },

  // ---------------------------------------------------------------- errors and parts
  'a temporarily denied subscription is not requested again': {
    file: 'session/subscriptions.ts',
    from: '!incremental || state.retryPending',
    to: '!incremental',
  },
  'a temporary denial is permanent': {
    file: 'session/subscriptions.ts',
    from: 'if (isRetryable(code)) {',
    to: 'if (false) {',
  },
  'a temporarily denied pattern is forgotten': {
    file: 'session/subscriptions.ts',
    from: 'this.retryLater(state);',
    to: '',
  },
  'messages of a temporarily denied pattern are delivered': {
    file: 'session/subscriptions.ts',
    from: 'this._unroute(state, [...later]);',
    to: '',
  },
  'a hole in a temporarily denied pattern is a gap': {
    file: 'session/subscriptions.ts',
    from: 'seq === undefined || this.routes.find(topic).includes(state)',
    to: 'true',
  },
  'the first frame of an answer counts as the whole': {
    file: 'session/subscriptions.ts',
    from: 'if (!frame.more) {',
    to: 'if (true) {',
  },
  'the last frame of an answer counts as the whole': {
    file: 'session/subscriptions.ts',
    from: 'both(before.history, frame.history)',
    to: '[...(frame.history ?? [])]',
  },

  // ---------------------------------------------------------------- publishes
  'publishes in flight are forgotten when the connection is lost': {
    file: 'session/publishes.ts',
    from: 'entry._doubted = true;\n      this._requeue(entry);',
    to: 'this._flight._delete(entry);',
  },
  'a repeated publish is sent after waiting ones': {
    file: 'session/fifo.ts',
    from: 'values.splice(place, 0, value);',
    to: 'values.push(value);',
  },
  'the end does not settle publishes': {
    file: 'session/publishes.ts',
    from: 'settleAll(unsent?: Rejected): void {',
    to: 'settleAll(unsent?: Rejected): void {\n    return;',
  },
  'the end does not settle updates of presence': {
    file: 'session/own_presence.ts',
    from: 'settleAll(error: Rejected): void {',
    to: 'settleAll(error: Rejected): void {\n    return;',
  },
  'an update that another replaces is not settled': {
    file: 'session/own_presence.ts',
    from: 'for (const [topic, refs] of waiting) this._wait(topic, refs);',
    to: '',
  },
  'the queue is not bounded': {
    file: 'session/publishes.ts',
    from: "if (policy === 'block' || this.hasRoom(publish, queue, replaced?._publish)) {",
    to: 'if (true) {',
    silent: true,
  },
  '`rate_limited` settles a publish': {
    file: 'session/publishes.ts',
    from: 'if (error?.code === RATE_LIMITED) {',
    to: 'if (false) {',
  },
  'a batch is repeated as a whole': {
    file: 'session/publishes.ts',
    from: 'if (!this._results[slot]) open',
    to: 'open',
  },
  'the oldest message is dropped from a queue that has room': {
    file: 'session/publishes.ts',
    from: 'while (!this.hasRoom(publish)) {',
    to: 'while (true) {',
    silent: true,
  },
  'the budget is never used up': {
    file: 'session/publishes.ts',
    from: 'this._spend(count);',
    to: '',
    silent: true,
  },

  // ---------------------------------------------------------------- presence
  'a member that left during an outage stays': {
    file: 'session/presence.ts',
    from: 'room.proven || isNamed ||',
    to: 'room._complete ||',
  },
  'a member that leaves stays': {
    file: 'session/presence.ts',
    from: 'room._members.delete(member.client_id);',
    to: '',
  },
  'a snapshot does not report who left': {
    file: 'session/presence.ts',
    from: 'if (!fresh.has(clientId) && !mayReturn)',
    to: 'if (false)',
  },
  'a later subscription does not receive known members': {
    file: 'session/presence.ts',
    from: 'of this._roomsOf(state._patterns)',
    to: 'of [] as Room[]',
  },
  'own presence is not sent again': {
    file: 'session/own_presence.ts',
    from: 'new Map(this._own._byTopic)',
    to: 'new Map()',
  },
  'a new update drops earlier keys': {
    file: 'session/own_presence.ts',
    from: '{ ...earlier, ...data }',
    to: '{ ...data }',
  },

  // ---------------------------------------------------------------- plain peers
  'known ids are delivered again': {
    file: 'dialects/plain/id_cursor.ts',
    from: "if (this._find(message)?._passed === false) return 'known';",
    to: '',
  },
  'a replay has no overlap before the mark': {
    file: 'dialects/plain/id_cursor.ts',
    from: 'mark - this._overlap',
    to: 'mark',
  },
  'a replay never begins before `since`': {
    file: 'dialects/plain/id_cursor.ts',
    from: 'Math.max(0, mark - this._overlap)',
    to: 'Math.max(0, mark - this._overlap, this._start ?? 0)',
  },
  'a gap with a plain peer is not reported': {
    file: 'dialects/plain/id_cursor.ts',
    from: 'if (answer._limit === undefined) steps.push(...this._holes(replay, passed));',
    to: '',
  },
  'a publish is sent again to a peer that cannot detect duplicates': {
    file: 'session/publishes.ts',
    from: 'if (peer && !peer.resends) this.settleAll();',
    to: '',
  },
  'an answer without a ref is not found': {
    file: 'dialects/plain/plain_dialect.ts',
    from: 'if (size === patterns.length) return state;',
    to: 'if (size === patterns.length) continue;',
  },

  // ---------------------------------------------------------------- lifecycle
  'a timer outlives the session': {
    file: 'session/lifecycle.ts',
    from: 'this._context.timers.stopAll();',
    to: '',
  },
  'the transport outlives the session': {
    file: 'session/lifecycle.ts',
    from: 'this._hangUp(NORMAL);',
    to: '',
  },
  'two callbacks at a time': {
    file: 'session/attempts.ts',
    from: 'if (this._call || (expiring && !options.renewable)) return;',
    to: 'if (expiring && !options.renewable) return;',
  },
  'the answer of another call is accepted': {
    file: 'session/attempts.ts',
    from: 'if (call !== this._call) return false;',
    to: '',
    silent: true,
  },
  'the token is not renewed before it ends': {
    file: 'session/attempts.ts',
    from: "timers.limit('refresh', options.renewable ? early : undefined);",
    to: '',
    silent: true,
  },
  'the counter of attempts never restarts': {
    file: 'session/lifecycle.ts',
    from: 'this._attempts._failed = this._attempts._outage = 0;',
    to: '',
    silent: true,
  },
};
