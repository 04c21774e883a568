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
  | 'answered'
  | 'woke'
  | 'offline'
  | 'auth.ok'
  | 'auth.error'
  | 'auth.expiring'
  | 'pong'
  | 'drained'
  | 'called'
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
  | 'authFault'
  | 'cannotRenew'
  | 'draining'
  | 'finalError'
  | 'firstReplaced'
  | 'fresh'
  | 'hasPings'
  | 'hasToken'
  | 'heard'
  | 'httpAnswers'
  | 'late'
  | 'mayFallBack'
  | 'overdue'
  | 'reachable'
  | 'refused'
  | 'unsettled';

/** Steps that a row takes. */
export type Action =
  | 'abandonFetch'
  | 'accept'
  | 'changeTransport'
  | 'check'
  | 'countFailure'
  | 'countShortLife'
  | 'cutWait'
  | 'dial'
  | 'fail'
  | 'fetchToken'
  | 'finish'
  | 'flush'
  | 'forgetToken'
  | 'hangUp'
  | 'keepToken'
  | 'leave'
  | 'noteReplaced'
  | 'probe'
  | 'probeHttp'
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
  | 'startSuspend'
  | 'startUpgrade'
  | 'stopAll'
  | 'upgrade';

/** Steps that start or stop a timer. */
export type TimerStep =
  | '+open'
  | '+ping'
  | '+pong'
  | '+stable'
  | '-fallback'
  | '-open'
  | '-ping'
  | '-pong'
  | '-retry'
  | '-suspend';

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
  authFault(event: E): boolean;
  cannotRenew(event: E): boolean;
  draining(event: E): boolean;
  finalError(event: E): boolean;
  firstReplaced(event: E): boolean;
  fresh(event: E): boolean;
  hasPings(event: E): boolean;
  hasToken(event: E): boolean;
  heard(event: E): boolean;
  httpAnswers(event: E): boolean;
  late(event: E): boolean;
  mayFallBack(event: E): boolean;
  overdue(event: E): boolean;
  reachable(event: E): boolean;
  refused(event: E): boolean;
  unsettled(event: E): boolean;
  abandonFetch(event: E): void;
  accept(event: E): void;
  changeTransport(event: E): void;
  check(event: E): void;
  countFailure(event: E): void;
  countShortLife(event: E): void;
  cutWait(event: E): void;
  dial(event: E): void;
  fail(event: E): void;
  fetchToken(event: E): void;
  finish(event: E): void;
  flush(event: E): void;
  forgetToken(event: E): void;
  hangUp(event: E): void;
  keepToken(event: E): void;
  leave(event: E): void;
  noteReplaced(event: E): void;
  probe(event: E): void;
  probeHttp(event: E): void;
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
  startSuspend(event: E): void;
  startUpgrade(event: E): void;
  stopAll(event: E): void;
  upgrade(event: E): void;
}

/**
 * For each state: a line an event, `event row|row`; a row is `guards>state>actions`.
 *
 * No state: it stays.
 * The first row whose guards all hold fires. An event that does not exist is ignored.
 */
export const TABLE: Readonly<Record<State, string>> = {
  initialized: `connect >resolving>startSuspend,startFallback,fetchToken
close >closed>finish
abort >closed>finish`,
  resolving: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >dialing>keepToken,+open,dial
tokenFailed refused>failed>stopAll,fail|overdue>suspended>scheduleRetry|>waiting>scheduleRetry
answered late,mayFallBack,httpAnswers>>changeTransport
drained >closed>stopAll,hangUp,finish
@fetch overdue>suspended>abandonFetch,scheduleRetry|>waiting>abandonFetch,scheduleRetry
@fallback late,mayFallBack,httpAnswers>>changeTransport
@drain >closed>stopAll,hangUp,finish`,
  dialing: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken
tokenFailed refused>failed>stopAll,hangUp,fail
opened hasToken>authenticating>sendAuth|overdue>suspended>-open,hangUp,scheduleRetry|>waiting>-open,hangUp,scheduleRetry
dropped finalError>failed>stopAll,fail|authFault,cannotRenew>failed>stopAll,fail|authFault,overdue>suspended>-open,forgetToken,scheduleRetry|authFault>waiting>-open,forgetToken,scheduleRetry|overdue>suspended>-open,countFailure,scheduleRetry|>waiting>-open,countFailure,scheduleRetry
answered late,mayFallBack,httpAnswers>>-open,hangUp,changeTransport,+open,dial
drained >closed>stopAll,hangUp,finish
@fetch >>abandonFetch
@open overdue>suspended>hangUp,countFailure,scheduleRetry|>waiting>hangUp,countFailure,scheduleRetry
@expiry >>forgetToken
@fallback late,mayFallBack,httpAnswers>>-open,hangUp,changeTransport,+open,dial|mayFallBack>>probeHttp
@drain >closed>stopAll,hangUp,finish`,
  authenticating: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken
tokenFailed refused>failed>stopAll,hangUp,fail
dropped finalError>failed>stopAll,fail|authFault,cannotRenew>failed>stopAll,fail|authFault,overdue>suspended>-open,forgetToken,scheduleRetry|authFault>waiting>-open,forgetToken,scheduleRetry|overdue>suspended>-open,countFailure,scheduleRetry|>waiting>-open,countFailure,scheduleRetry
answered late,mayFallBack,httpAnswers>dialing>-open,hangUp,changeTransport,+open,dial
auth.ok draining>closing>-open,-suspend,-fallback,accept,flush|>connected>-open,-suspend,-fallback,accept,+stable,+ping,startUpgrade,rejoin,flush
auth.error finalError>failed>stopAll,hangUp,fail|authFault,cannotRenew>failed>stopAll,hangUp,fail|authFault,overdue>suspended>-open,hangUp,forgetToken,scheduleRetry|authFault>waiting>-open,hangUp,forgetToken,scheduleRetry|overdue>suspended>-open,hangUp,countFailure,scheduleRetry|>waiting>-open,hangUp,countFailure,scheduleRetry
drained >closed>stopAll,hangUp,finish
@fetch >>abandonFetch
@open overdue>suspended>hangUp,countFailure,scheduleRetry|>waiting>hangUp,countFailure,scheduleRetry
@expiry >>forgetToken
@fallback late,mayFallBack,httpAnswers>dialing>-open,hangUp,changeTransport,+open,dial|mayFallBack>>probeHttp
@drain >closed>stopAll,hangUp,finish`,
  connected: `close unsettled>closing>startDrain,-ping,-pong|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken,sendAuth
tokenFailed refused>failed>stopAll,hangUp,fail|>>scheduleRefetch
dropped firstReplaced>waiting>leave,noteReplaced,scheduleRetry|finalError>failed>stopAll,fail|authFault,cannotRenew>failed>stopAll,fail|authFault>waiting>leave,forgetToken,scheduleRetry|>waiting>leave,countShortLife,scheduleRetry
probed reachable>dialing>leave,hangUp,upgrade,+open,dial|>>startUpgrade
woke >waiting>leave,hangUp,retryNow
offline hasPings>>-ping,check
auth.ok >>renew
auth.error finalError>failed>stopAll,hangUp,fail|authFault,cannotRenew>failed>stopAll,hangUp,fail|authFault>waiting>leave,hangUp,forgetToken,scheduleRetry|>waiting>leave,hangUp,scheduleRetry
auth.expiring fresh>>|>>fetchToken
pong >>-pong,-ping,+ping
@fetch >>abandonFetch,scheduleRefetch
@ping >>sendPing,+pong
@pong heard>>+ping|>waiting>leave,hangUp,scheduleRetry
@refresh >>fetchToken
@expiry >>forgetToken,fetchToken
@stable >>resetRetry
@upgrade >>probe`,
  waiting: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken
tokenFailed refused>failed>stopAll,fail
answered late,mayFallBack,httpAnswers>>changeTransport
woke hasToken>dialing>-retry,resetRetry,+open,dial|>resolving>-retry,resetRetry,fetchToken
drained >closed>stopAll,hangUp,finish
called hasToken>dialing>-retry,cutWait,+open,dial|>resolving>-retry,cutWait,fetchToken
@fetch >>abandonFetch
@retry hasToken>dialing>+open,dial|>resolving>fetchToken
@expiry >>forgetToken
@suspend >suspended>
@fallback late,mayFallBack,httpAnswers>>changeTransport
@drain >closed>stopAll,hangUp,finish`,
  suspended: `close unsettled>>startDrain|>closed>stopAll,hangUp,finish
abort >closed>stopAll,hangUp,finish
token >>keepToken
tokenFailed refused>failed>stopAll,fail
answered late,mayFallBack,httpAnswers>>changeTransport
woke hasToken>dialing>-retry,resetRetry,+open,dial|>resolving>-retry,resetRetry,fetchToken
drained >closed>stopAll,hangUp,finish
called hasToken>dialing>-retry,cutWait,+open,dial|>resolving>-retry,cutWait,fetchToken
@fetch >>abandonFetch
@retry hasToken>dialing>+open,dial|>resolving>fetchToken
@expiry >>forgetToken
@fallback late,mayFallBack,httpAnswers>>changeTransport
@drain >closed>stopAll,hangUp,finish`,
  closing: `abort >closed>stopAll,hangUp,finish
dropped >closed>stopAll,finish
drained >closed>stopAll,hangUp,finish
@drain >closed>stopAll,hangUp,finish`,
  closed: ``,
  failed: ``,
};
