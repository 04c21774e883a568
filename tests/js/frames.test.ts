/** `readTexts` in front of the parser of `ws`, beside that parser alone. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { constants, deflateRawSync } from 'node:zlib';
import * as ws from 'ws';

import { readTexts } from '../../js/src/transports/frames.js';
import { fc } from './properties.js';

interface Parser {
  write(piece: Buffer): boolean;
  end(): void;
  on(event: string, listener: (...given: never[]) => void): this;
  readonly emit: unknown;
}

/** The types of `ws` do not declare them. */
const { Receiver, PerMessageDeflate } = ws as unknown as {
  readonly Receiver: new (options?: object) => Parser;
  readonly PerMessageDeflate: new () => { accept(offers: readonly object[]): object };
};

/** A frame of a server: its first byte, and its payload. */
type Frame = readonly [first: number, payload: Buffer];

/** The bytes of a frame, unmasked. */
function bytesOf([first, payload]: Frame): Buffer {
  const size = payload.length;
  const head = Buffer.alloc(size < 126 ? 2 : size < 65_536 ? 4 : 10);
  head[0] = first;
  head[1] = size < 126 ? size : size < 65_536 ? 126 : 127;
  if (head.length === 4) head.writeUInt16BE(size, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(size), 2);
  return Buffer.concat([head, payload]);
}

/** A socket with this parser and this number of listeners. */
function socketOf(parser: Parser, listeners = 1): object {
  return { _receiver: parser, listenerCount: () => listeners, emit: parser.emit };
}

/** What a parser reports of these pieces, and how many texts it did not need to read. */
async function reported(
  pieces: readonly Buffer[],
  isBypassed: boolean,
): Promise<[string[], number]> {
  const parser = new Receiver();
  const seen: string[] = [];
  let bypassed = 0;
  parser.on('message', (data: Buffer, isBinary: boolean) => {
    seen.push(isBinary ? `binary ${Buffer.from(data).toString('hex')}` : `text ${data}`);
  });
  parser.on('ping', (data: Buffer) => void seen.push(`ping ${data}`));
  parser.on('conclude', (code: number, reason: Buffer) => void seen.push(`end ${code} ${reason}`));
  const failed = new Promise((resolve) => parser.on('error', resolve as () => void));
  if (isBypassed) {
    const take = (text: string): void => {
      bypassed += 1;
      seen.push(`text ${text}`);
    };
    readTexts(socketOf(parser), () => undefined, take);
  }
  let over = false;
  parser.on('error', (error: { readonly code: string }) => {
    over = true;
    seen.push(`error ${error.code}`);
  });
  parser.on('conclude', () => {
    over = true;
  });
  for (const piece of pieces) {
    parser.write(piece);
    // An error is reported after the write; `ws` then stops reading.
    await Promise.race([failed, new Promise(setImmediate)]);
    if (over) break;
  }
  return [seen, bypassed];
}

const text = fc
  .oneof(
    fc.string({ maxLength: 300 }),
    fc.string({ unit: 'grapheme', maxLength: 100 }),
    fc.constantFrom('', '\ufffd', 'x'.repeat(125), 'x'.repeat(126), 'x'.repeat(65_536)),
  )
  .map((one): readonly Frame[] => [[0x81, Buffer.from(one)]]);
const others = fc.constantFrom<readonly Frame[]>(
  [[0x82, Buffer.from([1, 2, 3])]],
  // The payload looks like a whole text.
  [[0x82, Buffer.from([0x81, 2, 0x61, 0x62])]],
  [[0x89, Buffer.from('ping')]],
  [
    [0x01, Buffer.from('fragments ')],
    [0x89, Buffer.from('between')],
    [0x80, Buffer.from('of a text')],
  ],
);
const endings = fc.constantFrom<readonly Frame[]>(
  [],
  [[0x81, Buffer.from([0x61, 0xff])]],
  [[0x81, Buffer.from([0xed, 0xa0, 0x80])]],
  [[0xc1, Buffer.from('compressed, but not agreed')]],
  [
    [0x01, Buffer.from('a fragment')],
    [0x81, Buffer.from('inside of it, a text')],
  ],
  [
    [0x88, Buffer.from([0x03, 0xe8])],
    [0x81, Buffer.from('after the end')],
  ],
);

/** Where a piece of the stream ends, in a frame. */
const cut = fc.constantFrom('none', 'none', 'before', 'first byte', 'head', 'middle');

test('texts of every size, other frames and errors are read as by ws, however they are cut', async () => {
  const several = fc.array(fc.oneof({ weight: 4, arbitrary: text }, others), { maxLength: 8 });
  const cuts = fc.array(cut, { minLength: 1, maxLength: 20 });
  await fc.assert(
    fc.asyncProperty(several, endings, cuts, async (some, ending, places) => {
      const pieces: Buffer[] = [Buffer.alloc(0)];
      for (const [n, frame] of [...some.flat(), ...ending].entries()) {
        const bytes = bytesOf(frame);
        const head = bytes.length - frame[1].length;
        const middle = head + (frame[1].length >> 1);
        const at = { before: 0, 'first byte': 1, head, middle }[
          places[n % places.length] as string
        ];
        const last = pieces.pop() as Buffer;
        if (at === undefined) pieces.push(Buffer.concat([last, bytes]));
        else pieces.push(Buffer.concat([last, bytes.subarray(0, at)]), bytes.subarray(at));
      }
      const whole = pieces.filter((piece) => piece.length);
      const [expected] = await reported(whole, false);
      const [seen] = await reported(whole, true);
      assert.deepEqual(seen, expected);
    }),
    { numRuns: 500 },
  );
});

test('the texts of a real socket bypass its parser', async () => {
  const server = new ws.WebSocketServer({ host: '127.0.0.1', port: 0 });
  await once(server, 'listening');
  server.on('connection', (socket) => socket.on('message', () => socket.send('a text')));
  const { port } = server.address() as AddressInfo;
  const socket = new ws.WebSocket(`ws://127.0.0.1:${port}`);
  await once(socket, 'open');
  const bypassed = new Promise<string>((take, fail) => {
    socket.on('message', () => fail(new Error('ws read it')));
    readTexts(socket, () => undefined, take);
  });
  socket.send('please');
  assert.equal(await bypassed, 'a text');
  socket.terminate();
  server.close();
});

test('whole texts bypass ws again after a frame that it reads, and after one in two pieces', async () => {
  const texts = Array.from({ length: 10 }, (_, n) =>
    bytesOf([0x81, Buffer.from(`text ${n} `.repeat(40))]),
  );
  const ping = bytesOf([0x89, Buffer.from('ping')]);
  const stream = Buffer.concat([...texts, ping, ...texts, ...texts]);
  const size = (texts[0] as Buffer).length;
  // Cut in the middle of the fifth text, after the ping, and in the middle of another text.
  const cuts = [4.5 * size, 10 * size + ping.length, 20.5 * size + ping.length, stream.length];
  const pieces = cuts.map((cut, n) =>
    stream.subarray(Math.floor(cuts[n - 1] ?? 0), Math.floor(cut)),
  );
  const [seen, bypassed] = await reported(pieces, true);
  assert.equal(seen.length, 31);
  assert.equal(bypassed, 28);
});

test('a text waits for compressed ones that have arrived before it', async () => {
  const inflate = new PerMessageDeflate();
  inflate.accept([{}]);
  const parser = new Receiver({ extensions: { 'permessage-deflate': inflate } });
  const seen: string[] = [];
  const take = (text: unknown): void => void seen.push(`${text}`);
  parser.on('message', take);
  readTexts(socketOf(parser), () => undefined, take);
  const flush = { finishFlush: constants.Z_SYNC_FLUSH };
  for (const text of ['compressed', 'compressed too']) {
    parser.write(bytesOf([0xc1, deflateRawSync(text, flush).subarray(0, -4)]));
  }
  parser.write(bytesOf([0x81, Buffer.from('plain')]));
  const last = new Promise((resolve) => parser.on('finish', resolve as () => void));
  parser.end();
  await last;
  assert.deepEqual(seen, ['compressed', 'compressed too', 'plain']);
});

test('a text is left to ws while the program listens to the socket too', () => {
  const parser = new Receiver();
  let calls = 0;
  const received = (): void => {
    calls += 1;
  };
  readTexts(socketOf(parser, 2), received, () => assert.fail());
  let seen = '';
  parser.on('message', (data: Buffer) => {
    seen = String(data);
  });
  parser.write(bytesOf([0x81, Buffer.from('a text')]));
  assert.equal(seen, 'a text');
  assert.equal(calls, 1);
});

test('a class of the program that changes what its sockets emit gets every text', () => {
  const parser = new Receiver();
  let seen = '';
  parser.on('message', (data: Buffer) => {
    seen = String(data);
  });
  const socket = { ...socketOf(parser), emit: () => true };
  readTexts(
    socket,
    () => assert.fail(),
    () => assert.fail(),
  );
  parser.write(bytesOf([0x81, Buffer.from('a text')]));
  assert.equal(seen, 'a text');
});

test('a socket without the parser of ws is left alone', () => {
  for (const socket of [{}, { _receiver: undefined }, { _receiver: {} }]) {
    readTexts(
      socket,
      () => assert.fail(),
      () => assert.fail(),
    );
  }
});
