import type { PubSubOptions } from '@hanzoai/pubsub';

declare global {
  /** What the test gives the page. */
  var given: {
    readonly options: PubSubOptions;
    readonly topic: string;
    readonly title?: string;
    /** How often the page's backend refuses a token. */
    readonly refusals?: number;
  };

  /** Where the test gives one: makes a token that lives so many seconds. */
  var mint: ((reason: string) => Promise<string>) | undefined;
}
