/** A browser other than Chromium, as far as the tests use it. */

import type { ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';

import { BOUND } from '../../js/runtime/server.js';
// @ts-expect-error: scripts of the tests have no types.
import { endGroup, watched } from '../../js/watched.mjs';

/** An open page. */
export interface Tab {
  /** Call a function in the page, with an argument and a result that are JSON. */
  evaluate<Value>(call: () => Value | Promise<Value>): Promise<Value>;
  evaluate<Value, Arg>(call: (arg: Arg) => Value | Promise<Value>, arg: Arg): Promise<Value>;
  reload(): Promise<void>;
  /** Leave the page for an empty one. */
  leave(): Promise<void>;
}

/** A running browser with its own profile. */
export interface Engine {
  /** Open an address in a new tab, and wait until it has loaded. */
  open(url: string): Promise<Tab>;
  /** End the browser and its helpers, and remove its profile. */
  stop(): Promise<void>;
}

/** Wait until a function in the page returns a truthy value. */
export async function until<Arg>(
  tab: Tab,
  condition: (arg: Arg) => unknown,
  arg: Arg,
): Promise<void> {
  const end = Date.now() + BOUND;
  while (!(await tab.evaluate(condition, arg))) {
    if (Date.now() > end) {
      const shown = await tab.evaluate(() => document.body.innerText.slice(0, 2_000));
      throw new Error(`The page never came to ${condition}\nIt shows:\n${shown}`);
    }
    await pause(25);
  }
}

/** The source of a function that takes and returns JSON, for a call and its argument. */
export function asText(call: unknown): string {
  return `async (text) => JSON.stringify(await (${call})(JSON.parse(text)))`;
}

/** A program with a home folder of its own, which is removed when the program has ended. */
export interface Program {
  /** The first match of a pattern in its output, or the first capture of the match. */
  says(pattern: RegExp): Promise<string>;
  stop(): Promise<void>;
}

/**
 * Start a program. It ends at the latest with this process, even if that is killed.
 *
 * @param command Its name and its arguments; `{home}` stands for its home folder.
 * @param env Further environment variables.
 */
export function start(command: readonly string[], env: NodeJS.ProcessEnv = {}): Program {
  const home = mkdtempSync(join(tmpdir(), 'pubsub-engine-'));
  const [name = '', ...args] = command.map((each) => each.replace('{home}', home));
  const places = { HOME: home, XDG_CONFIG_HOME: home, XDG_CACHE_HOME: home, XDG_RUNTIME_DIR: home };
  const options = { env: { ...process.env, ...places, ...env } };
  const child: ChildProcessByStdio<Writable, Readable, Readable> = watched(
    [name, ...args],
    options,
    ['pipe', 'pipe'],
  );
  const ended = once(child, 'close').catch((error: Error) => [error.message]);
  let output = '';
  let look = (): void => {};
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output = `${output}${text}`.slice(-4_000);
      look();
    });
  }
  const says = (pattern: RegExp): Promise<string> =>
    new Promise((resolve, reject) => {
      look = () => {
        const found = pattern.exec(output);
        if (found) resolve(found[1] ?? found[0]);
      };
      look();
      const timer = setTimeout(() => reject(new Error(`${name} is not ready: ${output}`)), BOUND);
      void ended.then(([why]) => {
        clearTimeout(timer);
        reject(new Error(`${name} ended (${why}), \`make test-engines\` installs it: ${output}`));
      });
    });
  const stop = async (): Promise<void> => {
    endGroup(child);
    await ended;
    rmSync(home, { recursive: true, force: true, maxRetries: 9 });
  };
  return { says, stop };
}
