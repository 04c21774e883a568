/** The empty folder into which the package is installed, and the commands that run there. */

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { BOUND, type Server } from '../js/runtime/server.js';

/** The root of the repository. */
export const ROOT: string = process.cwd();

/** The folder of the application. */
export const APPLICATION: string = process.env['PUBSUB_APPLICATION'] ?? '';
if (!APPLICATION) throw new Error('Run these tests by `node tests/package/run.mjs`.');

/** The installed package. */
export const INSTALLED: string = join(APPLICATION, 'node_modules', '@hanzoai', 'pubsub');

// A test runner that finds this variable assumes that it is part of another one, and prints
// nothing.
const { NODE_TEST_CONTEXT: _, ...environment } = process.env;

/** Run a command in a folder; returns its standard output. */
export async function run(
  command: string,
  parameters: readonly string[],
  { cwd = APPLICATION, input = '', timeout = 3 * BOUND } = {},
): Promise<string> {
  const child = spawn(command, parameters, {
    cwd,
    timeout,
    env: { ...environment, NO_COLOR: '1' },
  });
  let output = '';
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk: Buffer) => {
    text = `${text}${chunk}`.slice(-8_000);
  });
  // A program may exit without reading its input.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const [code, signal] = await new Promise<[number | null, string | null]>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (...ended) => resolve(ended));
  });
  if (code === 0) return output;
  throw new Error(
    `${command} ${parameters.join(' ')} ended with ${code ?? signal}\n${text}\n${output}`,
  );
}

/** The Node of a major version: the running one, or one that is installed into a cache. */
export async function findNode(major: number): Promise<string> {
  if (Number.parseInt(process.versions.node, 10) === major) return process.execPath;
  const platform = process.platform === 'win32' ? 'win' : process.platform;
  const name = `node-${platform}-${process.arch}`;
  const folder = join(ROOT, 'node_modules', '.cache', 'node', String(major));
  const program = platform === 'win' ? 'node.exe' : 'node';
  const path = join(folder, 'node_modules', name, 'bin', program);
  if (existsSync(path)) return path;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"private":true}\n');
  const quiet = ['--silent', '--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock'];
  await run('npm', ['install', `${name}@${major}`, ...quiet], { cwd: folder, timeout: 240_000 });
  return path;
}

/** The input of `programs/everyday.mjs`. */
export function given(server: Server, topic: string): { options: object; topic: string } {
  const token = server.token('--user', 'alice');
  const retry = { base: 20, cap: 100 };
  return { options: { url: server.ws, restUrl: server.http, token, retry }, topic };
}

/** Its output if everything works. */
export const EVERYDAY: object = {
  socket: {
    messages: ['one', 'two', 'three'],
    history: ['one', 'two', 'three'],
    members: ['alice'],
    asked: ['alice'],
    states: ['connected', 'closed'],
  },
  stream: { messages: ['four', 'five'], transport: 'event stream' },
  refusals: ['InvalidTopic invalid_topic true', 'ClosedError closed true'],
};
