/** One run from one seed: a scenario, faults and a calm end. */

import { createHash } from 'node:crypto';

import type { Publish, Subscribe } from '../../../js/src/session/ports.js';
import type { SendPolicy } from '../../../js/src/settings/options.js';
import {
  checkEnd,
  checkPresence,
  checkPublishes,
  checkStream,
  checkUpdates,
  Said,
  Violation,
} from './checks.js';
import { drawProfile, PATTERNS, PEOPLE, type Profile, SECRET, TOPICS } from './profile.js';
import { covers } from './records.js';
import { Server } from './server.js';
import { type Link, Shell } from './shell.js';
import { START, World } from './world.js';

/** Milliseconds with faults. */
const ROUGH = 60_000;

/** Milliseconds without faults, in which everything must recover. */
const CALM = 60_000;

/** The `ref` of the first update of presence, above those of all publishes. */
const UPDATES = 1_000_000;

const POLICIES: readonly SendPolicy[] = ['error', 'drop_oldest', 'latest'];

/** A running scenario. */
export class Run {
  readonly shell: Shell;
  private readonly _world: World;
  private readonly _profile: Profile;
  private readonly _server: Server;
  private readonly _subscriptions: Subscribe[] = [];
  private readonly _publishes: Publish[] = [];
  private readonly _ended = new Set<number>();
  /**
   * By subscription, the logs that were lost before it had a position in them, as `topic number`.
   */
  private readonly _unseen = new Map<number, Set<string>>();
  private readonly _lost = new Set<string>();
  private readonly _said = new Said();
  private _updates = 0;

  constructor(seed: number) {
    this._world = new World(seed);
    this._profile = drawProfile(this._world.random);
    this._server = new Server(this._world, this._profile);
    this.shell = new Shell(this._world, this._server, this._profile);
    this._server.onReset = (topic, number) => this._reset(topic, number);
  }

  /** Run the scenario from the first event to the last. */
  run(): void {
    const { _world: world, shell } = this;
    const { random } = world;
    for (let n = random.between(1, 3); n > 0; n -= 1) this._subscribe();
    shell.feed({ kind: 'connect' });
    world.after(0, () => this._step());
    world.run(START + ROUGH);
    this._calm();
    world.run(START + ROUGH + CALM);
    // An earlier token may have expired.
    if (shell.session.lifecycle.state !== 'connected') world.run(world.now + 10_000);
    if (shell.session.lifecycle.state !== 'connected') {
      throw new Violation(`${shell.session.lifecycle.state} although all is calm`);
    }
    this._checkStreams();
    checkUpdates(shell, UPDATES, this._updates);
    for (let n = random.below(4); n > 0; n -= 1) this._publish();
    this._say();
    shell.feed(random.chance(700) ? { kind: 'close' } : { kind: 'abort' });
    world.run(world.now + 20_000);
    checkEnd(shell);
    const { limitsRate, idempotent } = this._profile;
    checkPublishes(this._server, shell, this._publishes, !limitsRate && idempotent);
    checkUpdates(shell, UPDATES, this._updates);
  }

  private _checkStreams(): void {
    const { _server: server, _profile: profile, shell } = this;
    for (const event of this._subscriptions) {
      if (this._ended.has(event.sub)) continue;
      checkStream(server, shell, event, this._unseen.get(event.sub) ?? new Set());
      if (event.presence && !profile.plain) checkPresence(server, shell, event);
    }
    // Skip it if the server rejects updates for now.
    if (!profile.plain && !profile.refusesNow && !profile.deniesNow) this._said.check(server);
  }

  private _calm(): void {
    this._world.calm = true;
    const { link } = this.shell;
    if (link?.frozen) {
      link.frozen = false;
      link.cut(1006);
    }
    // The loss of a live message is noticed when the next one arrives.
    for (const topic of TOPICS) this._world.after(30_000, () => this._server.publish(topic));
  }

  // ---------------------------------------------------------------- the scenario

  /** Perform one random action, and schedule the next one. */
  private _step(): void {
    const { _world: world, _profile: profile, shell } = this;
    const { random } = world;
    if (world.calm) return;
    world.after(random.between(0, 800), () => this._step());
    const what = random.below(100);
    if (what < 55) {
      const burst = profile.plain && random.chance(15) ? 130 : random.between(1, 4);
      const topic = random.pick(TOPICS);
      for (let n = 0; n < burst; n += 1) this._publishElsewhere(topic);
    } else if (what < 75) {
      this._publish();
    } else if (what < 80) {
      this._subscribe();
    } else if (what < 83) {
      this._unsubscribe();
    } else if (what < 85) {
      shell.feed({ kind: 'woke' });
    } else if (what < 87 && this._publishes.length) {
      shell.feed({ kind: 'expire', ref: random.pick(this._publishes).ref });
    } else if (what < 91) {
      this._say();
    } else if (world.fault(profile.people)) {
      for (let n = random.between(1, 4); n > 0; n -= 1) this._others();
    }
    if (world.fault(profile.resets)) this._server.reset(random.pick(TOPICS));
    const link = this._connected();
    if (link) {
      if (world.fault(profile.cuts)) this._cut(link, 40);
      else if (world.fault(profile.freezes)) link.frozen = true;
    }
  }

  /** The link of a session that is connected and receives from the server. */
  private _connected(): Link | undefined {
    const { link, session } = this.shell;
    return link?.frozen || session.lifecycle.state !== 'connected' ? undefined : link;
  }

  /** Lose the connection within so many milliseconds. */
  private _cut(link: Link, within: number): void {
    const { random } = this._world;
    const code = random.pick([1006, 1006, undefined, 1001, 1011, 4500, 4408]);
    this._world.after(random.between(0, within), () => {
      if (!link.frozen) link.cut(code);
    });
  }

  private _publishElsewhere(topic: string): void {
    let ttl: number | undefined;
    if (this._world.random.chance(this._profile.shortTtl)) {
      ttl = this._world.random.pick([0, 1, 3]);
      // A plain peer cannot report whether it dropped this message or its neighbours.
      if (this._profile.plain && ttl) ttl = undefined;
    }
    this._server.publish(topic, undefined, ttl);
  }

  private _publish(): void {
    const { random } = this._world;
    const ref = this._publishes.length + 1;
    const batch = random.chance(200);
    const topic = random.chance(30) ? SECRET : random.pick(TOPICS);
    const policy = random.pick(POLICIES);
    const count = batch ? random.between(1, 3) : 1;
    const messages = Array.from({ length: count }, (_, n) => {
      return { topic, type: 'message', data: ref, id: `c${ref}-${n}` };
    });
    const key = policy === 'latest' && !batch ? 'k' : undefined;
    const size = 100 * count;
    const background = ref % 5 === 0;
    const event: Publish = { ref, messages, size, policy, key, batch, background };
    this._publishes.push(event);
    this.shell.feed({ kind: 'publish', ...event });
  }

  private _subscribe(): void {
    const { random, now } = this._world;
    if (this._subscriptions.length >= 8) return;
    const sub = this._subscriptions.length + 1;
    const topics = new Set<string>();
    for (let n = random.between(1, 2); n > 0; n -= 1) topics.add(random.pick(PATTERNS));
    if (random.chance(100)) topics.add(SECRET);
    const { plain } = this._profile;
    let since = random.chance(300) || plain ? now : undefined;
    if (plain) since = random.pick([since, since, now - 3_000, undefined]);
    const presence = random.chance(300);
    let history = random.pick([undefined, undefined, undefined, 1, 5]);
    const known = random.chance(200) ? random.pick(TOPICS) : '';
    const after = new Map<string, number>();
    const log = this._server.logs.get(known);
    if (log && !plain && covers(topics, known)) {
      after.set(known, log.base - 1 + random.below(log.next - log.base + 1));
      history = undefined;
    }
    if (plain) history = undefined;
    const others = { since, history, after, presence };
    const event: Subscribe = { sub, topics: [...topics], ...others };
    this._subscriptions.push(event);
    this._unseen.set(sub, new Set(this._lost));
    this.shell.feed({ kind: 'subscribe', ...event });
    const link = this._connected();
    // The replay must have messages from before `since`.
    if (plain && link && this._world.fault(300)) this._cut(link, 3_000);
  }

  /** A log is lost. A subscription without a position in it cannot know its content. */
  private _reset(topic: string, number: number): void {
    const log = `${topic} ${number}`;
    this._lost.add(log);
    for (const { sub } of this._subscriptions) {
      if (!this.shell.positions(sub).has(topic)) this._unseen.get(sub)?.add(log);
    }
  }

  private _unsubscribe(): void {
    if (!this._subscriptions.length) return;
    const { sub, topics } = this._world.random.pick(this._subscriptions);
    this._ended.add(sub);
    this._said.forget(topics);
    this.shell.feed({ kind: 'unsubscribe', sub });
  }

  /** The user updates its presence. */
  private _say(): void {
    const { random } = this._world;
    const topic = random.pick([undefined, ...TOPICS]);
    const key = random.pick(['status', 'cursor', 'cursor']);
    const value = key === 'status' || random.chance(800) ? `s${random.below(100)}` : null;
    for (const { sub } of this._subscriptions) {
      const joined = this._ended.has(sub) ? undefined : this.shell.joined.get(sub)?.at(-1);
      for (const name of joined?.topics ?? []) {
        if (topic === undefined ? TOPICS.includes(name) : name === topic) {
          this._said.say(name, key, value);
        }
      }
    }
    const ref = UPDATES + this._updates;
    this._updates += 1;
    this.shell.feed({ kind: 'updatePresence', topic, data: { [key]: value }, ref });
  }

  /** Another user joins, leaves, or updates its presence. */
  private _others(): void {
    const { random } = this._world;
    const { rooms } = this._server;
    const topic = random.pick(TOPICS);
    const who = random.pick(PEOPLE);
    const what = random.below(3);
    if (what === 0) rooms.leave(topic, who);
    else if (what === 1) rooms.enter(topic, who);
    else rooms.update(topic, who, { status: `s${random.below(100)}` });
  }
}

/** Run a seed; returns its log. */
export function simulate(seed: number): readonly string[] {
  const run = new Run(seed);
  run.run();
  return run.shell.lines;
}

/** The digest of a log. */
export function digest(lines: readonly string[]): string {
  return createHash('sha256').update(lines.join('\n')).digest('hex');
}
