/** WebKitGTK, the engine of Safari on Linux, by WebDriver (https://www.w3.org/TR/webdriver2/). */

import { once } from 'node:events';
import { request } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

import { BOUND } from '../../js/runtime/server.js';
import { asText, type Engine, start, type Tab } from './engine.js';

const SCREEN = ['-screen', '0', '1280x900x24', '-nolisten', 'tcp', '-displayfd', '1'];

/** A port of this machine that is free now. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

export async function startWebKit(): Promise<Engine> {
  const screen = start(['Xvfb', ...SCREEN]);
  const display = `:${await screen.says(/^\d+$/m)}`;
  const port = await freePort();
  const driver = start(['WebKitWebDriver', `--port=${port}`], {
    DISPLAY: display,
    LIBGL_ALWAYS_SOFTWARE: '1',
    WEBKIT_DISABLE_COMPOSITING_MODE: '1',
  });

  /** One request on a connection of its own: the driver closes idle ones without notice. */
  const send = (method: string, path: string, body?: object): Promise<string> =>
    new Promise((resolve, reject) => {
      const asked = request({ host: '127.0.0.1', port, path, method, agent: false }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (more: string) => {
          text += more;
        });
        answer.on('end', () => resolve(text));
      });
      asked.setTimeout(BOUND, () => asked.destroy(new Error(`${path} has no answer`)));
      asked.on('error', reject);
      asked.end(body && JSON.stringify(body));
    });
  const ask = async (method: string, path: string, body?: object): Promise<unknown> => {
    const { value } = JSON.parse(await send(method, path, body)) as { value: unknown };
    const { error, message } = Object(value) as { error?: string; message?: string };
    if (error) throw new Error(`${path}: ${error}: ${message}`);
    return value;
  };

  const begin = async (): Promise<string> => {
    const end = Date.now() + BOUND;
    while (!(await send('GET', '/status').catch(() => ''))) {
      if (Date.now() > end) throw new Error('WebKitWebDriver does not answer.');
      await pause(50);
    }
    const started = await ask('POST', '/session', { capabilities: {} });
    return (started as { readonly sessionId: string }).sessionId;
  };
  const end = async (): Promise<void> => {
    await driver.stop();
    await screen.stop();
  };
  const session = `/session/${await begin().catch(async (error: unknown) => {
    await end();
    throw error;
  })}`;

  // The driver has one current tab, so calls run one after the other.
  let queue: Promise<unknown> = Promise.resolve();
  const inTab = (handle: unknown, method: string, path: string, body: object): Promise<unknown> => {
    const turn = queue.then(async () => {
      await ask('POST', `${session}/window`, { handle });
      return ask(method, session + path, body);
    });
    queue = turn.catch(() => {});
    return turn;
  };
  return {
    async open(url) {
      const { handle } = (await ask('POST', `${session}/window/new`, { type: 'tab' })) as {
        handle: string;
      };
      const go = async (url: string): Promise<void> =>
        void (await inTab(handle, 'POST', '/url', { url }));
      await go(url);
      const evaluate = async (call: unknown, arg: unknown = null): Promise<unknown> => {
        const script = `
          const [text, done] = arguments;
          (${asText(call)})(text).then((value) => done({ value }), (error) => done({ error: String(error) }));`;
        const args = [JSON.stringify(arg)];
        const { value, error } = (await inTab(handle, 'POST', '/execute/async', {
          script,
          args,
        })) as {
          value?: string;
          error?: string;
        };
        if (error) throw new Error(error);
        return value === undefined ? undefined : JSON.parse(value);
      };
      return {
        evaluate: evaluate as Tab['evaluate'],
        reload: async () => void (await inTab(handle, 'POST', '/refresh', {})),
        leave: () => go('about:blank'),
      };
    },
    async stop() {
      await ask('DELETE', session).catch(() => {});
      await end();
    },
  };
}
