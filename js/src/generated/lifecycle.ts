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

/** What may happen; `@` and a timer: it ran out. */
export type Event =
  | 'connect'
  | 'close'
  | 'abort'
  | 'token'
  | 'tokenFailed'
  | 'opened'
  | 'dropped'
  | 'probed'
  | 'woke'
  | 'auth.ok'
  | 'auth.error'
  | 'auth.expiring'
  | 'pong'
  | 'drained'
  | '@fetch'
  | '@open'
  | '@ping'
  | '@pong'
  | '@retry'
  | '@refresh'
  | '@expiry'
  | '@stable'
  | '@suspend'
  | '@fallback'
  | '@upgrade'
  | '@drain';

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

/** States that users see under another name. */
const SEEN_AS: Readonly<Partial<Record<State, PublicState>>> = {
  resolving: 'connecting',
  dialing: 'connecting',
  waiting: 'reconnecting',
};

/** What users see of a state. */
export function publicState(state: State): PublicState {
  return SEEN_AS[state] ?? (state as PublicState);
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

/**
 * For each state: a line an event, `event row|row`; a row is `guards>state>actions`.
 *
 * No state: it stays.
 * The first row whose guards all hold fires. An event that is not there is ignored.
 */
export const TABLE: Readonly<Record<State, string>> = {
  initialized: `connect >resolving>startSuspend,startFallback,fetchToken
close >closed>finish
abort >closed>finish`,
  resolving: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >dialing>keepToken,startOpen,dial
tokenFailed refused>failed>stopAll,fail|overdue>suspended>scheduleRetry|>waiting>scheduleRetry
drained >closed>stopAll,hangUp,finish
@fetch overdue>suspended>abandonFetch,scheduleRetry|>waiting>abandonFetch,scheduleRetry
@drain >closed>stopAll,hangUp,finish`,
  dialing: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken
tokenFailed refused>failed>stopAll,hangUp,fail
opened hasToken>authenticating>sendAuth|overdue>suspended>stopOpen,hangUp,scheduleRetry|>waiting>stopOpen,hangUp,scheduleRetry
dropped finalClose>failed>stopAll,fail|authClose,cannotRenew>failed>stopAll,fail|authClose,overdue>suspended>stopOpen,forgetToken,scheduleRetry|authClose>waiting>stopOpen,forgetToken,scheduleRetry|overdue>suspended>stopOpen,countFailure,scheduleRetry|>waiting>stopOpen,countFailure,scheduleRetry
drained >closed>stopAll,hangUp,finish
@fetch >>abandonFetch
@open overdue>suspended>hangUp,countFailure,scheduleRetry|>waiting>hangUp,countFailure,scheduleRetry
@expiry >>forgetToken
@fallback mayFallBack>>stopOpen,hangUp,useFallback,startOpen,dial
@drain >closed>stopAll,hangUp,finish`,
  authenticating: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken
tokenFailed refused>failed>stopAll,hangUp,fail
dropped finalClose>failed>stopAll,fail|authClose,cannotRenew>failed>stopAll,fail|authClose,overdue>suspended>stopOpen,forgetToken,scheduleRetry|authClose>waiting>stopOpen,forgetToken,scheduleRetry|overdue>suspended>stopOpen,countFailure,scheduleRetry|>waiting>stopOpen,countFailure,scheduleRetry
auth.ok draining>closing>stopOpen,stopApart,accept,flush|>connected>stopOpen,stopApart,accept,startStable,startPing,startUpgrade,rejoin,flush
auth.error finalError>failed>stopAll,hangUp,fail|authFault,cannotRenew>failed>stopAll,hangUp,fail|authFault,overdue>suspended>stopOpen,hangUp,forgetToken,scheduleRetry|authFault>waiting>stopOpen,hangUp,forgetToken,scheduleRetry|overdue>suspended>stopOpen,hangUp,scheduleRetry|>waiting>stopOpen,hangUp,scheduleRetry
drained >closed>stopAll,hangUp,finish
@fetch >>abandonFetch
@open overdue>suspended>hangUp,countFailure,scheduleRetry|>waiting>hangUp,countFailure,scheduleRetry
@expiry >>forgetToken
@fallback mayFallBack>dialing>stopOpen,hangUp,useFallback,startOpen,dial
@drain >closed>stopAll,hangUp,finish`,
  connected: `close unsettled>closing>startDrain,stopPing|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken,sendAuth
tokenFailed refused>failed>stopAll,hangUp,fail|>>scheduleRefetch
dropped finalClose>failed>stopAll,fail|authClose,cannotRenew>failed>stopAll,fail|authClose>waiting>leave,forgetToken,scheduleRetry|>waiting>leave,countShortLife,scheduleRetry
probed reachable>dialing>leave,hangUp,useWebsocket,startOpen,dial|>>startUpgrade
woke >waiting>leave,hangUp,retryNow
auth.ok >>renew
auth.error finalError>failed>stopAll,hangUp,fail|authFault,cannotRenew>failed>stopAll,hangUp,fail|authFault>waiting>leave,hangUp,forgetToken,scheduleRetry|>waiting>leave,hangUp,scheduleRetry
auth.expiring >>fetchToken
pong >>stopPong,startPing
@fetch >>abandonFetch,scheduleRefetch
@ping >>sendPing,startPong
@pong heard>>startPing|>waiting>leave,hangUp,scheduleRetry
@refresh >>fetchToken
@expiry >>forgetToken,fetchToken
@stable >>resetRetry
@upgrade >>probe`,
  waiting: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken
tokenFailed refused>failed>stopAll,fail
woke hasToken>dialing>stopRetry,resetRetry,startOpen,dial|>resolving>stopRetry,resetRetry,fetchToken
drained >closed>stopAll,hangUp,finish
@fetch >>abandonFetch
@retry hasToken>dialing>startOpen,dial|>resolving>fetchToken
@expiry >>forgetToken
@suspend >suspended>
@drain >closed>stopAll,hangUp,finish`,
  suspended: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken
tokenFailed refused>failed>stopAll,fail
woke hasToken>dialing>stopRetry,resetRetry,startOpen,dial|>resolving>stopRetry,resetRetry,fetchToken
drained >closed>stopAll,hangUp,finish
@fetch >>abandonFetch
@retry hasToken>dialing>startOpen,dial|>resolving>fetchToken
@expiry >>forgetToken
@drain >closed>stopAll,hangUp,finish`,
  closing: `abort >closed>stopAll,hangUp,finish
dropped >closed>stopAll,finish
drained >closed>stopAll,hangUp,finish
@drain >closed>stopAll,hangUp,finish`,
  closed: ``,
  failed: ``,
};
