/** The reference server for tests: on free ports, with the fault endpoint. */

import { createHmac, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import WebSocket from 'ws';

import { PubSub, type PubSubOptions, type WebSocketConstructor } from '../../../js/src/index.js';

/** Maximum milliseconds that a test waits for anything. */
export const BOUND = 120_000;

/** Address of the process that forks servers; see tests/fork_server.py and tests/js/forks.mjs. */
const FORKS = process.env['HANZO_PUBSUB_TEST_FORKS'] ?? '';

/** A running server. */
export class Server {
  private readonly _clients: PubSub[] = [];
  private _adminToken = '';

  private constructor(
    private readonly _process: Socket,
    private readonly _pid: number,
    private readonly _folder: string,
    readonly ws: string,
    readonly http: string,
  ) {}

  /** Start a server, and wait until it accepts connections. */
  static async start(...settings: string[]): Promise<Server> {
    const folder = mkdtempSync(join(tmpdir(), 'pubsub-js-'));
    const key = join(folder, 'dev.key');
    const ports = ['--http-port', '0', '--ws-port', '0'];
    if (!FORKS) throw new Error('Run these tests by `run.mjs` of their folder.');
    const started = connect(FORKS).setEncoding('utf8');
    const argv = ['serve', '--dev', '--dev-key-file', key, ...ports, '--faults', ...settings];
    started.write(`${JSON.stringify({ argv, env: process.env, cwd: process.cwd() })}\n`);
    let output = '';
    const lines = createInterface({ input: started });
    const ready = new Promise<string>((resolve) => {
      lines.on('line', (line) => {
        if (line.startsWith('{"event": "ready"')) resolve(line);
        output = `${output}${line}\n`.slice(-4_000);
      });
    });
    const ended = once(started, 'close').then(() =>
      Promise.reject(new Error(`It ended: ${output}`)),
    );
    ended.catch(() => {});
    const { ws, http, pid } = JSON.parse(await Promise.race([ready, ended])) as {
      ws: string;
      http: string;
      pid: number;
    };
    return new Server(started, pid, folder, ws, http);
  }

  /** Path of the key that signs its tokens. */
  get keyFile(): string {
    return join(this._folder, 'dev.key');
  }

  /**
   * Create a token with the options of `hanzo-pubsub token`: `'--user', 'alice', '--ttl', '60'`.
   */
  token(...claims: string[]): string {
    return mint(readFileSync(this.keyFile, 'ascii').trim(), claims);
  }

  /** Cause a fault. */
  async fault(fault: object): Promise<void> {
    const answer = await fetch(`${this.http}/v1/faults`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${this._admin()}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(fault),
    });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    await answer.arrayBuffer();
  }

  /** Create a client of this server. */
  client(options: PubSubOptions): PubSub {
    const client = new PubSub({
      url: this.ws,
      restUrl: this.http,
      WebSocket: WebSocket as unknown as WebSocketConstructor,
      retry: { base: 20, cap: 100 },
      ...options,
    });
    this._clients.push(client);
    return client;
  }

  /** Close everything that a test left open, and stop the server. */
  async stop(): Promise<void> {
    await Promise.all(this._clients.map((client) => client.close({ timeout: 0 })));
    if (!this._process.closed) {
      const ended = once(this._process, 'close');
      process.kill(this._pid, 'SIGTERM');
      await ended;
    }
    rmSync(this._folder, { recursive: true, force: true });
  }

  private _admin(): string {
    this._adminToken ||= this.token('--user', 'root', '--admin');
    return this._adminToken;
  }
}

/** A promise that is settled from outside. */
export function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** The result of a promise, or an error if it takes too long. */
export async function bounded<T>(promise: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come in ${BOUND} ms`)), BOUND);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Take this many values of an iteration, without ending it. */
export async function take<T>(iterable: AsyncIterable<T>, count: number): Promise<T[]> {
  const iterator = iterable[Symbol.asyncIterator]();
  const taken: T[] = [];
  while (taken.length < count) {
    const { done, value } = await bounded(iterator.next(), `value ${taken.length + 1} of ${count}`);
    if (done) break;
    taken.push(value as T);
  }
  return taken;
}

/**
 * Sign a development token in this process, because starting a process would block the event loop.
 */
function mint(key: string, claims: string[]): string {
  const { values } = parseArgs({
    args: claims,
    options: {
      user: { type: 'string' },
      service: { type: 'boolean' },
      admin: { type: 'boolean' },
      org: { type: 'string', multiple: true },
      agent: { type: 'string', multiple: true },
      'session-owner': { type: 'string', multiple: true },
      'session-shared': { type: 'string', multiple: true },
      ttl: { type: 'string', default: '3600' },
    },
  });
  const now = Date.now() / 1_000;
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({
    iss: 'hanzo-pubsub-dev',
    sub: values.user,
    kind: values.admin ? 'admin' : values.service ? 'service' : 'user',
    iat: Math.floor(now),
    exp: now + Number(values.ttl),
    jti: randomUUID(),
    orgs: values.org,
    agents: values.agent,
    sessions_owned: values['session-owner'],
    sessions_shared: values['session-shared'],
  })}`;
  return `${signed}.${createHmac('sha256', key).update(signed).digest('base64url')}`;
}
