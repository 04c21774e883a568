/** Faults of one line each, planted in a copy of the session's sources. */

/** What one fault replaces: text that the file holds exactly once. */
export interface Mutant {
  /** Below `js/src/session`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
  /** No invariant sees it: the log differs from that of the session in Python. */
  readonly silent?: true;
}

/** By what is wrong. */
export const MUTANTS: Readonly<Record<string, Mutant>> = {
  // ---------------------------------------------------------------- what is replayed
  'a duplicate is delivered': {
    file: 'cursor.ts',
    from: "return 'known';",
    to: "return 'new';",
  },
  'a jump is passed over': {
    file: 'cursor.ts',
    from: 'seq > mark._seq + 1) {',
    to: 'seq > mark._seq + 1e15) {',
  },
  'positions are not asked for': {
    file: 'cursor.ts',
    from: 'after: after.size ? Object.fromEntries(after) : undefined',
    to: 'after: undefined',
  },
  'a topic that comes later is replayed from now': {
    file: 'cursor.ts',
    from: 'Math.max(0, began - this._overlap)',
    to: 'began + this._overlap',
  },
  'a log that begins anew is no gap': {
    file: 'cursor.ts',
    from: 'for (const topic of new Set(replay.reset)) {',
    to: 'for (const topic of []) {',
  },
  'a replay is taken from its end': {
    file: 'cursor.ts',
    from: 'for (const message of history) take(message, true);',
    to: 'for (const message of [...history].reverse()) take(message, true);',
  },
  'what is missing is counted wrong': {
    file: 'cursor.ts',
    from: 'known ? last - mark._seq : undefined',
    to: 'known ? last - mark._seq + 1 : undefined',
  },
  'a mark does not move with the position that an answer names': {
    file: 'cursor.ts',
    from: 'for (const [topic, position] of pending) reach(topic, position);',
    to: '',
    silent: true,
  },
  'live messages are not held': {
    file: 'joins.ts',
    from: 'join._held.push(message);',
    to: '',
  },
  'what could not be held is forgotten': {
    file: 'joins.ts',
    from: 'join._whole = false;',
    to: 'join._whole = true;',
  },
  'a subscription stays live over a drop': {
    file: 'join.ts',
    from: "this._phase = 'pending';",
    to: '',
  },
  'a pattern that others have is given up': {
    file: 'joins.ts',
    from: '_patterns.filter((pattern) => !others.has(pattern))',
    to: '_patterns',
  },
  'a way that was found is not looked for again': {
    file: 'routes.ts',
    from: 'this._trie.insert(pattern, join);\n    this._known.clear();',
    to: 'this._trie.insert(pattern, join);',
  },

  // ---------------------------------------------------------------- refusals and parts
  'a subscription refused for now is not asked for again': {
    file: 'joins.ts',
    from: "_phase === 'pending' || _again",
    to: '_again',
  },
  'a refusal for now is one for good': {
    file: 'rare.ts',
    from: 'if (this._session._forNow(frame)) {',
    to: 'if (false) {',
  },
  'a pattern refused for now is forgotten': {
    file: 'rare.ts',
    from: 'join._again = true;',
    to: '',
  },
  'what comes beside a pattern refused for now is delivered': {
    file: 'rare.ts',
    from: 'joins._routes._remove(join, [...later]);',
    to: '',
  },
  'a hole of a pattern refused for now is a gap': {
    file: 'rare.ts',
    from: 'seq === undefined || joins._routes._find(topic).includes(join)',
    to: 'true',
  },
  'the first frame of an answer counts as all': {
    file: 'rare.ts',
    from: 'if (!frame.more) return whole;',
    to: 'return whole;',
  },
  'the last frame of an answer counts as all': {
    file: 'rare.ts',
    from: '(before.history ?? []).concat(frame.history ?? [])',
    to: '[...(frame.history ?? [])]',
  },

  // ---------------------------------------------------------------- publishes
  'in flight is forgotten on a drop': {
    file: 'outbox.ts',
    from: 'this._requeue(...this._flight);',
    to: 'this._flight.clear();',
  },
  'sent again after what waits': {
    file: 'outbox.ts',
    from: 'queue.sort((a, b) => a._number - b._number)',
    to: 'queue',
  },
  'the end settles nothing': {
    file: 'outbox.ts',
    from: 'settleAll(unsent: Rejected): void {',
    to: 'settleAll(unsent: Rejected): void {\n    return;',
  },
  'the queue has no bound': {
    file: 'outbox.ts',
    from: 'if (this.hasRoom(messages.length, size)) {',
    to: 'if (true) {',
    silent: true,
  },
  'rate limited is an answer': {
    file: 'rare.ts',
    from: 'if (error?.code === RATE_LIMITED) return',
    to: 'if (false) return',
  },
  'a batch is sent again whole': {
    file: 'rare.ts',
    from: 'filter(([slot]) => !_results[slot])',
    to: 'filter(() => true)',
  },
  'the oldest goes from a queue that has room': {
    file: 'rare.ts',
    from: "while (policy === 'drop_oldest' && !outbox.hasRoom(messages.length, size)) {",
    to: "while (policy === 'drop_oldest') {",
    silent: true,
  },
  'the budget is never used up': {
    file: 'outbox.ts',
    from: 'if (rate) this._budget = Math.max(this._budget - count * 1000, (burst - rate) * 1000);',
    to: '',
    silent: true,
  },

  // ---------------------------------------------------------------- presence
  'who left while nobody looked stays': {
    file: 'presence.ts',
    from: 'room.proven || (room.complete && named(topic))',
    to: 'room.complete',
  },
  'who leaves stays': {
    file: 'presence.ts',
    from: 'room.members.delete(member.client_id);',
    to: '',
  },
  'a snapshot does not say who left': {
    file: 'presence.ts',
    from: 'if (!fresh.has(clientId)) out',
    to: 'if (false) out',
  },
  'who comes later is not told what others know': {
    file: 'presence.ts',
    from: 'if (join._takes(topic)) this._tellOne(join, change);',
    to: '',
  },
  'what was said is not said again': {
    file: 'saying.ts',
    from: 'for (const [topic, data] of this._own.items()) this._later.update(topic, data);',
    to: '',
  },
  'the last word is the only one': {
    file: 'saying.ts',
    from: '{ ...said, ...data }',
    to: '{ ...data }',
  },

  // ---------------------------------------------------------------- plain peers
  'known ids are delivered again': {
    file: 'plain/id_cursor.ts',
    from: "if (this._near.get(message.topic)?.has(message.id)) return 'known';",
    to: '',
  },
  'nothing before the mark is asked for': {
    file: 'plain/id_cursor.ts',
    from: 'newest - this._overlap, this._start ?? 0',
    to: 'newest, this._start ?? 0',
  },
  'a plain gap is kept secret': {
    file: 'plain/id_cursor.ts',
    from: 'steps.push(...this._holes(replay, since ?? 0));',
    to: '',
  },
  'sent again to one who cannot tell': {
    file: 'plain/peers.ts',
    from: "if (entry._sent) outbox._settle(entry, { kind: 'unknown' });",
    to: '',
  },
  'an answer without a ref is not found': {
    file: 'plain/peers.ts',
    from: 'const ref = (whole ?? part)?.[0];',
    to: 'const ref = part?.[0];',
  },

  // ---------------------------------------------------------------- the life of a session
  'a timer outlives the session': {
    file: 'lifecycle.ts',
    from: 'this._stop(...this._timers);',
    to: '',
  },
  'the transport outlives the session': {
    file: 'lifecycle.ts',
    from: "this._tell({ kind: 'hangUp', code: FINAL.has(this.state) ? NORMAL : RECONNECTS });",
    to: '',
  },
  'two callbacks at a time': {
    file: 'lifecycle.ts',
    from: 'if (this._call || (expiring && this.cannotRenew())) return;',
    to: 'if (expiring && this.cannotRenew()) return;',
  },
  'an answer to another call is taken': {
    file: 'session.ts',
    from: 'if (event.fetch === this._call) {',
    to: 'if (true) {',
    silent: true,
  },
  'the token is not renewed before it ends': {
    file: 'lifecycle.ts',
    from: "this._restart('refresh', early);",
    to: '',
    silent: true,
  },
  'attempts are counted from the first for ever': {
    file: 'lifecycle.ts',
    from: 'this._attempt = this._apart = 0;\n    if',
    to: 'if',
    silent: true,
  },
};
