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
  /** The number of the last load. */
  private _load = 0;

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
    this._load += 1;
    const load = this._load;
    const { generation, oldest: before } = this._feed;
    this.state.value = 'loading';
    this._feed.loading = true;
    let next: HistoryState = 'failed';
    try {
      const page: Message[] = [];
      for await (const message of this._ps.history(topic, { before, limit: PAGE })) {
        page.push(message);
      }
      // Otherwise the page does not fit any more.
      if (generation === this._feed.generation) this._feed.prepend(topic, page);
      next = page.length < PAGE ? 'beginning' : 'more';
    } catch (error) {
      this._notify(error);
    }
    // Another topic was shown meanwhile, and is loading.
    if (load !== this._load) return;
    this._feed.loading = false;
    this.state.value = generation === this._feed.generation ? next : 'more';
  }
}
