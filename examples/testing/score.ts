/**
 * Keeps a score that several clients publish to: adds each message, and reloads the score after a
 * gap.
 */

import type { PubSub } from '@hanzoai/pubsub';

export class Score {
  total = 0;

  /** @param load Loads the current score. */
  async follow(ps: PubSub, load: () => Promise<number>): Promise<void> {
    await ps.subscribe('demo.score', {
      stateLoader: async () => {
        this.total = await load();
      },
      onMessage: ({ data }) => {
        this.total += data.points;
      },
    });
  }
}
