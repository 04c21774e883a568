/** Error messages for invalid URLs; the production build omits them. */

import { invalid, kind } from './checks.js';
import { SECRETS } from './urls.js';

const URL_MAX = 2_048;

const INSTEAD = 'Pass `token` or `getToken` instead.';

const NO_SCHEME = 'has no scheme, or an unknown one';

const LOCAL = /^(localhost|127\.[.\d]+)(:\d+)?(\/ws)?$/;

/** Possible problems of an address, in the order of the checks, with a remedy if there is one. */
const WORDS: readonly (readonly [problem: string, remedy?: string])[] = [
  ['is '],
  ['is empty'],
  ['is longer than 2,048 characters'],
  ['has spaces or control characters'],
  [NO_SCHEME],
  ['is not a URL'],
  ['names no host'],
  ['has port 0', 'Use the port that the server printed.'],
  ['has a user or a password', INSTEAD],
  ['has a fragment', 'Leave out `#` and everything after it.'],
  ['has a token in its query, where proxies write it into their logs', INSTEAD],
];

/**
 * Check an address that the program passed.
 *
 * @param schemes The allowed schemes, such as `wss:`.
 * @throws InvalidOption It is not such a URL, or contains a user, a password or a token.
 */
export function checkUrl(given: unknown, field: string, schemes: readonly string[]): void {
  const url = given instanceof URL ? given.href : given;
  const text = typeof url === 'string' ? url.trim() : '';
  const parts = parse(text);
  const problem = [
    typeof url !== 'string',
    !text,
    text.length > URL_MAX,
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it is control characters that are refused
    /[\u0000- \u007f]/.test(text),
    !schemes.includes(/^[a-z][a-z0-9+.-]*:(?=\/\/)/i.exec(text)?.[0].toLowerCase() ?? ''),
    !parts,
    !parts?.hostname,
    parts?.port === '0',
    parts?.username || parts?.password,
    parts?.hash,
    [...(parts?.searchParams.keys() ?? [])].some((name) => SECRETS.test(name)),
  ].findIndex(Boolean);
  if (problem < 0) return;
  const [sentence = '', remedy = `Write it like ${schemes.at(-1)}//pubsub.example.com.`] =
    WORDS[problem] ?? [];
  const type = problem ? '' : `${kind(url)}, not a string`;
  const advice = sentence === NO_SCHEME ? withScheme(text, schemes) : remedy;
  throw invalid(field, sentence + type, advice);
}

/** The remedy for a missing scheme. It shows only local addresses: others may be a token. */
function withScheme(text: string, schemes: readonly string[]): string {
  if (LOCAL.test(text)) return `Write it like ${schemes[0]}//${text}.`;
  return `Use one of ${schemes.map((one) => `${one}//`).join(', ')}.`;
}

function parse(text: string): URL | undefined {
  try {
    return new URL(text);
  } catch {
    return undefined;
  }
}
