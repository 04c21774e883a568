/** Firefox, by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/), which it implements itself. */

import { once } from 'node:events';
import WebSocket from 'ws';

import { findProgram } from '../chromium.js';
import { asText, type Engine, start, type Tab } from './engine.js';

/** A result or an event of the protocol. */
interface Answer {
  readonly id?: number;
  readonly message?: string;
  readonly result?: Readonly<Record<string, unknown>>;
}

/** The result of a call in the page. */
interface Evaluated {
  readonly result?: { readonly value?: string };
  readonly exceptionDetails?: { readonly text: string };
}

export async function startFirefox(): Promise<Engine> {
  const name = findProgram(['firefox-esr', 'firefox'], 'test-engines');
  const flags = ['--headless', '--no-remote', '--remote-debugging-port', '0'];
  const browser = start([name, ...flags, '--profile', '{home}', 'about:blank']);
  const end = async (error: unknown): Promise<never> => {
    await browser.stop();
    throw error;
  };
  const address = await browser.says(/BiDi listening on (\S+)/).catch(end);
  const socket = new WebSocket(`${address}/session`);
  await once(socket, 'open').catch(end);
  const waiting = new Map<number, (answer: Answer) => void>();
  socket.on('message', (data) => {
    const answer = JSON.parse(String(data)) as Answer;
    if (answer.id !== undefined) waiting.get(answer.id)?.(answer);
  });
  let last = 0;
  const ask = async (method: string, params: object): Promise<Record<string, unknown>> => {
    last += 1;
    const id = last;
    const answered = new Promise<Answer>((resolve) => waiting.set(id, resolve));
    socket.send(JSON.stringify({ id, method, params }));
    const { result, message } = await answered;
    waiting.delete(id);
    if (!result) throw new Error(`${method}: ${message}`);
    return result;
  };
  await ask('session.new', { capabilities: {} }).catch(end);
  return {
    async open(url) {
      const { context } = await ask('browsingContext.create', { type: 'tab' });
      const go = async (url: string): Promise<void> => {
        await ask('browsingContext.navigate', { context, url, wait: 'complete' });
      };
      await go(url);
      const evaluate = async (call: unknown, arg: unknown = null): Promise<unknown> => {
        const { result, exceptionDetails } = (await ask('script.callFunction', {
          functionDeclaration: asText(call),
          arguments: [{ type: 'string', value: JSON.stringify(arg) }],
          target: { context },
          awaitPromise: true,
        })) as Evaluated;
        if (exceptionDetails) throw new Error(exceptionDetails.text);
        return result?.value === undefined ? undefined : JSON.parse(result.value);
      };
      return {
        evaluate: evaluate as Tab['evaluate'],
        reload: async () =>
          void (await ask('browsingContext.reload', { context, wait: 'complete' })),
        leave: () => go('about:blank'),
      };
    },
    async stop() {
      socket.close();
      await browser.stop();
    },
  };
}
