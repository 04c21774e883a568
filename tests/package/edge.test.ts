import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { test } from 'node:test';
import { build } from 'esbuild';

import { atEnd } from '../browser/ending.js';
import { bounded, Server } from '../js/runtime/server.js';
import { APPLICATION, EVERYDAY, given, ROOT } from './application.js';

const program: string = createRequire(join(ROOT, 'package.json'))('workerd').default;

const PROGRAM = `
import * as sdk from '@hanzoai/pubsub';
import { everyday } from './everyday.mjs';

export default {
  async fetch(request) {
    try {
      return Response.json(await everyday(sdk, await request.json()));
    } catch (error) {
      return Response.json(String(error.stack ?? error), { status: 500 });
    }
  },
};
`;

/** The program as a bundler for edge runtimes builds it, with separate chunks. */
async function bundle(): Promise<string[]> {
  const { metafile } = await build({
    stdin: { contents: PROGRAM, resolveDir: APPLICATION },
    absWorkingDir: APPLICATION,
    bundle: true,
    splitting: true,
    format: 'esm',
    outdir: 'edge',
    conditions: ['workerd', 'worker', 'browser'],
    target: 'es2022',
    logLevel: 'error',
    metafile: true,
  });
  return Object.keys(metafile.outputs).map((path) => basename(path));
}

function configuration(files: readonly string[]): string {
  const modules = ['stdin.js', ...files.filter((name) => name !== 'stdin.js')]
    .map((name) => `(name = "${name}", esModule = embed "${name}")`)
    .join(', ');
  return `
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "application", worker = (
      modules = [${modules}], compatibilityDate = "2026-01-01", globalOutbound = "network")),
    (name = "network", network = (allow = ["private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "application")],
);
`;
}

test('the package works in an edge runtime', async (t) => {
  const server = await Server.start();
  atEnd(t, () => server.stop());
  const file = join(APPLICATION, 'edge', 'config.capnp');
  writeFileSync(file, configuration(await bundle()));
  const runtime = spawn(program, ['serve', file, '--control-fd=3'], {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
  });
  const ended = new Promise((resolve) => runtime.once('exit', resolve));
  atEnd(t, async () => {
    runtime.kill('SIGTERM');
    await ended;
  });
  const lines = createInterface({ input: runtime.stdio[3] as Readable });
  const listening = new Promise<number>((resolve, reject) => {
    lines.once('line', (line) => resolve(JSON.parse(line).port));
    ended.then((code) => reject(new Error(`workerd ended with ${code}`)));
  });
  const port = await bounded(listening, 'the port of the runtime');
  const answer = await fetch(`http://127.0.0.1:${port}/`, {
    method: 'POST',
    body: JSON.stringify(given(server, 'demo.edge')),
    signal: AbortSignal.timeout(30_000),
  });
  assert.deepEqual(await answer.json(), EVERYDAY);
});
