/** Faults of one line each in the parts of a session. A trace detects each. */

/** The replacement of one fault. Its text occurs exactly once in the file. */
export interface Fault {
  /** Path below `js/src/session`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

const replaced = (file: string, from: string, to = ''): Fault => ({ file, from, to });

/** The faults by description. */
export const FAULTS: Readonly<Record<string, Fault>> = {
  // ---------------------------------------------------------------- members
  'members that a snapshot does not name stay': replaced(
    'presence.ts',
    'if (room.doubted) {',
    'if (false) {',
  ),
  'a snapshot settles members that the server has forgotten': replaced(
    'presence.ts',
    'room.doubted &&= known;',
  ),
  'members that no snapshot confirms stay': replaced(
    'presence.ts',
    'if (found) this._awaitMembers();',
  ),
  // ---------------------------------------------------------------- cursor
  'a position that a node has confirmed is requested from the next one': replaced(
    'cursor.ts',
    'mark._at ||= time;',
  ),
  'the rest of a millisecond that an answer cut off is not requested': replaced(
    'cursor.ts',
    'this._behind = answer.more ? 1 : 0;',
  ),
  // ---------------------------------------------------------------- attempts
  'the wait that the server asks for is ignored': replaced(
    'attempts.ts',
    'Math.min(MAX_RETRY_AFTER, Math.max(retryAfter, this._requestedWait))',
    '0',
  ),
  'a wait that the server asks for has no maximum': replaced(
    'attempts.ts',
    'Math.min(MAX_RETRY_AFTER, ',
    'Math.max(',
  ),
  'a wait does not double': replaced('attempts.ts', '* 2 ** attempt', ''),
  'the outage is forgotten': replaced('attempts.ts', 'this._outage += this._wait;'),
  'a timed-out opening does not count as outage': replaced(
    'lifecycle.ts',
    "if (timer === 'open') this._attempts._outage += this._context.options.openTimeout;",
  ),
  'an unsettled publish does not shorten the waits': replaced(
    'attempts.ts',
    'unsettled ? 0 : ',
    '',
  ),
  'a call of the program shortens any wait': replaced(
    'attempts.ts',
    'this._canShorten = this._wait > this._minimum;',
    'this._canShorten = true;',
  ),
  'a call of the program never shortens a wait': replaced(
    'attempts.ts',
    'this._canShorten = this._wait > this._minimum;',
  ),
  'a call counts for the next wait': replaced(
    'attempts.ts',
    'this._shortenLater = false;\n    this',
    'this',
  ),

  // ---------------------------------------------------------------- credentials
  'each notice causes a call': replaced('attempts.ts', 'if (wait) {', 'if (false) {'),
  'a fixed token is requested again': replaced(
    'attempts.ts',
    'if (this._call || (expiring && !options.renewable)) return;',
    'if (this._call) return;',
  ),
  'the callback does not receive the reason `rejected`': replaced(
    'attempts.ts',
    "this._rejected ? 'rejected' : ",
    '',
  ),
  'a call that timed out is no failure': replaced(
    'attempts.ts',
    'this._failed += 1;\n    this._context',
    'this._context',
  ),
  'failures are never forgotten': replaced('attempts.ts', 'this._failed = 0;\n    this', 'this'),
  'a token never ends': replaced('attempts.ts', "timers.limit('expiry', left);"),
  'a token of the callback never ends': replaced(
    'attempts.ts',
    "this._context.timers.limit('expiry', life);",
  ),
  'a token is renewed a fifth before its end at most': replaced(
    'attempts.ts',
    'life - options.refreshMargin',
    '0',
  ),
  'a short token is renewed too early': replaced('attempts.ts', 'Math.floor((life * 4) / 5)', '1'),
  'a forgotten token keeps its life': replaced('attempts.ts', 'this._life = undefined;'),

  // ---------------------------------------------------------------- choice of transport
  'one failure brings the stream': replaced(
    'attempts.ts',
    'this._failures < (this._hasOpened ? shortLife : fallbackFailures)',
    'false',
  ),
  'a WebSocket that worked needs no more proof': replaced(
    'attempts.ts',
    'this._hasOpened ? shortLife : fallbackFailures',
    'fallbackFailures',
  ),
  'the stream comes without an answer': replaced('attempts.ts', '!httpWorks || ', ''),
  'an address that is down counts': replaced('attempts.ts', 'if (!ok) this._failures = 0;'),
  'a program that wants the stream loses it': replaced(
    'attempts.ts',
    "if (options.transport === 'auto') this._name",
    'this._name',
  ),
  'the next WebSocket is proven again': replaced(
    'attempts.ts',
    'this._failures = this._context.options.fallbackFailures;',
  ),
  'probes do not become rare': replaced('attempts.ts', '* 2 ** this._probes', ''),
  'an old failure counts': replaced('attempts.ts', 'this._failures = this._probes = 0;'),

  // ---------------------------------------------------------------- timers, causes, the server
  'a timer may be too long': replaced('ports.ts', ' && after <= MAX_TIMER', ''),
  'a stopped timer fires': replaced('ports.ts', 'if (this._running.delete(name)) this', 'this'),
  'every end is attributed to a proxy': replaced(
    'events.ts',
    'retry_after_ms === undefined && UNEXPLAINED.includes(code)',
    'true',
  ),
  'an error that ends the connection is not recognized': replaced(
    'events.ts',
    'ref === undefined && CODES.get(code)?.close !== undefined',
    'false',
  ),
  'a close code has no name': replaced('events.ts', 'close === given', 'false'),
  'the expiry of a token is read with the wrong clock': replaced(
    'operations.ts',
    'end - now',
    'end',
  ),
  'the publish budget leaves no reserve': replaced(
    'operations.ts',
    'burst: rate - ',
    'burst: rate - 0 * ',
  ),

  // ---------------------------------------------------------------- lifecycle and session
  'a silent stream is kept': replaced(
    'lifecycle.ts',
    '!this.operations?.subscriptions.all.size || idle < this._pongLimit + pingInterval',
    'true',
  ),
  'a check takes as long as a ping': replaced(
    'lifecycle.ts',
    'this._pongLimit = this._context.options.checkTimeout;',
  ),
  'a useful connection counts as short': replaced(
    'lifecycle.ts',
    'if (this._useful) return;\n    if (choice',
    'if (choice',
  ),
  'two HTTP probes run at once': replaced('lifecycle.ts', 'choice._isProbingHttp || ', ''),
  'a long client id is sent back': replaced('lifecycle.ts', '.slice(0, 64)', ''),
  'a token does not expire during sleep': replaced('lifecycle.ts', 'this._forgetToken({});'),
  'a suspended session forgets its outage': replaced(
    'lifecycle.ts',
    'this._attempts._outage = Math.max(this._attempts._outage, this._context.options.suspendAfter);',
  ),
  'a session that ends reports that it will reconnect': replaced(
    'lifecycle.ts',
    'const NORMAL = 1000;',
    'const NORMAL = 4000;',
  ),
  'the final error has no remedy': replaced('lifecycle.ts', 'message, remedy });', 'message });'),
  'a closed session subscribes': replaced(
    'operations.ts',
    'if (this._session.lifecycle._draining) {\n      const',
    'if (false) {\n      const',
  ),
  'closing does not wait for publishes': replaced(
    'session.ts',
    'table.onDrained(lifecycle, {});',
    ';',
  ),
  'an early call is forgotten': replaced(
    'session.ts',
    'lifecycle._attempts._shortenLater',
    'false',
  ),
  'an error during authentication is treated as any other': replaced(
    'session.ts',
    "lifecycle.state === 'authenticating' && actionOf(frame) !== 'retry'",
    'false',
  ),
  'an event stream counts as a WebSocket': replaced(
    'session.ts',
    'lifecycle._hasPings = incremental;',
  ),
  'the wait in an error before the end is forgotten': replaced(
    'session.ts',
    'lifecycle._attempts._requestedWait = frame.retry_after_ms ?? 0',
    'undefined',
  ),
  'a `rate_limited` without a ref does not pause': replaced(
    'operations.ts',
    'frame.code === RATE_LIMITED && this._session.context.peer',
    'false',
  ),

  // ---------------------------------------------------------------- replays
  'a held message is taken again by a later part of an answer': replaced(
    'cursor.ts',
    'replay.held = replay.held.filter(',
    'void replay.held.filter(',
  ),

  // ---------------------------------------------------------------- publishes
  'the policy `block` refuses publishes': replaced('publishes.ts', "policy === 'block' || "),
  'a pause has no maximum': replaced(
    'publishes.ts',
    'Math.min(MAX_PAUSE, milliseconds || PAUSE)',
    'milliseconds || PAUSE',
  ),
  'a pause keeps the budget': replaced('publishes.ts', 'this._spend(Infinity);'),
  'the budget grows beyond the burst': replaced(
    'publishes.ts',
    'Math.max(least, this._spent - (peer as Peer).rate * paceInterval)',
    'this._spent - (peer as Peer).rate * paceInterval',
  ),
  'publishes in flight do not use up the budget of a stalled connection': replaced(
    'publishes.ts',
    'this._silence > STALL ? uncounted * 1000 : 0',
    '0',
  ),
  'publishes in flight use up the budget at once': replaced(
    'publishes.ts',
    'this._silence > STALL ? uncounted * 1000 : 0',
    'uncounted * 1000',
  ),
  'an answer does not end a stall': replaced(
    'publishes.ts',
    'this._silence = this._abandoned = 0;',
    'this._abandoned = 0;',
  ),
  'publishes that a stalled server reads late count again and again': replaced(
    'publishes.ts',
    'this._silence = this._abandoned = 0;',
    'this._silence = 0;',
  ),
  'publishes given up do not use up the budget of a stalled connection': replaced(
    'publishes.ts',
    'this._flight._messages + this._abandoned',
    'this._flight._messages',
  ),
  'updates of presence do not count against the rate': replaced('publishes.ts', 'this._spend(1);'),
  'updates of presence keep publishes waiting': replaced('publishes.ts', 'isTheirs || '),
  'publishes keep updates of presence waiting': replaced(
    'publishes.ts',
    'entry._sent = this._sentLast = true;',
    'entry._sent = true;',
  ),
  'updates of presence wait for publishes that wait for acknowledgements': replaced(
    'publishes.ts',
    '!this._sentLast && left <= this._queue._messages * 1000',
    'this._queue._messages && !this._sentLast',
  ),
  'updates of presence stay when the publish before them gives up': replaced(
    'operations.ts',
    'this.publishes.expire(refs);\n    this.ownPresence.expire(refs);',
    'this.publishes.expire(refs);',
  ),
  'an update whose call has ended is rejected in silence': replaced(
    'own_presence.ts',
    'settled.length > 0',
    'true',
  ),
  'a call of an update ends twice': replaced(
    'own_presence.ts',
    'refs.filter((ref) => this._calls.delete(ref))',
    '[...refs]',
  ),
  'an error does not end a stall': replaced(
    'operations.ts',
    'publishes.heard();\n    if (subscriptions',
    'if (subscriptions',
  ),
  'publishes in flight are not bounded': replaced(
    'publishes.ts',
    'if (!this.hasRoom(entry._publish, this._flight)) break;',
  ),
  'an expired publish is sent': replaced(
    'publishes.ts',
    "if (entry) this._giveUp(entry, 'timeout', 'It could not be sent in time.');",
  ),
  'a rejected publish that was sent before is rejected, not unknown': replaced(
    'publishes.ts',
    'entry._sent = entry._doubted || left < _publish.messages.length;',
    'entry._sent = false;',
  ),
};
