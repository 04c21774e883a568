// Generated from spec/lifecycle.yaml by `make generate`; do not edit.

/** State of a session in the lifecycle. */
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

/** State of a session that users see. */
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

/** The timers of the lifecycle. */
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

export const INITIAL: State = 'initialized';

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

/** What a session knows to do and to answer; `E` is what it calls an event. */
export interface Steps<E> {
  readonly state: State;
  /** Enter a state and report it. */
  _enter(to: State, event: E): void;
  _start(timer: Timer): void;
  _stop(...timers: readonly Timer[]): void;
  /** Whether the error or close code says that the token is at fault. */
  _authFault(event: E): boolean;
  /** Whether data has arrived since the ping. */
  _dataArrived(event: E): boolean;
  /** Whether the program has asked for the end, once its publishes are settled. */
  readonly _draining: boolean;
  /** Whether the error or close code says that another try is pointless, or faults a token that cannot be renewed. */
  _finalError(event: E): boolean;
  /** Whether another connection took the place of this one, for the first time. */
  _firstReplaced(event: E): boolean;
  /** Whether the server answers pings on this transport. */
  readonly _hasPings: boolean;
  /** Whether a token is held. */
  readonly _hasToken: boolean;
  /** Whether disconnected for longer than history is certain to last. */
  readonly _overdue: boolean;
  /** Whether a WebSocket could be opened. */
  _reachable(event: E): boolean;
  /** Whether the token callback refuses permanently. */
  _refused(event: E): boolean;
  /** Whether the first WebSocket is late, the choice of transport is free, and the HTTP address answers. */
  readonly _shouldFallBack: boolean;
  /** Whether more than half of the lifetime of the token is left. */
  _tokenFresh(event: E): boolean;
  /** Whether a publish has no outcome. */
  readonly _unsettled: boolean;
  _accept(event: E): void;
  _check(event: E): void;
  _countFailure(event: E): void;
  _dial(event: E): void;
  _fail(event: E): void;
  _fetchToken(event: E): void;
  _finish(event: E): void;
  _flush(event: E): void;
  _forgetToken(event: E): void;
  _keepToken(event: E): void;
  _leave(event: E): void;
  _noteReplaced(event: E): void;
  _noteStable(event: E): void;
  _planNow(event: E): void;
  _planRetry(event: E): void;
  _probe(event: E): void;
  _probeHttp(event: E): void;
  _rejoin(event: E): void;
  _renew(event: E): void;
  _resetRetry(event: E): void;
  _scheduleRefetch(event: E): void;
  _sendAuth(event: E): void;
  _sendPing(event: E): void;
  _startDrain(event: E): void;
  _startFallback(event: E): void;
  _startSuspend(event: E): void;
  readonly _attempts: { _schedule(): void; _shorten(): void };
  readonly _choice: { _change(): void; _startUpgrade(): void; _upgrade(): void };
  readonly _credentials: { _abandon(): void };
}

/** `connect`, from the user. */
export function onConnect<E>(m: Steps<E>, e: E): void {
  if (m.state === 'initialized') {
    m._enter('resolving', e);
    m._startSuspend(e);
    m._startFallback(e);
    m._fetchToken(e);
  }
}

/** `close`, from the user. */
export function onClose<E>(m: Steps<E>, e: E): void {
  switch (m.state) {
    case 'initialized':
      m._enter('closed', e);
      m._finish(e);
      break;
    case 'resolving':
    case 'dialing':
    case 'authenticating':
    case 'waiting':
    case 'suspended':
      if (m._unsettled) {
        m._startDrain(e);
      } else {
        m._enter('closed', e);
        m._finish(e);
      }
      break;
    case 'connected':
      if (m._unsettled) {
        m._enter('closing', e);
        m._startDrain(e);
        m._stop('ping', 'pong');
      } else {
        m._enter('closed', e);
        m._finish(e);
      }
  }
}

/** `abort`, from the user. */
export function onAbort<E>(m: Steps<E>, e: E): void {
  if (m.state !== 'closed' && m.state !== 'failed') {
    m._enter('closed', e);
    m._finish(e);
  }
}

/** `token`, from the shell. */
export function onToken<E>(m: Steps<E>, e: E): void {
  switch (m.state) {
    case 'resolving':
      m._enter('dialing', e);
      m._keepToken(e);
      m._dial(e);
      break;
    case 'dialing':
    case 'authenticating':
    case 'waiting':
    case 'suspended':
      m._keepToken(e);
      break;
    case 'connected':
      m._keepToken(e);
      m._sendAuth(e);
  }
}

/** `token_failed`, from the shell. */
export function onTokenFailed<E>(m: Steps<E>, e: E): void {
  switch (m.state) {
    case 'resolving':
      if (m._refused(e)) {
        m._enter('failed', e);
        m._fail(e);
      } else {
        m._planRetry(e);
        m._enter(m._overdue ? 'suspended' : 'waiting', e);
        m._attempts._schedule();
      }
      break;
    case 'dialing':
    case 'authenticating':
    case 'waiting':
    case 'suspended':
      if (m._refused(e)) {
        m._enter('failed', e);
        m._fail(e);
      }
      break;
    case 'connected':
      if (m._refused(e)) {
        m._enter('failed', e);
        m._fail(e);
      } else {
        m._scheduleRefetch(e);
      }
  }
}

/** `opened`, from the shell. */
export function onOpened<E>(m: Steps<E>, e: E): void {
  if (m.state === 'dialing') {
    if (m._hasToken) {
      m._enter('authenticating', e);
      m._sendAuth(e);
    } else {
      m._planRetry(e);
      m._enter(m._overdue ? 'suspended' : 'waiting', e);
      m._leave(e);
      m._attempts._schedule();
    }
  }
}

/** `dropped`, from the shell. */
export function onDropped<E>(m: Steps<E>, e: E): void {
  switch (m.state) {
    case 'dialing':
    case 'authenticating':
      if (m._finalError(e)) {
        m._enter('failed', e);
        m._fail(e);
      } else if (m._authFault(e)) {
        m._planRetry(e);
        m._enter(m._overdue ? 'suspended' : 'waiting', e);
        m._leave(e);
        m._forgetToken(e);
        m._attempts._schedule();
      } else {
        m._planRetry(e);
        m._enter(m._overdue ? 'suspended' : 'waiting', e);
        m._leave(e);
        m._countFailure(e);
        m._attempts._schedule();
      }
      break;
    case 'connected':
      if (m._firstReplaced(e)) {
        m._planRetry(e);
        m._enter('waiting', e);
        m._leave(e);
        m._noteReplaced(e);
        m._attempts._schedule();
      } else if (m._finalError(e)) {
        m._enter('failed', e);
        m._fail(e);
      } else if (m._authFault(e)) {
        m._planRetry(e);
        m._enter('waiting', e);
        m._leave(e);
        m._forgetToken(e);
        m._attempts._schedule();
      } else {
        m._planRetry(e);
        m._enter('waiting', e);
        m._leave(e);
        m._countFailure(e);
        m._attempts._schedule();
      }
      break;
    case 'closing':
      m._enter('closed', e);
      m._finish(e);
  }
}

/** `probed`, from the shell. */
export function onProbed<E>(m: Steps<E>, e: E): void {
  if (m.state === 'connected') {
    if (m._reachable(e)) {
      m._enter('dialing', e);
      m._leave(e);
      m._choice._upgrade();
      m._dial(e);
    } else {
      m._choice._startUpgrade();
    }
  }
}

/** `answered`, from the shell. */
export function onAnswered<E>(m: Steps<E>, e: E): void {
  switch (m.state) {
    case 'resolving':
    case 'waiting':
    case 'suspended':
      if (m._shouldFallBack) {
        m._choice._change();
      }
      break;
    case 'dialing':
      if (m._shouldFallBack) {
        m._leave(e);
        m._choice._change();
        m._dial(e);
      }
      break;
    case 'authenticating':
      if (m._shouldFallBack) {
        m._enter('dialing', e);
        m._leave(e);
        m._choice._change();
        m._dial(e);
      }
  }
}

/** `woke`, from the shell. */
export function onWoke<E>(m: Steps<E>, e: E): void {
  switch (m.state) {
    case 'connected':
      m._planNow(e);
      m._enter('waiting', e);
      m._leave(e);
      m._attempts._schedule();
      break;
    case 'waiting':
    case 'suspended':
      if (m._hasToken) {
        m._resetRetry(e);
        m._enter('dialing', e);
        m._stop('retry');
        m._dial(e);
      } else {
        m._resetRetry(e);
        m._enter('resolving', e);
        m._stop('retry');
        m._fetchToken(e);
      }
  }
}

/** `offline`, from the shell. */
export function onOffline<E>(m: Steps<E>, e: E): void {
  if (m.state === 'connected') {
    if (m._hasPings) {
      m._stop('ping');
      m._check(e);
    }
  }
}

/** `auth.error`, from the frame. */
export function onAuthError<E>(m: Steps<E>, e: E): void {
  switch (m.state) {
    case 'authenticating':
      if (m._finalError(e)) {
        m._enter('failed', e);
        m._fail(e);
      } else if (m._authFault(e)) {
        m._planRetry(e);
        m._enter(m._overdue ? 'suspended' : 'waiting', e);
        m._leave(e);
        m._forgetToken(e);
        m._attempts._schedule();
      } else {
        m._planRetry(e);
        m._enter(m._overdue ? 'suspended' : 'waiting', e);
        m._leave(e);
        m._countFailure(e);
        m._attempts._schedule();
      }
      break;
    case 'connected':
      if (m._finalError(e)) {
        m._enter('failed', e);
        m._fail(e);
      } else if (m._authFault(e)) {
        m._planRetry(e);
        m._enter('waiting', e);
        m._leave(e);
        m._forgetToken(e);
        m._attempts._schedule();
      } else {
        m._planRetry(e);
        m._enter('waiting', e);
        m._leave(e);
        m._attempts._schedule();
      }
  }
}

/** `drained`, from the session. */
export const onDrained: typeof onAbort = onAbort;

/** `called`, from the session. */
export function onCalled<E>(m: Steps<E>, e: E): void {
  if (m.state === 'waiting' || m.state === 'suspended') {
    if (m._hasToken) {
      m._enter('dialing', e);
      m._stop('retry');
      m._attempts._shorten();
      m._dial(e);
    } else {
      m._enter('resolving', e);
      m._stop('retry');
      m._attempts._shorten();
      m._fetchToken(e);
    }
  }
}

/** What happens when a timer runs out. */
export const ON_TIMER: Readonly<Record<string, <E>(m: Steps<E>, e: E) => void>> = {
  fetch(m, e) {
    switch (m.state) {
      case 'resolving':
        m._planRetry(e);
        m._enter(m._overdue ? 'suspended' : 'waiting', e);
        m._credentials._abandon();
        m._attempts._schedule();
        break;
      case 'dialing':
      case 'authenticating':
      case 'waiting':
      case 'suspended':
        m._credentials._abandon();
        break;
      case 'connected':
        m._credentials._abandon();
        m._scheduleRefetch(e);
    }
  },
  open(m, e) {
    m._planRetry(e);
    m._enter(m._overdue ? 'suspended' : 'waiting', e);
    m._leave(e);
    m._countFailure(e);
    m._attempts._schedule();
  },
  ping(m, e) {
    if (m.state === 'connected') {
      m._sendPing(e);
      m._start('pong');
    }
  },
  pong(m, e) {
    if (m.state === 'connected') {
      if (m._dataArrived(e)) {
        m._start('ping');
      } else {
        m._planRetry(e);
        m._enter('waiting', e);
        m._leave(e);
        m._attempts._schedule();
      }
    }
  },
  retry(m, e) {
    if (m._hasToken) {
      m._enter('dialing', e);
      m._dial(e);
    } else {
      m._enter('resolving', e);
      m._fetchToken(e);
    }
  },
  refresh(m, e) {
    if (m.state === 'connected') {
      m._fetchToken(e);
    }
  },
  expiry(m, e) {
    switch (m.state) {
      case 'dialing':
      case 'authenticating':
      case 'waiting':
      case 'suspended':
        m._forgetToken(e);
        break;
      case 'connected':
        m._forgetToken(e);
        m._fetchToken(e);
    }
  },
  stable(m, e) {
    if (m.state === 'connected') {
      m._resetRetry(e);
      m._noteStable(e);
    }
  },
  suspend(m, e) {
    if (m.state === 'waiting') {
      m._enter('suspended', e);
    }
  },
  fallback(m, e) {
    switch (m.state) {
      case 'resolving':
      case 'waiting':
      case 'suspended':
        if (m._shouldFallBack) {
          m._choice._change();
        }
        break;
      case 'dialing':
        if (m._shouldFallBack) {
          m._leave(e);
          m._choice._change();
          m._dial(e);
        } else {
          m._probeHttp(e);
        }
        break;
      case 'authenticating':
        if (m._shouldFallBack) {
          m._enter('dialing', e);
          m._leave(e);
          m._choice._change();
          m._dial(e);
        } else {
          m._probeHttp(e);
        }
    }
  },
  upgrade(m, e) {
    if (m.state === 'connected') {
      m._probe(e);
    }
  },
  drain(m, e) {
    m._enter('closed', e);
    m._finish(e);
  },
};
