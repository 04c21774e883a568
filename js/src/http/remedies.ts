/** Remedies for the likely causes of failures to connect; only for the development build. */

const REMEDIES: readonly (readonly [cause: RegExp, remedy: string])[] = [
  [
    /connect-src/,
    "Add the addresses of `url` and `restUrl` to `connect-src` of the page's Content-Security-Policy.",
  ],
  [
    /insecure/i,
    'Use `wss://` and `https://`: browsers allow a page loaded over HTTPS nothing else.',
  ],
  [
    /certificate.required/i,
    'Pass a `WebSocket` and a `fetch` that present a client certificate: https://pubsub.hanzo.ai/docs/typescript/#client-certificates.',
  ],
];

/**
 * The remedy for the likely cause of a failure.
 *
 * @param reason Why the host cannot be reached.
 * @returns Undefined if the reason names no cause with a remedy.
 */
export function remedyOf(reason = ''): string | undefined {
  const [, problem = ''] = reason.split(' cannot be reached');
  for (const [cause, remedy] of REMEDIES) if (cause.test(problem)) return remedy;
  // Node has no location, and that of Deno is undefined.
  return problem === '.' && globalThis.location
    ? 'The console of the browser names the reason, which browsers hide from programs. If it is the network, `hanzo-pubsub doctor` finds the cause.'
    : undefined;
}
