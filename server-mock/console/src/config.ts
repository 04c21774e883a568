/** What the server passes to the page when it loads. */

/** Addresses and options of the server. */
export interface Config {
  /** URL of the WebSocket. */
  readonly ws: string;
  /** Base URL of the HTTP API. */
  readonly http: string;
  /** Version of the server. */
  readonly version: string;
  /** Whether the server signs in without a token. */
  readonly devSignIn: boolean;
}

/** Request it. */
export async function loadConfig(): Promise<Config> {
  const answer = await fetch('console/config.json', { credentials: 'omit' });
  if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
  const body = (await answer.json()) as Record<string, unknown>;
  const { ws, version, dev_sign_in: dev } = body;
  return {
    ws: String(ws),
    http: new URL('.', location.href).href.replace(/\/$/, ''),
    version: String(version),
    devSignIn: dev === true,
  };
}
