/** Why the address of the HTTP API may be wrong; only for the development build. */

import type { ClientOptions } from '../settings/options.js';
import { endpoints } from '../settings/urls.js';

/** A doubt about the address that answered a request. */
export interface Doubt {
  /** What the address is. */
  readonly problem?: string | undefined;
  readonly remedy?: string | undefined;
}

/** What may be wrong with the address of the HTTP API, if another program answers there. */
export function doubtAddress({ httpUrl, httpDerived, socketUrl }: ClientOptions): Doubt {
  if (httpDerived) {
    return {
      remedy: `${httpUrl} was derived from \`url\`: pass \`restUrl\` if the HTTP API has another address.`,
    };
  }
  const [http, socket] = [new URL(httpUrl), new URL(socketUrl)];
  // The HTTP API that belongs to this address if it is that of a WebSocket.
  const { http: likely } = endpoints(httpUrl.replace('http', 'ws'));
  if (likely !== http.origin) {
    return {
      problem: `port ${http.port} is the WebSocket port, not the HTTP port`,
      remedy: `The HTTP API is probably at ${likely}: pass this as \`restUrl\`.`,
    };
  }
  if (http.host !== socket.host) return {};
  return {
    remedy: `The WebSocket has this address, too: route \`/v1/\` to the HTTP API, or set \`restUrl\` to its address.`,
  };
}
