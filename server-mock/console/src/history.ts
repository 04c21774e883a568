/** Older messages of the shown topic, loaded page by page. */

import { NotFound, type PubSub } from '@hanzoai/pubsub';

import type { Feed } from './messages/feed.js';
import { notify } from './notices.js';
import { effect, Signal } from './reactive.js';

const PAGE = 50;

/** The state of loading. */
export type HistoryState = 'more' | 'loading' | 'beginning' | 'full' | 'failed';

/** Loads older messages. */
export class History {
  readonly state: Signal<HistoryState> = new Signal<HistoryState>('more');

  constructor(
    private readonly _ps: PubSub,
    private readonly _feed: Feed,
  ) {
    effect(() => {
      void _feed.narrowed.value;
      this.state.value = 'more';
    });
  }

  /** Load the page before the oldest shown message. */
  async older(): Promise<void> {
    const topic = this._feed.narrowed.peek();
    if (topic === undefined || this.state.peek() === 'loading') return;
    if (!this._feed.hasRoom) {
      this.state.value = 'full';
      return;
    }
    this.state.value = 'loading';
    const first = this._feed.scope.find((entry) => entry.kind === 'message');
    const before = first?.kind === 'message' ? first.message.id : undefined;
    let next: HistoryState = 'failed';
    try {
      const page = await Array.fromAsync(this._ps.history(topic, { before, limit: PAGE }));
      this._feed.prepend(topic, page);
      next = page.length < PAGE ? 'beginning' : 'more';
    } catch (error) {
      // The oldest shown message is no longer retained, and neither is anything before it.
      if (error instanceof NotFound) next = 'beginning';
      else notify(error);
    }
    if (topic === this._feed.narrowed.peek()) this.state.value = next;
  }
}
