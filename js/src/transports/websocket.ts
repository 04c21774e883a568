/** Frames over a WebSocket (HIP-56 WebSocket; RFC 6455): the platform's own, or an injected one. */

import { DEVELOPMENT } from '../build.js';
import type { Clock } from '../clock.js';
import type { ClientFrame } from '../generated/wire.js';
import type { ClientOptions, WebSocketConstructor, WebSocketLike } from '../settings/options.js';
import { decode, encode } from '../wire/codec.js';
import type { Receiver, Transport } from './transport.js';

const OPEN = 1;
const CLOSED = 3;

const LOST = 'The connection was lost.';

/**
 * Milliseconds that a server has to answer a close frame before the client drops the connection.
 */
const LINGER = 1_000;

/** Additions of the package `ws` to the sockets of browsers. */
interface NodeSocket {
  on?(event: string, listener: (data: Uint8Array, isBinary: boolean) => void): void;
  terminate?(): void;
  /** The TCP socket beneath. */
  readonly _socket?: {
    readonly writableCorked: number;
    readonly writableLength: number;
    cork?(): void;
    uncork(): void;
  };
}

/** What is used of Node. */
interface Node {
  readonly process?: { nextTick?(call: () => void): void };
}

/** Node's function to run code after the current turn, saved before a test replaces it. */
const nextTick = DEVELOPMENT ? (globalThis as Node).process?.nextTick : undefined;

/**
 * One WebSocket.
 *
 * The token travels in the `auth` frame, never in the URL or a header.
 */
export class WebSocketTransport implements Transport {
  readonly incremental = true;
  lastReceived: number;
  private _socket: (WebSocketLike & NodeSocket) | undefined;
  private _receiver: Receiver | undefined;

  /**
   * @param _options Uses `socketUrl`, `maxFrame`, `logger` and `WebSocket`.
   * @param _clock For `lastReceived`.
   */
  constructor(
    private readonly _options: ClientOptions,
    private readonly _clock: Clock,
  ) {
    this.lastReceived = _clock.now();
  }

  open(receiver: Receiver): void {
    const { WebSocket = globalThis.WebSocket as WebSocketConstructor, socketUrl } = this._options;
    this._receiver = receiver;
    // The socket has no access to the token, so its error text may be displayed.
    const unreached = (error: unknown): string => {
      const problem = String(Object(error).message ?? '').replace(/[:.\s]*$/, '');
      return `${new URL(socketUrl).host} cannot be reached${problem && `: ${problem}`}.`;
    };
    let failure = unreached(undefined);
    let socket: WebSocketLike & NodeSocket;
    try {
      socket = new WebSocket(socketUrl);
      // Chromium fires no `close` event for a socket that the policy of the page forbids.
      if (socket.readyState === CLOSED)
        throw DEVELOPMENT ? { message: 'connect-src of the page forbids it' } : 0;
    } catch (error) {
      queueMicrotask(() => this._end(undefined, unreached(error)));
      return;
    }
    const received = (): void => {
      this.lastReceived = this._clock.now();
    };
    const message = (data: string | Uint8Array, read = decode): void => {
      const { maxFrame } = this._options;
      if (data.length > maxFrame) this._end(1009, `A frame has more than ${maxFrame} bytes.`);
      else this._receiver?.frame(read(data));
    };
    const listeners = {
      open: () => {
        received();
        failure = LOST;
        this._receiver?.opened();
      },
      close: ({ code, reason }: { readonly code: number; readonly reason: string }) => {
        // These are never sent: they mean no close frame, as does 0 in Deno, or one without a code.
        if ((DEVELOPMENT && !code) || code === 1005 || code === 1006) this._end(undefined, failure);
        else this._end(code, reason || 'The connection was closed.');
      },
      // Browsers answer pings without an event.
      ...((!DEVELOPMENT || !socket.on) && {
        message: ({ data }: { readonly data: string | ArrayBuffer }) => {
          received();
          message(typeof data === 'string' ? data : new Uint8Array(data));
        },
      }),
    };
    this._socket = socket;
    socket.binaryType = 'arraybuffer';
    for (const [name, listener] of Object.entries(listeners))
      socket.addEventListener(name, listener);
    if (DEVELOPMENT) {
      // `ws` gives the reason; browsers and Node hide it.
      socket.addEventListener('error', (event: unknown) => {
        if (failure !== LOST) failure = unreached(event);
        // Node 22 fires no `close` event for a socket that has not opened. For an open one, `ws`
        // waits up to 30 s for the close frame of the server.
        this._end(undefined, failure);
      });
    }
    if (!DEVELOPMENT || !socket.on) return;
    socket.on('ping', received);
    socket.on('pong', received);
    // `ws` creates an event object per message only for `addEventListener`; `on` avoids it.
    socket.on('message', (data, isBinary) => {
      received();
      message(isBinary ? new Uint8Array(data) : data.toString());
    });
    // Without the condition, the production build would contain the code, and never load it.
    if (DEVELOPMENT)
      socket.on('open', () =>
        import('./frames.js').then(
          ({ readTexts }) => readTexts(socket, received, message),
          () => undefined, // `ws` reads everything
        ),
      );
  }

  send(frames: readonly ClientFrame[]): void {
    const socket = this._socket;
    if (DEVELOPMENT) gather(socket);
    for (const frame of frames) {
      if (socket?.readyState !== OPEN) return;
      try {
        socket.send(encode(frame));
      } catch {
        // The payload was valid when it was published, but the program has changed it since.
        this._options.logger.error(`A frame of type ${frame.type} cannot be written as JSON.`);
      }
    }
  }

  close(code = 1000): void {
    const socket = this._socket;
    this._socket = this._receiver = undefined;
    try {
      // Pages may close only with 1000 or a code from 3000 to 4999.
      socket?.close(code < 3000 ? 1000 : code);
    } catch {
      // The socket has not opened far enough to be closed.
    }
    if (!DEVELOPMENT || !socket?.terminate) return; // browsers drop the connection themselves
    const cut = this._clock.callLater(LINGER, () => socket.terminate?.(), true);
    socket.addEventListener('close', () => cut.cancel());
  }

  /** End the transport, and close its socket if it is open. */
  private _end(code: number | undefined, reason: string): void {
    const receiver = this._receiver;
    const socket = DEVELOPMENT ? this._socket : undefined;
    this.close();
    receiver?.ended(
      DEVELOPMENT
        ? // Only `ws` says why a socket did not open; browsers and Node hide it.
          { code, reason, hidden: !!socket && !socket.on && !code && reason !== LOST }
        : { code, reason },
    );
  }
}

/**
 * Bytes that are written before the turn ends, about 16 short frames: the server then answers them
 * while the program sends more. With 32 publishes in flight, this raises throughput by half.
 */
const EARLY = 2_048;

/** Send the frames of one turn in few writes; `ws` would use one write per frame. */
function gather(socket: NodeSocket | undefined): void {
  // Quoted, because the build shortens names that begin with `_`.
  const raw = socket?.['_socket'];
  if (!raw?.cork || !nextTick) return;
  if (raw.writableCorked) {
    if (raw.writableLength < EARLY) return;
    raw.uncork();
    raw.cork();
    return;
  }
  raw.cork();
  nextTick(() => raw.uncork());
}
