// Generated from spec/lifecycle.yaml by `make generate`; do not edit.

import type { Steps } from './lifecycle.js';

/** `auth.ok`, from the frame. */
export function onAuthOk<E>(m: Steps<E>, e: E): void {
  switch (m.state) {
    case 'authenticating':
      if (m._draining) {
        m._enter('closing', e);
        m._accept(e);
        m._flush(e);
      } else {
        m._enter('connected', e);
        m._accept(e);
        m._start('stable');
        m._start('ping');
        m._choice._startUpgrade();
        m._rejoin(e);
        m._flush(e);
      }
      break;
    case 'connected':
      m._renew(e);
  }
}

/** `auth.expiring`, from the frame. */
export function onAuthExpiring<E>(m: Steps<E>, e: E): void {
  if (m.state === 'connected') {
    if (!m._tokenFresh(e)) {
      m._fetchToken(e);
    }
  }
}

/** `pong`, from the frame. */
export function onPong<E>(m: Steps<E>, _: E): void {
  if (m.state === 'connected') {
    m._stop('pong', 'ping');
    m._start('ping');
  }
}
