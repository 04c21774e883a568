/** The driver in virtual time: performs effects, owns timers, tokens and the network's faults. */

import type { ClientFrame, ServerFrame } from '../../../js/src/generated/wire.js';
import type { Effect, Fetch, TransportName } from '../../../js/src/session/effects.js';
import type { Event, TimerName } from '../../../js/src/session/events.js';
import { PlainPeers } from '../../../js/src/session/plain/peers.js';
import { Presence } from '../../../js/src/session/presence.js';
import { Rare } from '../../../js/src/session/rare.js';
import { Session } from '../../../js/src/session/session.js';
import { canonical, showEffect } from '../traces/mapping.js';
import type { Profile } from './profile.js';
import { Connection, type Server } from './server.js';
import type { World } from './world.js';

/** One transport: frames arrive in order, after a while, until it is cut. */
class Link {
  alive = true;
  frozen = false;
  heard: number;
  turn = 0;
  readonly connection: Connection;
  private _arrivesUp = 0;
  private _arrivesDown = 0;

  constructor(
    private readonly _shell: Shell,
    readonly transport: TransportName,
  ) {
    this.heard = _shell.world.now;
    this.connection = new Connection(
      (frame) => this._down(frame),
      (code, reason, retryAfter) => this._closedByServer(code, reason, retryAfter),
    );
  }

  private _arrival(last: number): number {
    const { world } = this._shell;
    return Math.max(last, world.now + world.random.between(1, 20));
  }

  /** A frame on its way to the server. */
  up(frame: ClientFrame): void {
    const { world, server } = this._shell;
    this._arrivesUp = this._arrival(this._arrivesUp);
    world.after(this._arrivesUp - world.now, () => {
      if (this.alive && !this.frozen && this.connection.open) {
        server.receive(this.connection, frame);
      }
    });
  }

  /** A frame on its way to the client. */
  private _down(frame: ServerFrame): void {
    const { world } = this._shell;
    this._arrivesDown = this._arrival(this._arrivesDown);
    const { stream } = this.connection;
    world.after(this._arrivesDown - world.now, () => {
      const streamed = frame.type === 'subscribed' || frame.type === 'message';
      // A frame of an event stream that another one has replaced is lost.
      if (streamed && stream !== this.connection.stream) return;
      if (this.alive && !this.frozen) {
        this.heard = world.now;
        this._shell.feed({ kind: 'received', frame, at: world.now });
      }
    });
  }

  /** The server closes: what it sent before still arrives. */
  private _closedByServer(code: number, reason: string, retryAfter: number | undefined): void {
    const { world, server } = this._shell;
    server.closed(this.connection);
    this._arrivesDown = this._arrival(this._arrivesDown);
    world.after(this._arrivesDown - world.now, () => this._drop(code, reason, retryAfter));
  }

  /** The connection is lost, and with it what is on its way. */
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

  /** The client closes. */
  hangUp(): void {
    this.alive = false;
    this._shell.server.closed(this.connection);
  }
}

/** Feeds a session and does what it says. */
export class Shell {
  readonly session: Session;
  link: Link | undefined;
  /** The log of the run in canonical form. */
  readonly lines: string[] = [];
  private readonly _timers = new Map<TimerName, number>();
  private readonly _fetches = new Set<number>();
  private _tokens = 0;

  constructor(
    readonly world: World,
    readonly server: Server,
    private readonly _profile: Profile,
  ) {
    this.session = new Session(_profile.options, () => world.random.unit());
    this.session.equip({ plain: PlainPeers, presence: Presence, rare: Rare });
  }

  /** One event into the session, its effects out of it. */
  feed(event: Event): void {
    const produced = this.session.handle(event);
    this.lines.push(`${this.world.now} ${showEvent(event)}`);
    for (const effect of produced) this.lines.push(canonical(showEffect(effect)));
    for (const effect of produced) this._perform(effect);
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
        if (!this._timers.delete(effect.name)) throw new Error(`${effect.name} does not run`);
        break;
      case 'probe':
        this.world.after(100, () => this.feed({ kind: 'probed', ok: !this._blocked() }));
        break;
      default: // told to users
    }
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
    this.feed(event); // an answer that nobody waits for any more comes all the same
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
      // The first `subscribe` of a turn opens another stream; what was on its way is lost.
      link.turn = this.world.now;
      link.connection.stream += 1;
      link.connection.patterns.clear();
    }
    link.up(frame);
  }

  private _startTimer(name: TimerName, after: number): void {
    const number = this.world.after(after, () => {
      if (this._timers.get(name) !== number) return;
      this._timers.delete(name);
      const { link } = this;
      let idle = link ? this.world.now - link.heard : 0;
      // Comments keep an event stream alive.
      if (link?.transport === 'sse' && !link.frozen) idle = Math.min(idle, 15_000);
      this.feed({ kind: 'timerFired', name, idle });
    });
    this._timers.set(name, number);
  }
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
