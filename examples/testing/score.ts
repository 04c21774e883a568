/** Keeps a score that many publish to: adds what comes, and loads it again where something is missing. */

import type { PubSub } from '@hanzoai/pubsub';

export class Score {
  total = 0;

  /** @param load Asks for the score as it is now. */
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
