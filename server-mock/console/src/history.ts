/** Older messages of the shown topic, loaded page by page. */

import type { Message, PubSub } from '@hanzoai/pubsub';

import type { Feed } from './messages/feed.js';
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
    private readonly _notify: (error: unknown) => void,
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
    const before = this._feed.oldest;
    this._feed.loading = true;
    let next: HistoryState = 'failed';
    try {
      const page: Message[] = [];
      for await (const message of this._ps.history(topic, { before, limit: PAGE })) {
        page.push(message);
      }
      // Another topic was shown meanwhile, or the list was cleared: the page does not fit any more.
      if (topic !== this._feed.narrowed.peek() || before !== this._feed.oldest) {
        this.state.value = 'more';
        return;
      }
      this._feed.prepend(topic, page);
      next = page.length < PAGE ? 'beginning' : 'more';
    } catch (error) {
      this._notify(error);
    } finally {
      this._feed.loading = false;
    }
    if (topic === this._feed.narrowed.peek()) this.state.value = next;
  }
}
