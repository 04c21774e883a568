/** Tokens for HTTP requests: those of the socket until they expire. */

import type { Clock } from '../clock.js';
import { fromCode, PubSubError } from '../errors.js';
import type { Tokens } from '../http/rest.js';
import type { Token, TokenReason } from '../values.js';
import { type TokenSource, tokenProblem } from './tokens.js';

/** Returns the last token, or gets another one. */
export class HttpTokens implements Tokens {
  private _rejections = 0;

  /**
   * @param _source Shared with the socket.
   * @param _clock Determines whether a token has expired.
   */
  constructor(
    private readonly _source: TokenSource,
    private readonly _clock: Clock,
  ) {}

  async current(signal?: AbortSignal): Promise<string> {
    const { last } = this._source;
    const ended = last?.expiresAt !== undefined && last.expiresAt <= this._clock.wallMs();
    const token = last && !ended ? last : await this._ask(last ? 'expiring' : 'connect', signal);
    this._rejections = 0;
    return token.value;
  }

  async replace(rejected: string, signal?: AbortSignal): Promise<string | undefined> {
    const source = this._source;
    if (!source.renewable) return undefined;
    if (!source.last || source.last.value === rejected) {
      await this._ask('rejected', signal);
      this._rejections += 1;
    }
    return source.last?.value === rejected ? undefined : source.last?.value;
  }

  private async _ask(reason: TokenReason, signal: AbortSignal | undefined): Promise<Token> {
    try {
      return await this._source.fetch(reason, reason === 'rejected' ? this._rejections : 0, signal);
    } catch (error) {
      if (error instanceof PubSubError || signal?.aborted) throw error;
      throw fromCode('token_unavailable', tokenProblem(error), { cause: error });
    }
  }
}
