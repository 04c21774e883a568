/** Plays a scenario on a server, and records everything that the clients receive. */

import type { WebSocketLike } from '../../../js/src/index.js';
import { bounded, deferred } from '../runtime/server.js';
import type { Frame, Step } from './scenarios.js';

/** A server, as raw clients reach it. */
export interface Side {
  connect(): WebSocketLike;
  readonly http: string;
  readonly fetch: typeof fetch;
  token(user: string): string;
}

/** Frames of one connection. */
class Peer {
  readonly received: Frame[] = [];
  private readonly _waiting = new Map<unknown, () => void>();
  private _isOver = false;

  constructor(private readonly _socket: WebSocketLike) {
    const listen = (
      type: string,
      listener: (event: { readonly data: string; readonly code: number }) => void,
    ): void => _socket.addEventListener(type, listener);
    listen('message', ({ data }: { readonly data: string }) => {
      const frame = JSON.parse(data) as Frame;
      const mark = this._waiting.get(frame['ref']);
      if (mark) mark();
      else this.received.push(frame);
    });
    listen('close', ({ code }: { readonly code: number }) => {
      this._isOver = true;
      this.received.push({ closed: code });
      for (const done of this._waiting.values()) done();
    });
  }

  static async open(socket: WebSocketLike): Promise<Peer> {
    const opened = deferred<void>();
    socket.addEventListener('open', () => opened.resolve());
    const peer = new Peer(socket);
    await bounded(opened.promise, 'an open socket');
    return peer;
  }

  send(frame: Frame | string): void {
    this._socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame));
  }

  end(code: number): void {
    this._isOver = true;
    this._socket.close(code);
  }

  /** Wait until all frames in flight have arrived. */
  async settle(number: number): Promise<void> {
    if (this._isOver) return;
    const ref = `mark ${number}`;
    const done = deferred<void>();
    this._waiting.set(ref, () => done.resolve());
    this.send({ type: 'ping', ref });
    await bounded(done.promise, 'an answer or the end');
    this._waiting.delete(ref);
  }
}

/** The events of one stream. */
class Reader {
  readonly received: Frame[] = [];
  private _text = '';
  private _notify: () => void = () => {};

  constructor(response: Response) {
    void this._read(response).catch(() => {});
  }

  private async _read({ body }: Response): Promise<void> {
    const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true };
      if (done) return;
      this._text += value;
      for (let end = this._text.indexOf('\n\n'); end >= 0; end = this._text.indexOf('\n\n')) {
        this._take(this._text.slice(0, end));
        this._text = this._text.slice(end + 2);
      }
    }
  }

  private _take(block: string): void {
    const lines = block.split('\n').map((line) => line.split(/: ?(.*)/, 2));
    const fields = Object.fromEntries(lines) as Readonly<Record<string, string>>;
    if (fields['data'])
      this.received.push({ event: fields['event'], data: JSON.parse(fields['data']) });
    this._notify();
  }

  /** Wait until the message with this id has arrived, and with it everything sent before. */
  async settle(id: string): Promise<void> {
    const has = (): boolean =>
      this.received.some(
        ({ data }) => (data as Frame)['id'] === id || JSON.stringify(data).includes(id),
      );
    while (!has()) {
      const arrived = deferred<void>();
      this._notify = () => arrived.resolve();
      await bounded(arrived.promise, `the event ${id}`);
    }
  }
}

/** Everything that the clients received, with run-specific values normalized. */
export async function play(side: Side, steps: readonly Step[]): Promise<unknown> {
  const peers = new Map<string, Peer>();
  const readers = new Map<string, Reader>();
  const answers: unknown[] = [];
  const alike = new Alike();
  let marks = 0;
  const aborted = new AbortController();
  for (const step of steps) {
    const [who] = step;
    if (step[1] === 'sends') {
      const peer = peers.get(who) ?? (await Peer.open(side.connect()));
      peers.set(who, peer);
      const [, , frame] = step;
      peer.send(typeof frame === 'string' ? frame : alike.filled(frame, side));
    } else if (step[1] === 'ends') {
      peers.get(who)?.end(step[2]);
    } else {
      const [, does, method, path, body] = step;
      const headers: Record<string, string> = { 'Content-Type': 'application/json' };
      if (who !== 'nobody') headers['Authorization'] = `Bearer ${side.token(who)}`;
      const response = await side.fetch(side.http + path, {
        method,
        headers,
        ...(body && { body: JSON.stringify(alike.filled(body, side)) }),
        signal: aborted.signal,
      });
      const { status } = response;
      if (does === 'streams' && status === 200) readers.set(who, new Reader(response));
      else answers.push([status, alike.seen(await response.json())]);
    }
    // Others are informed of the end of a connection after it, so wait for their frames afterwards.
    for (let round = 0; round < (step[1] === 'ends' ? 3 : 1); round += 1) {
      for (const peer of peers.values()) {
        marks += 1;
        await peer.settle(marks);
        for (const frame of peer.received) alike.learn(frame);
      }
      if (step[1] === 'ends') await new Promise((resolve) => setImmediate(resolve));
    }
  }
  if (readers.size) {
    const last = side.token('worker');
    await side.fetch(`${side.http}/v1/topics/demo.room.last/messages`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${last}` },
      body: '{"data":0,"id":"the last"}',
    });
  }
  const streams: Record<string, unknown> = {};
  for (const [who, reader] of readers) {
    const isWaited = steps.some((step) => step[1] === 'streams' && step[2] === 'POST');
    await reader.settle(isWaited ? 'the last' : 'nine');
    streams[who] = alike.seen(reader.received);
  }
  const received = Object.fromEntries(
    [...peers].map(([who, peer]) => [who, alike.seen(peer.received)]),
  );
  for (const peer of peers.values()) peer.end(1000);
  aborted.abort();
  return { received, answers, streams };
}

/** Normalizes times, positions and ids, so that two runs are comparable. */
class Alike {
  private readonly _bases = new Map<string, number>();
  private readonly _clients = new Map<unknown, string>();

  /** Find out the first position of each topic. */
  learn(value: unknown): void {
    if (Array.isArray(value)) {
      for (const one of value) this.learn(one);
    } else if (typeof value === 'object' && value !== null) {
      for (const one of Object.values(value)) this.learn(one);
      const { seq } = value as Frame;
      if (typeof seq === 'number') this._bases.set('', Math.min(seq, this._bases.get('') ?? seq));
    }
  }

  /** The frame with tokens and positions filled in. */
  filled(frame: Frame, side: Side): Frame {
    const text = JSON.stringify(frame, (key, value: unknown) => {
      if (key === 'token' && typeof value === 'string') {
        return value.replace(/^\$(.*)/, (_, user: string) => side.token(user));
      }
      if (key !== 'after') return value;
      const entries = Object.entries(value as Frame).map(([topic, seq]) => {
        return [topic, typeof seq === 'number' ? (this._bases.get('') ?? 0) + seq : seq];
      });
      return Object.fromEntries(entries);
    });
    return JSON.parse(text) as Frame;
  }

  /** The received frame without run-specific values. */
  seen(value: unknown, key = ''): unknown {
    if (Array.isArray(value)) return value.map((one) => this.seen(one));
    if (typeof value === 'object' && value !== null) {
      const entries = Object.entries(value as Frame)
        .filter(
          ([name]) => !/^(message|title|detail|instance|field|remedy)$/.test(name) || name in LEFT,
        )
        .filter(([name, one]) => name !== 'message' || typeof one === 'object')
        .map(([name, one]): [string, unknown] => {
          return [name, key === 'positions' ? this._position(one) : this.seen(one, name)];
        });
      return Object.fromEntries(entries.sort(([one], [other]) => (one < other ? -1 : 1)));
    }
    if (/^(timestamp|server_time|joined_at|last_seen|last_message_at|expires_at)$/.test(key)) {
      return 'a time';
    }
    if (key === 'retry_after_ms') return typeof value;
    if (key === 'seq' || key === 'position') return this._position(value);
    if (key === 'client_id') {
      const name = this._clients.get(value) ?? `client ${this._clients.size + 1}`;
      this._clients.set(value, name);
      return name;
    }
    if (key === 'id' && /^msg_/.test(String(value))) return 'an id';
    return value;
  }

  private _position(value: unknown): unknown {
    const base = this._bases.get('');
    if (base === undefined) return 'a position';
    // The first position of a log is a thousand times its Unix milliseconds. Another log may start
    // in the same millisecond, and the position before its first message is then below the base.
    const distance = (Number(value) - base) % 1_000;
    return distance < 0 ? distance + 1_000 : distance;
  }
}

const LEFT: Readonly<Record<string, true>> = { message: true };
