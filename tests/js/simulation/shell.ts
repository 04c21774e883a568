/**
 * The driver in virtual time: performs effects, owns timers and tokens, and causes network faults.
 */

import type { ClientFrame, PresenceMember, ServerFrame } from '../../../js/src/generated/wire.js';
import { SeqCursor } from '../../../js/src/session/cursor.js';
import type { Outcome, TimerName, TransportName } from '../../../js/src/session/ports.js';
import type { OperatedSession } from '../../../js/src/session/session.js';
import {
  type Deliver,
  type Effect,
  type Event,
  type Fetch,
  type Finished,
  type Gap,
  type Joined,
  type PresenceChanged,
  RecordedSession,
} from '../traces/events.js';
import { canonical, showEffect } from '../traces/mapping.js';
import type { Profile } from './profile.js';
import { Connection, type Start } from './records.js';
import type { Server } from './server.js';
import type { World } from './world.js';

/** Frames that an event stream carries and that are lost when another stream replaces it. */
const STREAMED: readonly string[] = ['subscribed', 'message', 'presence.snapshot'];

/** One transport: frames arrive in order, after a delay, until it is cut. */
export class Link {
  alive = true;
  frozen = false;
  lastReceived: number;
  turn = 0;
  readonly connection: Connection;
  private _arrivesUp = 0;
  private _arrivesDown = 0;

  constructor(
    private readonly _shell: Shell,
    readonly transport: TransportName,
  ) {
    this.lastReceived = _shell.world.now;
    this.connection = new Connection(
      (frame) => this._down(frame),
      (code, reason, retryAfter) => this._closedByServer(code, reason, retryAfter),
    );
  }

  private _arrival(last: number): number {
    const { world } = this._shell;
    return Math.max(last, world.now + world.random.between(1, 20));
  }

  /** Carry a frame to the server. */
  up(frame: ClientFrame): void {
    const { world, server } = this._shell;
    this._arrivesUp = this._arrival(this._arrivesUp);
    world.after(this._arrivesUp - world.now, () => {
      if (this.alive && !this.frozen && this.connection.open) {
        server.receive(this.connection, frame);
      }
    });
  }

  /** Carry a frame to the client. */
  private _down(frame: ServerFrame): void {
    const { world } = this._shell;
    this._arrivesDown = this._arrival(this._arrivesDown);
    const { stream } = this.connection;
    world.after(this._arrivesDown - world.now, () => {
      // The frame is lost if another event stream has replaced its stream.
      if (stream !== this.connection.stream && STREAMED.includes(frame.type)) return;
      if (this.alive && !this.frozen) {
        this.lastReceived = world.now;
        this._shell.received(frame);
      }
    });
  }

  /** The server closes the connection. Frames that it sent before still arrive. */
  private _closedByServer(code: number, reason: string, retryAfter: number | undefined): void {
    const { world, server } = this._shell;
    server.closed(this.connection);
    this._arrivesDown = this._arrival(this._arrivesDown);
    world.after(this._arrivesDown - world.now, () => this._drop(code, reason, retryAfter));
  }

  /** Lose the connection, with all frames in flight. */
  cut(code: number | undefined, retryAfter?: number): void {
    if (this.alive) {
      this._shell.server.closed(this.connection);
      this._drop(code, 'cut', retryAfter);
    }
  }

  private _drop(code: number | undefined, reason: string, retryAfter: number | undefined): void {
    if (this.alive && !this.frozen) {
      this.alive = false;
      this._shell.link = undefined;
      this._shell.feed({ kind: 'dropped', code, reason, retryAfter });
    }
  }

  /** The client closes the connection. */
  hangUp(): void {
    this.alive = false;
    this._shell.server.closed(this.connection);
  }
}

/** Feeds events to a session and performs its effects. */
export class Shell {
  readonly session: OperatedSession;
  private readonly _recorded: RecordedSession;
  link: Link | undefined;
  /** The log of the run in canonical form. */
  readonly lines: string[] = [];
  /** Deliveries and gaps of each subscription, in order. */
  readonly streams = new Map<number, (Deliver | Gap)[]>();
  readonly joined = new Map<number, Joined[]>();
  /** The start of each subscription. */
  readonly starts = new Map<number, Start>();
  /** Members by subscription, topic and client id. */
  readonly presence = new Map<number, Map<string, ReadonlyMap<string, PresenceMember>>>();
  readonly outcomes = new Map<number, Outcome[]>();
  readonly finished: Finished[] = [];
  private _answer = '';
  /** While the timer `grace` fires: the rooms that the subscriptions knew before. */
  private _expiring: ReadonlySet<string> | undefined;
  readonly timers = new Map<TimerName, number>();
  private readonly _fetches = new Set<number>();
  private _tokens = 0;

  constructor(
    readonly world: World,
    readonly server: Server,
    private readonly _profile: Profile,
  ) {
    this._recorded = new RecordedSession(_profile.options, () => world.random.unit());
    this.session = this._recorded.session;
  }

  /** Feed one event to the session, and perform its effects. */
  feed(event: Event): void {
    const produced = this._recorded.handle(event);
    this.lines.push(`${this.world.now} ${showEvent(event)}`);
    for (const effect of produced) this.lines.push(canonical(showEffect(effect)));
    for (const effect of produced) this._perform(effect);
  }

  /** Position of each topic of a subscription. */
  positions(sub: number): ReadonlyMap<string, unknown> {
    const cursor = this.session.operations.subscriptions.all.get(sub)?.cursor;
    const marks = cursor instanceof SeqCursor ? cursor.marks : [];
    return new Map([...marks].filter(([, mark]) => mark));
  }

  /** A frame has arrived. */
  received(frame: ServerFrame): void {
    if (frame.type === 'subscribed') this._answer = frame.ref ?? frame.topics.join();
    this.feed({ kind: 'received', frame, at: this.world.now });
  }

  // ---------------------------------------------------------------- effects

  private _perform(effect: Effect): void {
    switch (effect.kind) {
      case 'fetch':
        this._fetch(effect);
        break;
      case 'abandonFetch':
        this._fetches.delete(effect.id);
        break;
      case 'dial':
        this._dial(effect.transport);
        break;
      case 'hangUp':
        if (!this.link) throw new Error('nothing to hang up');
        this.link.hangUp();
        this.link = undefined;
        break;
      case 'send':
        this._send(effect.frame);
        break;
      case 'startTimer':
        this._startTimer(effect.name, effect.after);
        break;
      case 'cancelTimer':
        if (!this.timers.delete(effect.name)) throw new Error(`${effect.name} does not run`);
        break;
      case 'probeHttp':
        this.world.after(100, () => this.feed({ kind: 'answered', ok: this.world.now % 3 > 0 }));
        break;
      case 'probe':
        this.world.after(100, () => this.feed({ kind: 'probed', ok: !this._blocked() }));
        break;
      case 'deliver':
      case 'gap':
        append(this.streams, effect.sub, effect);
        break;
      case 'joined':
        this._join(effect);
        break;
      case 'presenceChanged':
        this._present(effect);
        break;
      case 'settle':
        append(this.outcomes, effect.ref, effect.outcome);
        break;
      case 'finished':
        this.finished.push(effect);
        break;
      default: // states and problems
    }
  }

  private _join(effect: Joined): void {
    if (!this.joined.has(effect.sub)) {
      const start = this.link?.connection.starts.get(this._answer);
      if (start) this.starts.set(effect.sub, start);
    }
    append(this.joined, effect.sub, effect);
  }

  /** Check that a change fits the previous members and the new ones. */
  private _present({ sub, topic, member, change, members }: PresenceChanged): void {
    const rooms = this.presence.get(sub) ?? new Map<string, ReadonlyMap<string, PresenceMember>>();
    this.presence.set(sub, rooms);
    const isNew = this._expiring?.has(`${sub} ${topic}`) === false;
    const before = isNew ? undefined : rooms.get(topic);
    const after = new Map(members.map((one) => [one.client_id, one]));
    // A subscription that starts later, or was denied for a while, misses earlier changes.
    if (member && before && !this._profile.deniesNow) {
      const { client_id: id } = member;
      if (before.has(id) === ['join', 'connect'].includes(change))
        throw new Error(`${change} twice`);
      const expected = new Set(before.keys());
      if (['leave', 'disconnect'].includes(change)) expected.delete(id);
      else expected.add(id);
      if (this._expiring) {
        // All members that leave together are missing from each list.
        if ([...after.keys()].some((one) => !expected.has(one))) {
          throw new Error(`${change} adds others`);
        }
        rooms.set(topic, new Map([...before].filter(([one]) => expected.has(one))));
        return;
      }
      if ([...after.keys()].sort().join() !== [...expected].sort().join()) {
        throw new Error(`${change} changes others`);
      }
    }
    rooms.set(topic, after);
  }

  private _fetch({ id }: Fetch): void {
    if (this._fetches.size) throw new Error('two token callbacks in flight');
    this._fetches.add(id);
    const { world, _profile: profile } = this;
    if (world.fault(profile.callbackFails)) {
      world.after(50, () => {
        this._fetched(id, { kind: 'tokenFailed', fetch: id, refused: false, message: '503' });
      });
      return;
    }
    this._tokens += 1;
    const value = `t${this._tokens}`;
    const life = profile.tokenLife && !world.calm ? profile.tokenLife : 10_000_000;
    const took = world.fault(profile.callbackHangs) ? 12_000 : world.random.between(1, 300);
    world.after(took, () => {
      this.server.tokens.set(value, world.now + life);
      const expiresIn = world.random.chance(500) ? life : undefined;
      this._fetched(id, { kind: 'token', fetch: id, value, expiresIn });
    });
  }

  private _fetched(id: number, event: Event): void {
    this._fetches.delete(id);
    this.feed(event); // the answer arrives even if no call waits for it
  }

  private _blocked(): boolean {
    return this._profile.websocketBlocked && !this.world.calm;
  }

  private _dial(transport: TransportName): void {
    if (this.link) throw new Error('two transports at a time');
    const link = new Link(this, transport);
    this.link = link;
    const { world, _profile: profile } = this;
    if (transport === 'websocket' && this._blocked()) {
      world.after(30, () => link.cut(undefined));
    } else if (world.fault(profile.refusesDial)) {
      const retryAfter = world.random.pick([undefined, undefined, 700]);
      world.after(30, () => link.cut(retryAfter === undefined ? 1006 : 1013, retryAfter));
    } else if (!world.fault(profile.blackHole)) {
      world.after(world.random.between(1, 50), () => {
        if (link.alive) {
          this.server.opened(link.connection);
          this.feed({ kind: 'opened', incremental: transport === 'websocket' });
        }
      });
    }
  }

  private _send(frame: ClientFrame): void {
    const { link } = this;
    if (!link) throw new Error('no transport to send on');
    if (link.transport === 'sse' && frame.type === 'subscribe' && link.turn !== this.world.now) {
      // The first `subscribe` of a turn opens another stream; frames in flight are lost.
      link.turn = this.world.now;
      link.connection.stream += 1;
      link.connection.patterns.clear();
      link.connection.watched.clear();
    }
    link.up(frame);
  }

  private _startTimer(name: TimerName, after: number): void {
    const number = this.world.after(after, () => {
      if (this.timers.get(name) !== number) return;
      this.timers.delete(name);
      const { link } = this;
      let idle = link ? this.world.now - link.lastReceived : 0;
      // Keepalive comments arrive on an event stream.
      if (link?.transport === 'sse' && !link.frozen) idle = Math.min(idle, 15_000);
      if (name === 'grace') {
        const known = [...this.presence].flatMap(([sub, rooms]) =>
          [...rooms.keys()].map((topic) => `${sub} ${topic}`),
        );
        this._expiring = new Set(known);
      }
      this.feed({ kind: 'timerFired', name, idle });
      this._expiring = undefined;
    });
    this.timers.set(name, number);
  }
}

function append<Key, Value>(lists: Map<Key, Value[]>, key: Key, value: Value): void {
  const list = lists.get(key) ?? [];
  lists.set(key, list);
  list.push(value);
}

function showEvent(event: Event): string {
  const name = event.kind.charAt(0).toUpperCase() + event.kind.slice(1);
  switch (event.kind) {
    case 'received':
      return `${name} ${canonical(event.frame)}`;
    case 'timerFired':
      return `${name} ${event.name} ${event.idle}`;
    case 'publish':
      return `${name} ${event.ref}`;
    case 'subscribe':
      return `${name} ${event.sub}`;
    default:
      return name;
  }
}
