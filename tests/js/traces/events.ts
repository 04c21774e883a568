/** The events and effects of a session as data, for traces and logs of simulations. */

import { compact, type Loose } from '../../../js/src/compact.js';
import { needsDialect } from '../../../js/src/dialects/needs_dialect.js';
import { PlainDialect } from '../../../js/src/dialects/plain/plain_dialect.js';
import type { Gap as GapOf } from '../../../js/src/gap.js';
import type {
  AuthFrame,
  ClientFrame,
  Denial,
  Envelope,
  ErrorInfo,
  JsonObject,
  ServerFrame,
} from '../../../js/src/generated/wire.js';
import { Operations } from '../../../js/src/session/operations.js';
import type {
  DeliveryPorts,
  Outcome,
  OutcomePort,
  Ports,
  Publish,
  Rejected,
  StateChanged,
  Subscribe,
  TimerName,
  TransportName,
} from '../../../js/src/session/ports.js';
import { type OperatedSession, Session } from '../../../js/src/session/session.js';
import type { SessionOptions } from '../../../js/src/settings/session.js';
import type { PresenceChange, TokenReason } from '../../../js/src/values.js';

/** A call of a session's method, as data. */
export type Event =
  | { readonly kind: 'connect'; readonly opened?: boolean }
  | { readonly kind: 'close'; readonly wait?: number }
  | { readonly kind: 'abort' | 'offline' | 'woke' }
  | {
      readonly kind: 'token';
      readonly fetch: number;
      readonly value: string;
      readonly expiresIn?: number | undefined;
    }
  | {
      readonly kind: 'tokenFailed';
      readonly fetch: number;
      readonly refused: boolean;
      readonly message: string;
    }
  | { readonly kind: 'opened'; readonly incremental: boolean }
  | {
      readonly kind: 'dropped';
      readonly code: number | undefined;
      readonly reason: string;
      readonly retryAfter?: number | undefined;
    }
  | { readonly kind: 'probed' | 'answered'; readonly ok: boolean }
  | { readonly kind: 'received'; readonly frame: ServerFrame; readonly at: number }
  | { readonly kind: 'receivedMessages'; readonly messages: readonly ServerFrame[] }
  | { readonly kind: 'timerFired'; readonly name: TimerName; readonly idle: number }
  | ({ readonly kind: 'subscribe' } & Subscribe)
  | { readonly kind: 'unsubscribe'; readonly sub: number }
  | ({ readonly kind: 'publish' } & Publish)
  | { readonly kind: 'expire'; readonly ref: number }
  | {
      readonly kind: 'updatePresence';
      readonly topic: string | undefined;
      readonly data: JsonObject;
      readonly ref: number;
    };

export type Fetch = {
  readonly kind: 'fetch';
  readonly id: number;
  readonly reason: TokenReason;
  readonly attempt: number;
};
export type Deliver = {
  readonly kind: 'deliver';
  readonly sub: number;
  readonly message: Envelope;
};
export type Gap = { readonly kind: 'gap'; readonly sub: number } & GapOf;
export type Joined = {
  readonly kind: 'joined';
  readonly sub: number;
  readonly topics: readonly string[];
  readonly denied: readonly Denial[];
};
export type PresenceChanged = {
  readonly kind: 'presenceChanged';
  readonly sub: number;
} & PresenceChange;
export type Finished = { readonly kind: 'finished'; readonly error: Rejected | undefined };

/** A call of a port, as data. */
export type Effect =
  | ({ readonly kind: 'stateChanged' } & StateChanged)
  | Fetch
  | { readonly kind: 'abandonFetch'; readonly id: number }
  | { readonly kind: 'dial'; readonly transport: TransportName }
  | { readonly kind: 'hangUp'; readonly code: number }
  | { readonly kind: 'send'; readonly frame: ClientFrame }
  | { readonly kind: 'startTimer'; readonly name: TimerName; readonly after: number }
  | { readonly kind: 'cancelTimer'; readonly name: TimerName }
  | { readonly kind: 'probe' }
  | { readonly kind: 'probeHttp'; readonly auth: Loose<AuthFrame> }
  | Deliver
  | Gap
  | Joined
  | PresenceChanged
  | { readonly kind: 'settle'; readonly ref: number; readonly outcome: Outcome }
  | ({ readonly kind: 'problem' } & Loose<ErrorInfo>)
  | Finished;

/** A session whose ports record its effects; with all parts, and with a dialect if needed. */
export class RecordedSession {
  readonly session: OperatedSession;
  private _effects: Effect[] = [];
  private _dialect: PlainDialect | undefined;

  constructor(options: SessionOptions, random: () => number) {
    const ports = this._ports();
    const session = new Session(options, ports, random);
    session.lifecycle.operations = new Operations(session, ports, ports);
    this.session = session as OperatedSession;
  }

  /** Feed an event to the session; returns its effects in order. */
  handle(event: Event): Effect[] {
    this._effects = [];
    this._hand(event);
    return this._effects;
  }

  private _hand(event: Event): void {
    const { session } = this;
    switch (event.kind) {
      case 'connect':
        session.connect(event.opened);
        break;
      case 'close':
        session.close(event.wait);
        break;
      case 'abort':
        session.abort();
        break;
      case 'offline':
        session.offline();
        break;
      case 'woke':
        session.woke();
        break;
      case 'token':
        session.token(event.fetch, event.value, event.expiresIn);
        break;
      case 'tokenFailed':
        session.tokenFailed(event.fetch, event.refused, event.message);
        break;
      case 'opened':
        session.opened(event.incremental);
        break;
      case 'dropped':
        session.dropped(event.code, event.reason, event.retryAfter);
        break;
      case 'probed':
        session.probed(event.ok);
        break;
      case 'answered':
        session.answered(event.ok);
        break;
      case 'received':
        this._receive(event.frame, event.at);
        break;
      case 'receivedMessages':
        for (const frame of event.messages) this._receive(frame, 0);
        break;
      case 'timerFired':
        session.timerFired(event.name, event.idle);
        break;
      case 'subscribe':
        session.operations.subscribe(event);
        break;
      case 'unsubscribe':
        session.operations.unsubscribe(event.sub);
        break;
      case 'publish':
        session.operations.publish(event);
        break;
      case 'expire':
        session.operations.expire([event.ref]);
        break;
      case 'updatePresence':
        session.operations.updatePresence(event.topic, event.data, event.ref);
        break;
    }
  }

  private _receive(frame: ServerFrame, at: number): void {
    const { session } = this;
    if (frame.type === 'auth.ok') {
      if (!needsDialect(frame)) this._dialect = undefined;
      else this._dialect ??= new PlainDialect(session, (sent) => this._sent(sent));
    }
    (this._dialect ?? session).receive(frame, at);
  }

  private _add(effect: Effect): void {
    this._effects.push(effect);
  }

  private _sent(frame: ClientFrame): void {
    this._add({ kind: 'send', frame });
  }

  private _ports(): Ports & DeliveryPorts & OutcomePort {
    return {
      stateChanged: (change) => this._add({ kind: 'stateChanged', ...change }),
      welcomed: () => {},
      fetchToken: (id, reason, attempt) => this._add({ kind: 'fetch', id, reason, attempt }),
      abandonFetch: (id) => this._add({ kind: 'abandonFetch', id }),
      dial: (transport) => {
        this._dialect = undefined;
        this._add({ kind: 'dial', transport });
      },
      hangUp: (code) => this._add({ kind: 'hangUp', code }),
      send: (frame) => {
        if (this._dialect) this._dialect.send(frame);
        else this._sent(compact(frame) as ClientFrame);
      },
      startTimer: (name, after) => this._add({ kind: 'startTimer', name, after }),
      cancelTimer: (name) => this._add({ kind: 'cancelTimer', name }),
      probe: (auth) => this._add(auth ? { kind: 'probeHttp', auth } : { kind: 'probe' }),
      deliver: (sub, message) => this._add({ kind: 'deliver', sub, message }),
      gap: (sub, gap) => this._add({ kind: 'gap', sub, ...gap }),
      joined: (sub, topics, denied) => this._add({ kind: 'joined', sub, topics, denied }),
      presenceChanged: (sub, change) => this._add({ kind: 'presenceChanged', sub, ...change }),
      settle: (ref, outcome) => this._add({ kind: 'settle', ref, outcome }),
      problem: (problem) => this._add({ kind: 'problem', ...problem }),
      finished: (error) => this._add({ kind: 'finished', error }),
    };
  }
}
