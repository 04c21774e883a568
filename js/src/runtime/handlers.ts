/** User code that the client calls: one at a time, in order, never from the reader. */

import type { PresenceMember } from '../generated/wire.js';
import type { Gap, Message, PresenceChange, SubscriptionEvent } from '../values.js';
import { call, type Handler } from './handler.js';
import type { Inbox } from './inbox.js';
import type { Listeners } from './listeners.js';
import { PARTS } from './parts.js';

/** Called with each message. */
export type MessageHandler<Data> = Handler<[message: Message<Data>]>;

/** Called with everybody present on the topic, and what changed. */
export type PresenceHandler = Handler<[members: readonly PresenceMember[], change: PresenceChange]>;

/** Called with each gap; `raise`: the iteration throws `MessagesMissed` for each. */
export type GapHandler = Handler<[gap: Gap]> | 'raise';

/**
 * Loads the state that missing messages led to (REC-4).
 *
 * The positions were taken down before the call, so everything after them follows as messages.
 */
export type StateLoader = Handler<[gap: Gap, positions: Readonly<Record<string, number>>]>;

/** @internal The handlers of one subscription, as the program gave them. */
export interface Given {
  readonly onMessage?: Handler<[Message]> | undefined;
  readonly onPresence?: PresenceHandler | undefined;
  readonly onGap?: GapHandler | undefined;
  readonly stateLoader?: StateLoader | undefined;
}

/** Topics of a subscription whose gap was logged; beyond that the oldest may be logged again. */
const LOGGED = 1_000;

/** @internal Calls the handlers of one subscription. */
export class Handlers {
  private readonly _logged = new Set<string>();

  /**
   * @param given What the program passed to `subscribe`.
   * @param _listeners Get gaps, and what handlers throw.
   */
  constructor(
    readonly given: Given,
    private readonly _listeners: Listeners,
  ) {}

  /**
   * Tell of a gap: load the state, then call `onGap`; log it where nothing handles it.
   *
   * @param seen Whether the program gets the gap itself.
   * @throws MessagesMissed `onGap` is `raise`.
   */
  async gap(gap: Gap, { positions }: Inbox, seen?: boolean): Promise<void> {
    const { stateLoader, onGap } = this.given;
    const heard = this._listeners.tell('gap', gap);
    await this._call(stateLoader, gap, Object.fromEntries(positions));
    if (onGap === 'raise') throw (await PARTS.background()).missed(gap);
    await this._call(onGap, gap);
    if (!(seen || heard || stateLoader || onGap)) await this._call(() => this._log(gap));
  }

  private async _log(gap: Gap): Promise<void> {
    const { _logged } = this;
    if (_logged.has(gap.topic)) return;
    _logged.add(gap.topic);
    if (_logged.size > LOGGED) _logged.delete(_logged.values().next().value as string);
    this._listeners.logger.warn((await PARTS.background()).unseen(gap));
  }

  /**
   * Hand everything of the inbox to the handlers until it has ended.
   *
   * A program that iterates messages itself has no `onMessage`; its inbox is not touched here.
   */
  async run(inbox: Inbox): Promise<void> {
    while (true) {
      for (let event = inbox.take(); event; event = inbox.take()) {
        // What is not asynchronous is not waited for: the next message follows at once.
        const called = this._handle(event, inbox);
        if (called) await called;
      }
      if (inbox.finished) return;
      await inbox.wait();
    }
  }

  private _handle(event: SubscriptionEvent, inbox: Inbox): Promise<void> | undefined {
    const { onMessage, onPresence } = this.given;
    if (event.kind === 'message') return this._call(onMessage, event.message);
    if (event.kind === 'gap') return this.gap(event.gap, inbox);
    return this._call(onPresence, event.presence.members, event.presence);
  }

  private _call<A extends unknown[]>(
    handler: Handler<A> | undefined,
    ...given: A
  ): Promise<void> | undefined {
    return call(handler, given, (error) => this._listeners.report(error));
  }
}
