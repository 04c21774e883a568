/**
 * Reads the frequent kind of frame that a server sends: a whole text, in one uncompressed frame.
 *
 * The parser of the package `ws` takes a quarter of the time of receiving a message. It still reads
 * all other frames, and those that a piece of the stream does not contain in full.
 */

import { decodeCanonical } from '../wire/canonical.js';

/** First byte of a text in one uncompressed frame. */
const TEXT = 0x81;

/** A length that the next two bytes contain; above it, more bytes do, or the frame is masked. */
const LONG = 126;

/** Bytes before a payload whose length is in two bytes. */
const HEADER = 4;

/** State of the parser while it waits for the payload of a frame. */
const PAYLOAD = 4;

/** A `Buffer`. */
interface Bytes extends Uint8Array {
  toString(encoding?: undefined, start?: number, end?: number): string;
  subarray(start: number, end?: number): Bytes;
}

/** The parser of a socket of `ws`. */
interface Parser {
  readonly emit?: unknown;
  write?(piece: Bytes): boolean;
  readonly writable: boolean;
  readonly writableLength: number;
  readonly _state: number;
  readonly _bufferedBytes: number;
  readonly _payloadLength: number;
  readonly _fragmented: number;
}

/** A socket of `ws`. */
interface Socket {
  readonly emit?: unknown;
  listenerCount?(event: string): number;
  readonly _receiver?: Parser | undefined;
}

/**
 * Read texts before the parser of an open socket does.
 *
 * @param received Called for each piece of the stream.
 * @param take Called with each text, in the same order as the listener of `message`.
 */
export function readTexts(
  opened: object,
  received: () => void,
  take: (text: string, read: typeof decodeCanonical) => void,
): void {
  // Quoted here and below, because the build shortens names that begin with `_`.
  const socket = opened as Socket;
  const parser = socket['_receiver'];
  const write = parser?.write;
  // A class of the program with its own `emit` gets every text from the parser.
  if (!write || socket.emit !== parser.emit) return;
  /** Whether the parser waits for the first byte of a message. */
  const isIdle = () =>
    // Other listeners of the program get every text from the parser.
    socket.listenerCount?.('message') === 1 &&
    parser.writable &&
    parser['_state'] === 0 &&
    parser['_bufferedBytes'] === 0 &&
    parser['_fragmented'] === 0 &&
    parser.writableLength === 0;

  parser.write = (piece) => {
    received();
    let at = 0;
    if (parser['_state'] === PAYLOAD) {
      at = parser['_payloadLength'] - parser['_bufferedBytes'];
      if (at < piece.length) write.call(parser, piece.subarray(0, at));
      else at = 0;
    }
    if (isIdle()) at = readFrom(piece, at, (text) => take(text, decodeCanonical));
    // It has ended if there was a close frame, or an invalid one.
    return at === piece.length || !parser.writable || write.call(parser, piece.subarray(at));
  };
}

/** Read texts from a place on; returns the place of the first frame that is another one. */
function readFrom(piece: Bytes, start: number, take: (text: string) => void): number {
  let at = start;
  while (at + HEADER <= piece.length && piece[at] === TEXT) {
    let size = piece[at + 1] as number;
    let from = at + 2;
    if (size > LONG) break;
    if (size === LONG) {
      size = (piece[at + 2] as number) * 256 + (piece[at + 3] as number);
      from = at + HEADER;
    }
    const end = from + size;
    if (end > piece.length) break;
    const text = piece.toString(undefined, from, end);
    // The parser knows whether this stands for invalid bytes.
    if (text.includes('\ufffd')) break;
    take(text);
    at = end;
  }
  return at;
}
