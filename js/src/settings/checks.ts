/** Checks of single option values; each error names the option, the problem and the remedy. */

import { DEVELOPMENT } from '../build.js';
import { compact } from '../compact.js';
import { InvalidOption } from '../errors.js';
import { isCount, isObject } from '../wire/guard.js';
import type { Optional } from './options.js';

const DAY = 86_400_000;
/** Maximum characters of a token. */
export const TOKEN_MAX = 16_384;
const GIVE_TOKEN = 'Give the bearer token or API key';

/** Numbers from `low` to `high` with a unit; whole numbers, except for milliseconds. */
export type Range = readonly [low: number, high: number, unit: string];

/**
 * The values that an option accepts: a few words, a range of numbers, a type, or a group; `name` is a
 * name or a boolean.
 */
export type Kind = readonly [string, ...string[]] | Range | 'boolean' | 'function' | 'name' | Group;

/** Options in an object, all optional. */
export interface Group {
  readonly [name: string]: Kind;
}

/** Maximum patterns of a subscription. */
export const PATTERNS_MAX = 1_000;

/** Maximum messages per topic for `history`. */
export const HISTORY_MAX = 10_000;

/** The earliest accepted Unix time in milliseconds, in 1973: lower numbers are probably seconds. */
export const EARLIEST = 1e11;

/** Whether it is a Unix time in milliseconds; 0 is valid and means the beginning. */
export function isTime(ms: number): boolean {
  return isCount(ms) && (ms === 0 || ms >= EARLIEST);
}

/** Times up to a day. */
export const TIME: Range = [1, DAY, 'milliseconds'];

/** An error about an option; it omits the value, which may be a secret. */
export function invalid(field: string, problem?: string, remedy?: string): InvalidOption {
  if (!DEVELOPMENT) return new InvalidOption(undefined, { field });
  return new InvalidOption(`\`${field}\` ${problem}.`, { remedy, field });
}

/** Check a number in a range. */
export function checkNumber(name: string, value: unknown, [low, high, unit]: Range): void {
  if (!DEVELOPMENT) return;
  const isNumber = typeof value === 'number' && !Number.isNaN(value);
  if (isNumber && value >= low && value <= high) {
    if (unit === 'milliseconds' || Number.isInteger(value)) return;
    throw invalid(name, 'is not a whole number', `Give ${unit} as a whole number.`);
  }
  const problem = isNumber ? 'is out of range' : `is ${kind(value)}, not a number`;
  throw invalid(name, problem, `Give ${unit} from ${low} to ${high}.`);
}

/** Check an object of settings with only these names. */
export function checkGroup(what: string, given: unknown, kinds: Group): void {
  checkNames(what, given, Object.keys(kinds));
  checkValues(given as object, kinds, `${what}.`);
}

/** Check the given settings of these kinds; an error names them with the prefix. */
export function checkValues(given: object, kinds: Group, prefix = ''): void {
  for (const [key, kind] of Object.entries(kinds)) {
    const name = prefix + key;
    const value: unknown = given[key as keyof object];
    if (value === undefined) continue;
    if (kind === 'name' && typeof value === 'string') checkName(value, name);
    else if (kind === 'function') checkType(name, value, kind);
    else if (typeof kind === 'string') checkType(name, value, 'boolean');
    else if (!Array.isArray(kind)) checkGroup(name, value, kind as Group);
    else if (typeof kind[0] === 'number') checkNumber(name, value, kind as unknown as Range);
    else checkChoice(name, value, kind as readonly string[]);
  }
}

/** The given settings, and those of `base` for the rest. */
export function merged<Group extends object>(given: Optional<Group>, base: Group): Group {
  return { ...base, ...compact<Partial<Group>>(given) };
}

/** Check that a value has a type, if there is one. */
export function checkType(
  name: string,
  value: unknown,
  type: 'boolean' | 'function' | 'string',
  remedy: string = type === 'boolean' ? 'Give true or false.' : 'Pass a function.',
): void {
  if (!DEVELOPMENT || value === undefined || typeof value === type) return;
  throw invalid(name, `is ${kind(value)}, not a ${type}`, remedy);
}

/** Check for one of a few words. */
export function checkChoice(
  name: string,
  value: unknown,
  choices: readonly unknown[],
  otherwise = '',
): void {
  if (!DEVELOPMENT || choices.includes(value)) return;
  const listed = choices.map((choice) => `\`${choice}\``).join(', ');
  throw invalid(name, 'has an unknown value', `Use one of ${listed}.${otherwise}`);
}

/** Check an object of settings without unknown names. */
export function checkNames(what: string, value: unknown, names: readonly string[]): void {
  if (!DEVELOPMENT) return;
  const takes = `\`${what}\` takes ${[...new Set(names)].join(', ')}.`;
  if (!isObject(value)) throw invalid(what, `is ${kind(value)}, not an object`, takes);
  const unknown = Object.keys(value).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    const tried = spellings(unknown);
    const meant = names.find((name) => spellings(name).some((each) => tried.includes(each)));
    const field = what === 'options' ? unknown : `${what}.${unknown}`;
    throw new InvalidOption(`There is no option \`${field.slice(0, 64)}\`.`, {
      remedy: meant ? `Write \`${meant}\`.` : takes,
      field,
    });
  }
}

/** A name without case and underscores, and each way to leave out a letter: near names share one. */
function spellings(name: string): string[] {
  const plain = name.slice(0, 64).replaceAll('_', '').toLowerCase();
  return [plain, ...Array.from(plain, (_, at) => plain.slice(0, at) + plain.slice(at + 1))];
}

/** Check the options of a call that waits: an object with only these names and the common ones. */
export function checkCall(options: unknown, names: readonly string[] = []): void {
  if (!DEVELOPMENT) return;
  checkNames('options', options, ['timeout', 'signal', ...names]);
  const { signal } = options as { readonly signal?: unknown };
  if (isSignal(signal)) return;
  throw invalid('signal', `is ${kind(signal)}`, 'Pass the `signal` of an AbortController.');
}

/** Whether it is undefined, or supports listeners as an AbortSignal does. */
export function isSignal(value: unknown): boolean {
  return typeof ((value ?? AbortSignal.prototype) as AbortSignal).throwIfAborted === 'function';
}

/** Describe a wrong value without showing it. */
export function kind(value: unknown): string {
  if (!DEVELOPMENT) return '';
  if (value === null || value === undefined || Number.isNaN(value)) return String(value);
  const type = Array.isArray(value) ? 'array' : typeof value;
  return `${/^[ao]/.test(type) ? 'an' : 'a'} ${type}`;
}

/**
 * Check a token from any source, and strip spaces and line ends.
 *
 * @throws InvalidOption It cannot be a token. The error does not show it.
 */
export function checkToken(token: unknown, field = 'token'): string {
  const trimmed = typeof token === 'string' ? token.trim() : '';
  const body = bareToken(trimmed);
  if (/^[!-~]+$/.test(body) && trimmed.length <= TOKEN_MAX) return trimmed;
  if (!DEVELOPMENT) throw invalid(field);
  if (typeof token !== 'string') {
    throw invalid(field, `is ${kind(token)}, not a string`, `${GIVE_TOKEN} as a string.`);
  }
  const problem = !body
    ? 'is empty'
    : trimmed.length > TOKEN_MAX
      ? 'is longer than 16,384 characters'
      : 'has spaces, control characters or characters that are not ASCII';
  throw invalid(field, problem, `${GIVE_TOKEN}, with or without \`Bearer \`.`);
}

/** The token without a leading `Bearer`, in any case (HIP-56, ambiguity E1). */
export function bareToken(token: string): string {
  return token.replace(/^bearer(?: |$)/i, '').trim();
}

/** A text of a server without the token, which some quote and which would end up in logs. */
export function withoutToken(text: string, token = ''): string {
  const secret = bareToken(token);
  let size = secret.length;
  // With less than 16 characters, as in tests, it may be part of a word.
  const told = size > 15 ? text.replaceAll(secret, '[token]') : text;
  // A close reason has at most 123 bytes, so it may end within the token.
  while (!told.endsWith(secret.slice(0, size))) size -= 1;
  return size > 15 ? `${told.slice(0, -size)}[token]` : told;
}

/** A name, as sent to the server or to other tabs. */
export function checkName(name: unknown, field = 'name'): void {
  if (typeof name === 'string' && /^( |[^\p{C}\p{Z}]){1,128}$/u.test(name)) return;
  throw invalid(field, 'is not a short printable string', 'Give 1 to 128 printable characters.');
}
