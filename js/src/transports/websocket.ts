/** Frames over a WebSocket (HIP-56 WebSocket; RFC 6455): the platform's own, or an injected one. */

import type { Clock } from '../clock.js';
import { InvalidOption } from '../errors.js';
import type { ClientFrame } from '../generated/wire.js';
import type { ClientOptions, WebSocketConstructor, WebSocketLike } from '../settings/options.js';
import { decode, encode, Malformed, Unknown } from '../wire/codec.js';
import type { Receiver, Transport } from './transport.js';

const OPEN = 1;

/**
 * One WebSocket.
 *
 * The token travels in the `auth` frame, never in the URL or a header.
 */
export class WebSocketTransport implements Transport {
  readonly incremental = true;
  lastHeard: number;
  /** Frames that were malformed or of an unknown type, and were left out. */
  skipped = 0;
  private _socket: WebSocketLike | undefined;
  private _receiver: Receiver | undefined;

  /**
   * @param _options `socketUrl`, `maxFrame` and `WebSocket` are used.
   * @param _clock For `lastHeard`.
   */
  constructor(
    private readonly _options: ClientOptions,
    private readonly _clock: Clock,
  ) {
    this.lastHeard = _clock.now();
  }

  open(receiver: Receiver): void {
    this._receiver = receiver;
    let socket: WebSocketLike;
    try {
      socket = new (constructorOf(this._options))(this._options.socketUrl);
    } catch (error) {
      const reason = error instanceof InvalidOption ? error.message : 'No WebSocket can be made.';
      queueMicrotask(() => this._end(undefined, reason));
      return;
    }
    this._socket = socket;
    socket.binaryType = 'arraybuffer';
    socket.addEventListener('open', () => {
      this._hear();
      this._receiver?.opened();
    });
    socket.addEventListener('message', (event: { readonly data: unknown }) => {
      this._take(event.data);
    });
    // An `error` is followed by a `close`, and tells nothing that a page may know.
    socket.addEventListener('error', () => {});
    socket.addEventListener('close', ({ code, reason }: { code: number; reason: string }) => {
      // 1005 and 1006 are not sent: there was no close frame, or none with a code.
      const told = code === 1005 || code === 1006 ? undefined : code;
      const said = told === undefined ? 'The connection was lost.' : `Closed with code ${told}.`;
      this._end(told, reason || said);
    });
    // `ws` tells of pings and pongs; browsers answer them in silence.
    const { on } = socket as { on?: (event: string, listener: () => void) => void };
    if (typeof on === 'function') {
      on.call(socket, 'ping', () => this._hear());
      on.call(socket, 'pong', () => this._hear());
    }
  }

  send(frames: readonly ClientFrame[]): void {
    const socket = this._socket;
    if (!this._receiver || socket?.readyState !== OPEN) return;
    for (const frame of frames) {
      let data: string;
      try {
        data = encode(frame);
      } catch {
        // Payloads are checked when they are published; this one changed since.
        this._options.logger.error(`A frame of type ${frame.type} cannot be written as JSON.`);
        continue;
      }
      socket.send(data);
    }
  }

  close(code = 1000): void {
    this._receiver = undefined;
    const socket = this._socket;
    this._socket = undefined;
    try {
      // Pages may close with 1000 or a code of their own, and with nothing else.
      socket?.close(code === 1000 || (code >= 3000 && code < 5000) ? code : 1000);
    } catch {
      // It could not be opened far enough to be closed.
    }
    // A server that is frozen never answers; `ws` lets it be cut, browsers do that themselves.
    const { terminate } = (socket ?? {}) as { terminate?: () => void };
    if (typeof terminate === 'function') {
      const cut = this._clock.callLater(1_000, () => terminate.call(socket), true);
      socket?.addEventListener('close', () => cut.cancel());
    }
  }

  private _take(data: unknown): void {
    this._hear();
    const receiver = this._receiver;
    if (!receiver) return;
    const { maxFrame, logger } = this._options;
    const raw = typeof data === 'string' ? data : new Uint8Array(data as ArrayBuffer);
    if (raw.length > maxFrame) {
      this.close(1000);
      receiver.ended({ code: 1009, reason: `A frame has more than ${maxFrame} bytes.` });
      return;
    }
    const read = decode(raw);
    if (read instanceof Malformed) {
      this.skipped += 1;
      logger.warn(`A frame of the server was left out: ${read.reason}.`);
    } else if (read instanceof Unknown) {
      this.skipped += 1;
      logger.debug?.(`A frame of unknown type ${JSON.stringify(read.type)} was ignored.`);
    } else {
      receiver.frame(read);
    }
  }

  private _hear(): void {
    this.lastHeard = this._clock.now();
  }

  private _end(code: number | undefined, reason: string): void {
    const receiver = this._receiver;
    this._receiver = undefined;
    this._socket = undefined;
    receiver?.ended({ code, reason });
  }
}

/** The WebSocket of the program or of the platform. */
function constructorOf(options: ClientOptions): WebSocketConstructor {
  const found = options.WebSocket ?? (globalThis as { WebSocket?: WebSocketConstructor }).WebSocket;
  if (found) return found;
  throw new InvalidOption('This platform has no WebSocket.', {
    remedy: 'Pass that of the package `ws` as the option `WebSocket`.',
    field: 'WebSocket',
  });
}
