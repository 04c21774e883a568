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
  'a jump is passed over': {
    file: 'session/cursor.ts',
    from: 'seq > mark._seq + 1) {',
    to: 'seq > mark._seq + 1e15) {',
  },
  'positions are not asked for': {
    file: 'session/cursor.ts',
    from: 'after: after.size ? Object.fromEntries(after) : undefined',
    to: 'after: undefined',
  },
  'a topic that comes later is replayed from now': {
    file: 'session/cursor.ts',
    from: 'Math.max(0, began - this._overlap)',
    to: 'began + this._overlap',
  },
  'a log that begins anew is no gap': {
    file: 'session/cursor.ts',
    from: 'for (const topic of new Set(replay.reset)) {',
    to: 'for (const topic of []) {',
  },
  'a replay is taken from its end': {
    file: 'session/cursor.ts',
    from: 'for (const message of history) take(message, true);',
    to: 'for (const message of [...history].reverse()) take(message, true);',
  },
  'what is missing is counted wrong': {
    file: 'session/cursor.ts',
    from: 'known ? last - mark._seq : undefined',
    to: 'known ? last - mark._seq + 1 : undefined',
  },
  'a mark does not move with the position that an answer names': {
    file: 'session/cursor.ts',
    from: 'for (const [topic, position] of pending) reach(topic, position);',
    to: '',
    silent: true,
  },
  'live messages are not held': {
    file: 'session/subscriptions.ts',
    from: 'one.held.push(message);',
    to: '',
  },
  'what could not be held is forgotten': {
    file: 'session/subscriptions.ts',
    from: 'one.whole = false;',
    to: 'one.whole = true;',
  },
  'a subscription stays live over a drop': {
    file: 'session/subscription_state.ts',
    from: "this.phase = 'pending';",
    to: '',
  },
  'a pattern that others have is given up': {
    file: 'session/subscriptions.ts',
    from: 'patterns.filter((pattern) => !others.has(pattern))',
    to: 'patterns',
  },
  'a way that was found is not looked for again': {
    file: 'session/routes.ts',
    from: 'add(one));\n    }\n    this.known.clear();',
    to: 'add(one));\n    }',
  },

  // ---------------------------------------------------------------- errors and parts
  'a subscription refused for now is not asked for again': {
    file: 'session/subscriptions.ts',
    from: "phase === 'pending' || again",
    to: 'again',
  },
  'a refusal for now is one for good': {
    file: 'session/subscriptions.ts',
    from: 'if (forNow({ code })) {',
    to: 'if (false) {',
  },
  'a pattern refused for now is forgotten': {
    file: 'session/subscriptions.ts',
    from: 'this.doubt(one);',
    to: '',
  },
  'what comes beside a pattern refused for now is delivered': {
    file: 'session/subscriptions.ts',
    from: 'this.routes.remove(one, [...later]);',
    to: '',
  },
  'a hole of a pattern refused for now is a gap': {
    file: 'session/subscriptions.ts',
    from: 'seq === undefined || this.routes.find(topic).includes(one)',
    to: 'true',
  },
  'the first frame of an answer counts as all': {
    file: 'session/subscriptions.ts',
    from: 'if (!frame.more) return whole;',
    to: 'return whole;',
  },
  'the last frame of an answer counts as all': {
    file: 'session/subscriptions.ts',
    from: '(before.history ?? []).concat(frame.history ?? [])',
    to: '[...(frame.history ?? [])]',
  },

  // ---------------------------------------------------------------- publishes
  'in flight is forgotten on a drop': {
    file: 'session/publishes.ts',
    from: 'this._requeue(flight);',
    to: 'for (const entry of flight) this._flight._delete(entry);',
  },
  'sent again after what waits': {
    file: 'session/publishes.ts',
    from: '.sort((a, b) => a._number - b._number)',
    to: '',
  },
  'the end settles nothing': {
    file: 'session/publishes.ts',
    from: 'settleAll(unsent: Rejected): void {',
    to: 'settleAll(unsent: Rejected): void {\n    return;',
  },
  'the queue has no bound': {
    file: 'session/publishes.ts',
    from: 'if (this.hasRoom(messages.length, size)) {',
    to: 'if (true) {',
    silent: true,
  },
  'rate limited is an answer': {
    file: 'session/batches.ts',
    from: 'if (error?.code === RATE_LIMITED) return',
    to: 'if (false) return',
  },
  'a batch is sent again whole': {
    file: 'session/publishes.ts',
    from: 'filter(([slot]) => !_results[slot])',
    to: 'filter(() => true)',
  },
  'the oldest goes from a queue that has room': {
    file: 'session/send_policies.ts',
    from: "while (policy === 'drop_oldest' && !publishes.hasRoom(messages.length, size)) {",
    to: "while (policy === 'drop_oldest') {",
    silent: true,
  },
  'the budget is never used up': {
    file: 'session/publishes.ts',
    from: 'if (rate) this._budget = Math.max(this._budget - count * 1000, (burst - rate) * 1000);',
    to: '',
    silent: true,
  },

  // ---------------------------------------------------------------- presence
  'who left while nobody looked stays': {
    file: 'session/members.ts',
    from: 'room.proven || (room.complete && named(topic))',
    to: 'room.complete',
  },
  'who leaves stays': {
    file: 'session/members.ts',
    from: 'room.members.delete(member.client_id);',
    to: '',
  },
  'a snapshot does not say who left': {
    file: 'session/members.ts',
    from: 'if (!fresh.has(clientId) && !mayReturn) out',
    to: 'if (false) out',
  },
  'who comes later is not told what others know': {
    file: 'session/presence.ts',
    from: 'if (one.takes(topic)) this._showOne(one, change);',
    to: '',
  },
  'own presence is not sent again': {
    file: 'session/own_presence.ts',
    from: 'for (const [topic, data] of this._own.items()) this._later.update(topic, data);',
    to: '',
  },
  'the newest key is the only one': {
    file: 'session/own_presence.ts',
    from: '{ ...said, ...data }',
    to: '{ ...data }',
  },

  // ---------------------------------------------------------------- plain peers
  'known ids are delivered again': {
    file: 'dialects/plain/id_cursor.ts',
    from: "if (this._near.get(message.topic)?.has(message.id)) return 'known';",
    to: '',
  },
  'nothing before the mark is asked for': {
    file: 'dialects/plain/id_cursor.ts',
    from: 'newest - this._overlap, this._start ?? 0',
    to: 'newest, this._start ?? 0',
  },
  'a plain gap is kept secret': {
    file: 'dialects/plain/id_cursor.ts',
    from: 'steps.push(...this._holes(replay, since ?? 0));',
    to: '',
  },
  'sent again to one who cannot tell': {
    file: 'session/publishes.ts',
    from: "if (entry._sent) this._settle(entry, { kind: 'unknown' });",
    to: '',
  },
  'an answer without a ref is not found': {
    file: 'dialects/plain/plain_dialect.ts',
    from: 'return (whole ?? part)?.[0];',
    to: 'return part?.[0];',
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
    file: 'session/credentials.ts',
    from: 'if (this._call || (expiring && !options.renewable)) return;',
    to: 'if (expiring && !options.renewable) return;',
  },
  'an answer to another call is taken': {
    file: 'session/credentials.ts',
    from: 'if (call !== this._call) return false;',
    to: '',
    silent: true,
  },
  'the token is not renewed before it ends': {
    file: 'session/credentials.ts',
    from: "timers.limit('refresh', options.renewable ? early : undefined);",
    to: '',
    silent: true,
  },
  'attempts are counted from the first for ever': {
    file: 'session/lifecycle.ts',
    from: 'this._attempts._failed = this._attempts._outage = 0;',
    to: '',
    silent: true,
  },
};
