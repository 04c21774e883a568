/**
 * The TypeScript sample of HIP-56, compiled and run without any change.
 *
 * It names `wss://pubsub.hanzo.ai:8057/ws` and the token `ey...`. The global WebSocket connects to
 * the test's server instead, and sends a token that this server accepts.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import WebSocket from 'ws';

import { bounded, deferred, Server } from './server.js';

const root = process.cwd();
const sample = join('tests', 'interop', 'samples', 'hip56');

/** Compile the sample against the sources; returns the URL of the module. */
function compile(out: string): string {
  const config = join(out, 'tsconfig.json');
  writeFileSync(
    config,
    JSON.stringify({
      extends: join(root, 'js', 'tsconfig.json'),
      compilerOptions: {
        module: 'esnext',
        moduleResolution: 'bundler',
        rootDir: root,
        outDir: out,
        declaration: false,
        isolatedDeclarations: false,
        paths: { '@hanzoai/pubsub': [join(root, 'js', 'src', 'index.ts')] },
      },
      include: [],
      files: [join(root, `${sample}.ts`), join(root, 'tests', 'js', 'runtime', 'sample.d.ts')],
    }),
  );
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  execFileSync(process.execPath, [tsc, '--project', config], { stdio: ['ignore', 2, 2] });
  const home = join(out, 'node_modules', '@hanzoai', 'pubsub');
  mkdirSync(home, { recursive: true });
  cpSync(join(out, 'js', 'src'), home, { recursive: true });
  const about = JSON.stringify({ type: 'module', exports: './index.js' });
  writeFileSync(join(home, 'package.json'), about);
  writeFileSync(join(out, 'package.json'), about);
  return pathToFileURL(join(out, `${sample}.js`)).href;
}

test('the sample of HIP-56 compiles and runs unchanged', async () => {
  const server = await Server.start();
  const here = fileURLToPath(new URL('.', import.meta.url));
  const out = mkdtempSync(join(here, 'sample-'));
  try {
    const claims = ['--user', 'carol', '--session-owner', 'abc'];
    const token = server.token(...claims);
    class Redirected extends WebSocket {
      constructor(url: string) {
        assert.equal(url, 'wss://pubsub.hanzo.ai:8057/ws');
        super(server.ws);
      }

      override send(data: string): void {
        super.send(data.replace('Bearer ey...', `Bearer ${token}`));
      }
    }
    const watcher = server.client({ token: server.token('--user', 'root', '--admin') });
    const typing = deferred<string>();
    const left = deferred<void>();
    await watcher.subscribe('chat.session.abc', {
      onPresence: (_, { change, member }) => {
        if (member?.user_id !== 'carol') return;
        if (member.status === 'typing') typing.resolve(member.user_id);
        if (change === 'leave') left.resolve();
      },
    });
    const hello = { type: 'token', data: { content: 'Hello' } };
    await watcher.publish('chat.session.abc', hello);
    const tokens: string[] = [];
    Object.assign(globalThis, {
      WebSocket: Redirected,
      appendToken: (content: string) => tokens.push(content),
      updatePresenceUI: () => {},
    });
    await bounded(import(compile(out)), 'the end of the sample');
    assert.deepEqual(tokens, ['Hello']);
    assert.equal(await bounded(typing.promise, 'the update'), 'carol');
    await bounded(left.promise, 'the leave');
  } finally {
    rmSync(out, { recursive: true, force: true });
    await server.stop();
  }
});
