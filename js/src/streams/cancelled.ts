/** The error of a writer whose stream a reader cancelled. */

import { DEVELOPMENT } from '../build.js';
import { PubSubError } from '../errors.js';

/** A reader cancelled the stream; the abort is published. The code is `cancelled`. */
export class StreamCancelled extends PubSubError {
  /** The reason of the reader; may be empty. */
  declare readonly reason: string;
  /** Id of the reader, set by the server; empty if your program called `cancel()`. */
  declare readonly by: string;

  constructor(details: { readonly reason: string; readonly by: string; readonly topic?: string }) {
    super('cancelled', DEVELOPMENT ? 'A reader cancelled the stream.' : undefined, {
      remedy: 'Stop the model; nothing more is published.',
      ...details,
    });
    Object.defineProperty(this, 'name', { value: 'StreamCancelled' });
  }
}
