/** Remedies for the likely causes of failures to connect; only for the development build. */

const REMEDIES: readonly (readonly [cause: RegExp, remedy: string])[] = [
  [
    / reached: .*(ECONNREFUSED|connection.refused)/i,
    'Start the server, in development with `hanzo-pubsub serve --dev`, or correct the address.',
  ],
  [
    / reached: .*connect-src/,
    "Add the addresses of `url` and `restUrl` to `connect-src` of the page's Content-Security-Policy.",
  ],
  [
    / reached: .*insecure/i,
    // Safari gives the same reason for both causes.
    "On a page loaded over HTTPS, use `wss://` and `https://`. Otherwise, add the addresses of `url` and `restUrl` to `connect-src` of the page's Content-Security-Policy.",
  ],
  [
    / reached: .*certificate.required/i,
    'Pass a `WebSocket` and a `fetch` that present a client certificate: https://pubsub.hanzo.ai/docs/typescript/#client-certificates.',
  ],
  [
    / reached: .*(not.yet.valid|has.expired)/i,
    'Check the clock of this machine; if it is right, the server needs another certificate.',
  ],
  [
    // The name of the second cause is that of newer versions of OpenSSL.
    / reached: .*(wrong.version.number|packet.length.too.long)/i,
    'The port answers without TLS: use `ws://` or `http://`, or the port that uses TLS.',
  ],
  [
    / it is not a PubSub server/,
    'Set `restUrl` to the HTTP API of the server. Without it, the client derives the address from `url`: port 8057 becomes 8056, and any other port stays.',
  ],
];

/**
 * The remedy for the likely cause of a failure.
 *
 * @param reason Why the host cannot be reached.
 * @returns Undefined if the reason names no cause with a remedy.
 */
export function remedyOf(reason = ''): string | undefined {
  for (const [cause, remedy] of REMEDIES) if (cause.test(reason)) return remedy;
  // Node has no location, and that of Deno is undefined.
  return reason.endsWith(' cannot be reached.') && globalThis.location
    ? 'Check that the server is running. The console of the browser names the reason, which browsers hide from programs. ' +
        `If it is CORS or the status 403, add ${location.origin} to \`cors_origins\` of the server. ` +
        'If it is the network, `hanzo-pubsub doctor` finds the cause.'
    : undefined;
}
