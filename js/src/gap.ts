/** `Gap`: messages that are missing. */

/** Why messages are missing; `Gap.reason` describes each reason. */
export type GapReason =
  | 'history_trimmed'
  | 'log_reset'
  | 'node_changed'
  | 'slow_consumer'
  | 'unproven';

/** Messages of one topic that could not be delivered, reported in their place (REC-2). */
export interface Gap {
  /** The concrete topic, or the pattern if the topic is unknown. */
  readonly topic: string;
  /** Position of the first missing message; undefined if the server has no positions. */
  readonly from: number | undefined;
  /** Position of the last missing message; undefined if unknown. */
  readonly to: number | undefined;
  /** Number of missing messages; undefined if it cannot be known. */
  readonly missed: number | undefined;
  /**
   * `history_trimmed`: no longer retained, or older than the newest 10,000 messages, which one
   * replay contains. `log_reset`: the numbering starts again, because the server lost its history,
   * or a mesh lost messages between two nodes. `node_changed`: the client moved to another node,
   * which has its own history. `slow_consumer`: the queue of this subscription was full.
   * `unproven`: the server cannot prove that none is missing.
   */
  readonly reason: GapReason;
}
