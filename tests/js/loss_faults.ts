/**
 * Faults that make the TypeScript client lose something after a failure, for `make statements`.
 * tests/interop/loss_faults.yaml contains those of Python.
 */

/** A change of a source, and the tests that must fail with it. */
export interface LossFault {
  /** What the faulty client does wrong. */
  readonly breaks: string;
  /** The file of the tests, below `tests/js`. */
  readonly file: string;
  readonly tests: readonly string[];
  /** The source to change. */
  readonly source: string;
  /** The text to replace, which occurs once in the source. */
  readonly text: string;
  readonly becomes: string;
}

export const FAULTS: readonly LossFault[] = [
  {
    breaks: 'An address that refuses HTTP, too, counts against WebSockets.',
    file: 'traces.test.ts',
    tests: ['no-event-stream-while-http-does-not-answer'],
    source: 'js/src/session/attempts.ts',
    text: 'if (!ok) this._failures = 0;',
    becomes: 'this._httpWorks = true;',
  },
  {
    breaks: 'A stream that is cut often is never replaced by a WebSocket.',
    file: 'traces.test.ts',
    tests: ['the-probe-interval-continues-while-a-stream-drops'],
    source: 'js/src/session/attempts.ts',
    text: " || timers.has('upgrade')) return;",
    becomes: ') return;',
  },
  {
    breaks: 'A client stops when it is replaced for the first time.',
    file: 'traces.test.ts',
    tests: ['replaced-once-is-retried'],
    source: 'js/src/session/lifecycle.ts',
    text: 'code === REPLACED && !this._replaced',
    becomes: 'false',
  },
  {
    breaks: 'A gap that no handler sees is not logged.',
    file: 'runtime/gaps.test.ts',
    tests: ['a gap that no handler sees is logged: what was missed, why, and what to do'],
    source: 'js/src/runtime/subscription.ts',
    text: 'if (seen || handled || stateLoader || onGap) return;',
    becomes: 'if (gap) return;',
  },
  {
    breaks: 'With `onGap: raise`, an iteration ignores gaps.',
    file: 'runtime/gaps.test.ts',
    tests: [
      'with `raise`, the iteration throws in the place of the gap, and can continue after it',
    ],
    source: 'js/src/runtime/subscription.ts',
    text: "if (onGap === 'raise') throw missed(gap);",
    becomes: "if (onGap === 'raise') return;",
  },
  {
    breaks: 'The next page is a new client that starts again.',
    file: 'runtime/recovery.test.ts',
    tests: ['the next page resumes the same client, after the messages that the last one received'],
    source: 'js/src/runtime/recovery.ts',
    text: '<= suspendAfter) this._kept = kept;',
    becomes: '<= suspendAfter) this._kept = undefined;',
  },
  {
    breaks: 'A user with two connections leaves with the first.',
    file: 'traces.test.ts',
    tests: ['a-user-leaves-with-the-last-connection'],
    source: 'js/src/session/presence.ts',
    text: "hasUser(room, member) ? 'disconnect' : 'leave'",
    becomes: "'leave'",
  },
  {
    breaks: 'The newest value of a key goes to the end of the queue.',
    file: 'traces.test.ts',
    tests: ['the-latest-of-a-key'],
    source: 'js/src/session/publishes.ts',
    text: 'const number = replaced?._number ?? this._number;',
    becomes: 'const number = this._number;',
  },
  {
    breaks: 'A client on an event stream keeps the id of its session, whichever id the stream has.',
    file: 'runtime/stream.test.ts',
    tests: ['an event stream returns the client id that others see'],
    source: 'js/src/transports/sse.ts',
    text: 'if (!this._greeting || !clientId || clientId === this._clientId) return;',
    becomes: 'return;',
  },
  {
    breaks: 'A refusal does not name its topic.',
    file: 'errors.test.ts',
    tests: ['a refusal names its topic'],
    source: 'js/src/errors.ts',
    text: "new.target.prototype.name === 'PermissionDenied'",
    becomes: 'false',
  },
  {
    breaks: 'A component does not show that the token is rejected.',
    file: 'react/topic_store.test.ts',
    tests: ['a token that the server refuses is shown as the error until the server accepts one'],
    source: 'js/src/react/topic_store.ts',
    text: "const stop = client.on('state', refresh);",
    becomes: 'const stop = (): void => {};',
  },
  {
    breaks: 'A component shows a topic as live while the connection is lost.',
    file: 'react/topic_store.test.ts',
    tests: ['a topic is joining while there is no connection, and live again with the next one'],
    source: 'js/src/react/topic_store.ts',
    text: "joined && client.state === 'connected'",
    becomes: 'joined',
  },
  {
    breaks: 'A request for more history than the server retains is not logged.',
    file: 'runtime/words.test.ts',
    tests: ['a request for more history than the server retains is logged once per subscription'],
    source: 'js/src/runtime/subscription.ts',
    text: 'if (history <= most) return;',
    becomes: 'if (history) return;',
  },
];
