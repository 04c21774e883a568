import type { PubSubOptions } from '@hanzoai/pubsub';

declare global {
  /** Values that the test passes to the page. */
  var given: {
    readonly options: PubSubOptions;
    readonly topic: string;
    readonly title?: string;
    /** How often the page's backend rejects a request for a token. */
    readonly refusals?: number;
  };

  /** If the test passes it: creates a token with this lifetime in seconds. */
  var mint: ((reason: string) => Promise<string>) | undefined;
}
