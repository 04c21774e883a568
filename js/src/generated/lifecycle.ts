// Generated from spec/lifecycle.yaml by `make generate`; do not edit.

/** Where a session stands, as the table sees it. */
export type State =
  | 'initialized'
  | 'resolving'
  | 'dialing'
  | 'authenticating'
  | 'connected'
  | 'waiting'
  | 'suspended'
  | 'closing'
  | 'closed'
  | 'failed';

/** Where a session stands, as users see it. */
export type PublicState =
  | 'initialized'
  | 'connecting'
  | 'authenticating'
  | 'connected'
  | 'reconnecting'
  | 'suspended'
  | 'closing'
  | 'closed'
  | 'failed';

/** What may happen to a session. */
export type Event =
  | 'connect'
  | 'close'
  | 'abort'
  | 'token'
  | 'token_failed'
  | 'opened'
  | 'dropped'
  | 'probed'
  | 'woke'
  | 'auth.ok'
  | 'auth.error'
  | 'auth.expiring'
  | 'pong'
  | 'drained'
  | 'fetch_timeout'
  | 'open_timeout'
  | 'ping_due'
  | 'pong_timeout'
  | 'retry_due'
  | 'refresh_due'
  | 'token_expired'
  | 'stable_due'
  | 'suspend_due'
  | 'fallback_due'
  | 'upgrade_due'
  | 'drain_timeout';

/** The timers of a session. */
export type Timer =
  | 'fetch'
  | 'open'
  | 'ping'
  | 'pong'
  | 'retry'
  | 'refresh'
  | 'expiry'
  | 'stable'
  | 'suspend'
  | 'fallback'
  | 'upgrade'
  | 'drain';

/** Questions that a row asks. */
export type Guard =
  | 'authClose'
  | 'authFault'
  | 'cannotRenew'
  | 'draining'
  | 'finalClose'
  | 'finalError'
  | 'hasToken'
  | 'heard'
  | 'mayFallBack'
  | 'overdue'
  | 'reachable'
  | 'refused'
  | 'unsettled';

/** Steps that a row takes. */
export type Action =
  | 'abandonFetch'
  | 'accept'
  | 'countFailure'
  | 'countShortLife'
  | 'dial'
  | 'fail'
  | 'fetchToken'
  | 'finish'
  | 'flush'
  | 'forgetToken'
  | 'hangUp'
  | 'keepToken'
  | 'leave'
  | 'probe'
  | 'rejoin'
  | 'renew'
  | 'resetRetry'
  | 'retryNow'
  | 'scheduleRefetch'
  | 'scheduleRetry'
  | 'sendAuth'
  | 'sendPing'
  | 'startDrain'
  | 'startFallback'
  | 'startOpen'
  | 'startPing'
  | 'startPong'
  | 'startStable'
  | 'startSuspend'
  | 'startUpgrade'
  | 'stopAll'
  | 'stopApart'
  | 'stopOpen'
  | 'stopPing'
  | 'stopPong'
  | 'stopRetry'
  | 'useFallback'
  | 'useWebsocket';

export const INITIAL: State = 'initialized';
export const FINAL: ReadonlySet<State> = new Set<State>(['closed', 'failed']);
export const PUBLIC: Readonly<Record<State, PublicState>> = {
  initialized: 'initialized',
  resolving: 'connecting',
  dialing: 'connecting',
  authenticating: 'authenticating',
  connected: 'connected',
  waiting: 'reconnecting',
  suspended: 'suspended',
  closing: 'closing',
  closed: 'closed',
  failed: 'failed',
};
export const TIMERS: Readonly<Record<Timer, Event>> = {
  fetch: 'fetch_timeout',
  open: 'open_timeout',
  ping: 'ping_due',
  pong: 'pong_timeout',
  retry: 'retry_due',
  refresh: 'refresh_due',
  expiry: 'token_expired',
  stable: 'stable_due',
  suspend: 'suspend_due',
  fallback: 'fallback_due',
  upgrade: 'upgrade_due',
  drain: 'drain_timeout',
};

/** One way out of a state on an event; the first row whose guards all hold fires. */
export interface Row {
  readonly guards: readonly Guard[];
  readonly to: State;
  readonly actions: readonly Action[];
}

/** Guards and actions of the table; `E` is what a session calls an event. */
export interface Steps<E> {
  authClose(event: E): boolean;
  authFault(event: E): boolean;
  cannotRenew(event: E): boolean;
  draining(event: E): boolean;
  finalClose(event: E): boolean;
  finalError(event: E): boolean;
  hasToken(event: E): boolean;
  heard(event: E): boolean;
  mayFallBack(event: E): boolean;
  overdue(event: E): boolean;
  reachable(event: E): boolean;
  refused(event: E): boolean;
  unsettled(event: E): boolean;
  abandonFetch(event: E): void;
  accept(event: E): void;
  countFailure(event: E): void;
  countShortLife(event: E): void;
  dial(event: E): void;
  fail(event: E): void;
  fetchToken(event: E): void;
  finish(event: E): void;
  flush(event: E): void;
  forgetToken(event: E): void;
  hangUp(event: E): void;
  keepToken(event: E): void;
  leave(event: E): void;
  probe(event: E): void;
  rejoin(event: E): void;
  renew(event: E): void;
  resetRetry(event: E): void;
  retryNow(event: E): void;
  scheduleRefetch(event: E): void;
  scheduleRetry(event: E): void;
  sendAuth(event: E): void;
  sendPing(event: E): void;
  startDrain(event: E): void;
  startFallback(event: E): void;
  startOpen(event: E): void;
  startPing(event: E): void;
  startPong(event: E): void;
  startStable(event: E): void;
  startSuspend(event: E): void;
  startUpgrade(event: E): void;
  stopAll(event: E): void;
  stopApart(event: E): void;
  stopOpen(event: E): void;
  stopPing(event: E): void;
  stopPong(event: E): void;
  stopRetry(event: E): void;
  useFallback(event: E): void;
  useWebsocket(event: E): void;
}

type Cells = Readonly<Partial<Record<Event, readonly Row[]>>>;

/** Rows by state and event. No row fires: the event is ignored. No cell: a fault. */
export const TABLE: Readonly<Record<State, Cells>> = {
  initialized: {
    connect: [
      { guards: [], to: 'resolving', actions: ['startSuspend', 'startFallback', 'fetchToken'] },
    ],
    close: [{ guards: [], to: 'closed', actions: ['finish'] }],
    abort: [{ guards: [], to: 'closed', actions: ['finish'] }],
    woke: [],
  },
  resolving: {
    connect: [],
    close: [
      { guards: ['unsettled'], to: 'resolving', actions: ['startDrain'] },
      { guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] },
    ],
    abort: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    token: [{ guards: [], to: 'dialing', actions: ['keepToken', 'startOpen', 'dial'] }],
    token_failed: [
      { guards: ['refused'], to: 'failed', actions: ['stopAll', 'fail'] },
      { guards: ['overdue'], to: 'suspended', actions: ['scheduleRetry'] },
      { guards: [], to: 'waiting', actions: ['scheduleRetry'] },
    ],
    opened: [],
    dropped: [],
    probed: [],
    woke: [],
    'auth.ok': [],
    'auth.error': [],
    'auth.expiring': [],
    pong: [],
    drained: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    fetch_timeout: [
      { guards: ['overdue'], to: 'suspended', actions: ['abandonFetch', 'scheduleRetry'] },
      { guards: [], to: 'waiting', actions: ['abandonFetch', 'scheduleRetry'] },
    ],
    suspend_due: [],
    fallback_due: [],
    drain_timeout: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
  },
  dialing: {
    connect: [],
    close: [
      { guards: ['unsettled'], to: 'dialing', actions: ['startDrain'] },
      { guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] },
    ],
    abort: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    token: [{ guards: [], to: 'dialing', actions: ['keepToken'] }],
    token_failed: [{ guards: ['refused'], to: 'failed', actions: ['stopAll', 'hangUp', 'fail'] }],
    opened: [
      { guards: ['hasToken'], to: 'authenticating', actions: ['sendAuth'] },
      { guards: ['overdue'], to: 'suspended', actions: ['stopOpen', 'hangUp', 'scheduleRetry'] },
      { guards: [], to: 'waiting', actions: ['stopOpen', 'hangUp', 'scheduleRetry'] },
    ],
    dropped: [
      { guards: ['finalClose'], to: 'failed', actions: ['stopAll', 'fail'] },
      { guards: ['authClose', 'cannotRenew'], to: 'failed', actions: ['stopAll', 'fail'] },
      {
        guards: ['authClose', 'overdue'],
        to: 'suspended',
        actions: ['stopOpen', 'forgetToken', 'scheduleRetry'],
      },
      {
        guards: ['authClose'],
        to: 'waiting',
        actions: ['stopOpen', 'forgetToken', 'scheduleRetry'],
      },
      {
        guards: ['overdue'],
        to: 'suspended',
        actions: ['stopOpen', 'countFailure', 'scheduleRetry'],
      },
      { guards: [], to: 'waiting', actions: ['stopOpen', 'countFailure', 'scheduleRetry'] },
    ],
    probed: [],
    woke: [],
    'auth.ok': [],
    'auth.error': [],
    'auth.expiring': [],
    pong: [],
    drained: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    fetch_timeout: [{ guards: [], to: 'dialing', actions: ['abandonFetch'] }],
    open_timeout: [
      {
        guards: ['overdue'],
        to: 'suspended',
        actions: ['hangUp', 'countFailure', 'scheduleRetry'],
      },
      { guards: [], to: 'waiting', actions: ['hangUp', 'countFailure', 'scheduleRetry'] },
    ],
    token_expired: [{ guards: [], to: 'dialing', actions: ['forgetToken'] }],
    suspend_due: [],
    fallback_due: [
      {
        guards: ['mayFallBack'],
        to: 'dialing',
        actions: ['stopOpen', 'hangUp', 'useFallback', 'startOpen', 'dial'],
      },
    ],
    drain_timeout: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
  },
  authenticating: {
    connect: [],
    close: [
      { guards: ['unsettled'], to: 'authenticating', actions: ['startDrain'] },
      { guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] },
    ],
    abort: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    token: [{ guards: [], to: 'authenticating', actions: ['keepToken'] }],
    token_failed: [{ guards: ['refused'], to: 'failed', actions: ['stopAll', 'hangUp', 'fail'] }],
    opened: [],
    dropped: [
      { guards: ['finalClose'], to: 'failed', actions: ['stopAll', 'fail'] },
      { guards: ['authClose', 'cannotRenew'], to: 'failed', actions: ['stopAll', 'fail'] },
      {
        guards: ['authClose', 'overdue'],
        to: 'suspended',
        actions: ['stopOpen', 'forgetToken', 'scheduleRetry'],
      },
      {
        guards: ['authClose'],
        to: 'waiting',
        actions: ['stopOpen', 'forgetToken', 'scheduleRetry'],
      },
      {
        guards: ['overdue'],
        to: 'suspended',
        actions: ['stopOpen', 'countFailure', 'scheduleRetry'],
      },
      { guards: [], to: 'waiting', actions: ['stopOpen', 'countFailure', 'scheduleRetry'] },
    ],
    probed: [],
    woke: [],
    'auth.ok': [
      {
        guards: ['draining'],
        to: 'closing',
        actions: ['stopOpen', 'stopApart', 'accept', 'flush'],
      },
      {
        guards: [],
        to: 'connected',
        actions: [
          'stopOpen',
          'stopApart',
          'accept',
          'startStable',
          'startPing',
          'startUpgrade',
          'rejoin',
          'flush',
        ],
      },
    ],
    'auth.error': [
      { guards: ['finalError'], to: 'failed', actions: ['stopAll', 'hangUp', 'fail'] },
      {
        guards: ['authFault', 'cannotRenew'],
        to: 'failed',
        actions: ['stopAll', 'hangUp', 'fail'],
      },
      {
        guards: ['authFault', 'overdue'],
        to: 'suspended',
        actions: ['stopOpen', 'hangUp', 'forgetToken', 'scheduleRetry'],
      },
      {
        guards: ['authFault'],
        to: 'waiting',
        actions: ['stopOpen', 'hangUp', 'forgetToken', 'scheduleRetry'],
      },
      { guards: ['overdue'], to: 'suspended', actions: ['stopOpen', 'hangUp', 'scheduleRetry'] },
      { guards: [], to: 'waiting', actions: ['stopOpen', 'hangUp', 'scheduleRetry'] },
    ],
    'auth.expiring': [],
    pong: [],
    drained: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    fetch_timeout: [{ guards: [], to: 'authenticating', actions: ['abandonFetch'] }],
    open_timeout: [
      {
        guards: ['overdue'],
        to: 'suspended',
        actions: ['hangUp', 'countFailure', 'scheduleRetry'],
      },
      { guards: [], to: 'waiting', actions: ['hangUp', 'countFailure', 'scheduleRetry'] },
    ],
    token_expired: [{ guards: [], to: 'authenticating', actions: ['forgetToken'] }],
    suspend_due: [],
    fallback_due: [
      {
        guards: ['mayFallBack'],
        to: 'dialing',
        actions: ['stopOpen', 'hangUp', 'useFallback', 'startOpen', 'dial'],
      },
    ],
    drain_timeout: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
  },
  connected: {
    connect: [],
    close: [
      { guards: ['unsettled'], to: 'closing', actions: ['startDrain', 'stopPing'] },
      { guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] },
    ],
    abort: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    token: [{ guards: [], to: 'connected', actions: ['keepToken', 'sendAuth'] }],
    token_failed: [
      { guards: ['refused'], to: 'failed', actions: ['stopAll', 'hangUp', 'fail'] },
      { guards: [], to: 'connected', actions: ['scheduleRefetch'] },
    ],
    dropped: [
      { guards: ['finalClose'], to: 'failed', actions: ['stopAll', 'fail'] },
      { guards: ['authClose', 'cannotRenew'], to: 'failed', actions: ['stopAll', 'fail'] },
      { guards: ['authClose'], to: 'waiting', actions: ['leave', 'forgetToken', 'scheduleRetry'] },
      { guards: [], to: 'waiting', actions: ['leave', 'countShortLife', 'scheduleRetry'] },
    ],
    probed: [
      {
        guards: ['reachable'],
        to: 'dialing',
        actions: ['leave', 'hangUp', 'useWebsocket', 'startOpen', 'dial'],
      },
      { guards: [], to: 'connected', actions: ['startUpgrade'] },
    ],
    woke: [{ guards: [], to: 'waiting', actions: ['leave', 'hangUp', 'retryNow'] }],
    'auth.ok': [{ guards: [], to: 'connected', actions: ['renew'] }],
    'auth.error': [
      { guards: ['finalError'], to: 'failed', actions: ['stopAll', 'hangUp', 'fail'] },
      {
        guards: ['authFault', 'cannotRenew'],
        to: 'failed',
        actions: ['stopAll', 'hangUp', 'fail'],
      },
      {
        guards: ['authFault'],
        to: 'waiting',
        actions: ['leave', 'hangUp', 'forgetToken', 'scheduleRetry'],
      },
      { guards: [], to: 'waiting', actions: ['leave', 'hangUp', 'scheduleRetry'] },
    ],
    'auth.expiring': [{ guards: [], to: 'connected', actions: ['fetchToken'] }],
    pong: [{ guards: [], to: 'connected', actions: ['stopPong', 'startPing'] }],
    fetch_timeout: [{ guards: [], to: 'connected', actions: ['abandonFetch', 'scheduleRefetch'] }],
    ping_due: [{ guards: [], to: 'connected', actions: ['sendPing', 'startPong'] }],
    pong_timeout: [
      { guards: ['heard'], to: 'connected', actions: ['startPing'] },
      { guards: [], to: 'waiting', actions: ['leave', 'hangUp', 'scheduleRetry'] },
    ],
    refresh_due: [{ guards: [], to: 'connected', actions: ['fetchToken'] }],
    token_expired: [{ guards: [], to: 'connected', actions: ['forgetToken', 'fetchToken'] }],
    stable_due: [{ guards: [], to: 'connected', actions: ['resetRetry'] }],
    fallback_due: [],
    upgrade_due: [{ guards: [], to: 'connected', actions: ['probe'] }],
  },
  waiting: {
    connect: [],
    close: [
      { guards: ['unsettled'], to: 'waiting', actions: ['startDrain'] },
      { guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] },
    ],
    abort: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    token: [{ guards: [], to: 'waiting', actions: ['keepToken'] }],
    token_failed: [{ guards: ['refused'], to: 'failed', actions: ['stopAll', 'fail'] }],
    opened: [],
    dropped: [],
    probed: [],
    woke: [
      {
        guards: ['hasToken'],
        to: 'dialing',
        actions: ['stopRetry', 'resetRetry', 'startOpen', 'dial'],
      },
      { guards: [], to: 'resolving', actions: ['stopRetry', 'resetRetry', 'fetchToken'] },
    ],
    'auth.ok': [],
    'auth.error': [],
    'auth.expiring': [],
    pong: [],
    drained: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    fetch_timeout: [{ guards: [], to: 'waiting', actions: ['abandonFetch'] }],
    retry_due: [
      { guards: ['hasToken'], to: 'dialing', actions: ['startOpen', 'dial'] },
      { guards: [], to: 'resolving', actions: ['fetchToken'] },
    ],
    token_expired: [{ guards: [], to: 'waiting', actions: ['forgetToken'] }],
    suspend_due: [{ guards: [], to: 'suspended', actions: [] }],
    fallback_due: [],
    drain_timeout: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
  },
  suspended: {
    connect: [],
    close: [
      { guards: ['unsettled'], to: 'suspended', actions: ['startDrain'] },
      { guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] },
    ],
    abort: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    token: [{ guards: [], to: 'suspended', actions: ['keepToken'] }],
    token_failed: [{ guards: ['refused'], to: 'failed', actions: ['stopAll', 'fail'] }],
    opened: [],
    dropped: [],
    probed: [],
    woke: [
      {
        guards: ['hasToken'],
        to: 'dialing',
        actions: ['stopRetry', 'resetRetry', 'startOpen', 'dial'],
      },
      { guards: [], to: 'resolving', actions: ['stopRetry', 'resetRetry', 'fetchToken'] },
    ],
    'auth.ok': [],
    'auth.error': [],
    'auth.expiring': [],
    pong: [],
    drained: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    fetch_timeout: [{ guards: [], to: 'suspended', actions: ['abandonFetch'] }],
    retry_due: [
      { guards: ['hasToken'], to: 'dialing', actions: ['startOpen', 'dial'] },
      { guards: [], to: 'resolving', actions: ['fetchToken'] },
    ],
    token_expired: [{ guards: [], to: 'suspended', actions: ['forgetToken'] }],
    fallback_due: [],
    drain_timeout: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
  },
  closing: {
    connect: [],
    close: [],
    abort: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    token: [],
    token_failed: [],
    dropped: [{ guards: [], to: 'closed', actions: ['stopAll', 'finish'] }],
    probed: [],
    woke: [],
    'auth.ok': [],
    'auth.error': [],
    'auth.expiring': [],
    pong: [],
    drained: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
    fetch_timeout: [],
    ping_due: [],
    pong_timeout: [],
    refresh_due: [],
    token_expired: [],
    stable_due: [],
    suspend_due: [],
    fallback_due: [],
    upgrade_due: [],
    drain_timeout: [{ guards: [], to: 'closed', actions: ['stopAll', 'hangUp', 'finish'] }],
  },
  closed: {
    connect: [],
    close: [],
    abort: [],
    token: [],
    token_failed: [],
    opened: [],
    dropped: [],
    probed: [],
    woke: [],
    'auth.ok': [],
    'auth.error': [],
    'auth.expiring': [],
    pong: [],
    drained: [],
    fetch_timeout: [],
    open_timeout: [],
    ping_due: [],
    pong_timeout: [],
    retry_due: [],
    refresh_due: [],
    token_expired: [],
    stable_due: [],
    suspend_due: [],
    fallback_due: [],
    upgrade_due: [],
    drain_timeout: [],
  },
  failed: {
    connect: [],
    close: [],
    abort: [],
    token: [],
    token_failed: [],
    opened: [],
    dropped: [],
    probed: [],
    woke: [],
    'auth.ok': [],
    'auth.error': [],
    'auth.expiring': [],
    pong: [],
    drained: [],
    fetch_timeout: [],
    open_timeout: [],
    ping_due: [],
    pong_timeout: [],
    retry_due: [],
    refresh_due: [],
    token_expired: [],
    stable_due: [],
    suspend_due: [],
    fallback_due: [],
    upgrade_due: [],
    drain_timeout: [],
  },
};
