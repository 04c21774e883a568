/** Checks of single option values; each error names the option, the problem and the remedy. */

import { DEVELOPMENT } from '../build.js';
import { compact } from '../compact.js';
import { InvalidOption } from '../errors.js';
import { isCount, isObject } from '../wire/guard.js';

const DAY = 86_400_000;
const TOKEN_MAX = 16_384;
const GIVE_TOKEN = 'Give the bearer token or API key';

/** Numbers from `low` to `high` with a unit; whole numbers, except for milliseconds. */
export type Range = readonly [low: number, high: number, unit: string];

/** The values that an option accepts: one of a few words, or a number in a range. */
export type Kind = readonly [string, ...string[]] | Range;

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
export function checkNumber(name: string, value: unknown, [low, high, unit]: Range): number {
  if (!DEVELOPMENT) return value as number;
  const isNumber = typeof value === 'number' && !Number.isNaN(value);
  if (isNumber && value >= low && value <= high) {
    if (unit === 'milliseconds' || Number.isInteger(value)) return value;
    throw invalid(name, 'is not a whole number', `Give ${unit} as a whole number.`);
  }
  const problem = isNumber ? 'is out of range' : `is ${kind(value)}, not a number`;
  throw invalid(name, problem, `Give ${unit} from ${low} to ${high}.`);
}

/** Check a waiting time: from 0 up to a day. */
export function checkDuration(name: string, value: unknown): number {
  return checkNumber(name, value, [0, DAY, 'milliseconds']);
}

/** Check an object of settings with only these names, all optional. */
export function checkGroup<Group extends object>(
  what: string,
  given: Partial<Group>,
  kinds: Readonly<Record<keyof Group, Kind>>,
): void {
  checkNames(what, given, Object.keys(kinds));
  checkValues(given, kinds, `${what}.`);
}

/** Check the given settings of these kinds; an error names them with the prefix. */
export function checkValues<Group extends object>(
  given: Partial<Group>,
  kinds: Readonly<Record<keyof Group, Kind>>,
  prefix = '',
): void {
  for (const [name, kind] of Object.entries<Kind>(kinds)) {
    const value = given[name as keyof Group];
    if (value === undefined) continue;
    if (typeof kind[0] === 'number') checkNumber(prefix + name, value, kind as Range);
    else checkChoice(prefix + name, value, kind as readonly string[]);
  }
}

/** The given settings, and those of `base` for the rest. */
export function merged<Group extends object>(given: Partial<Group>, base: Group): Group {
  return { ...base, ...compact<Partial<Group>>(given) };
}

/** True or false. */
export function checkFlag(name: string, value: unknown): boolean {
  if (!DEVELOPMENT || typeof value === 'boolean') return value as boolean;
  throw invalid(name, `is ${kind(value)}, not a boolean`, 'Give true or false.');
}

/** Check for one of a few words. */
export function checkChoice<T extends string>(
  name: string,
  value: unknown,
  choices: readonly T[],
): T {
  if (!DEVELOPMENT) return value as T;
  const found = choices.find((choice) => choice === value);
  if (found !== undefined) return found;
  const listed = choices.map((choice) => `\`${choice}\``).join(', ');
  throw invalid(name, 'is not a valid choice', `Use one of ${listed}.`);
}

/** A function, or nothing. */
export function checkFunction(name: string, value: unknown): void {
  if (DEVELOPMENT && value !== undefined && typeof value !== 'function') {
    throw invalid(name, `is ${kind(value)}, not a function`, 'Pass a function.');
  }
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
    throw new InvalidOption(`There is no option \`${unknown.slice(0, 64)}\`.`, {
      remedy: meant ? `Write \`${meant}\`.` : takes,
      field: unknown,
    });
  }
}

/** A name without case and underscores, and each way to leave out a letter: near names share one. */
function spellings(name: string): string[] {
  const plain = name.slice(0, 64).replaceAll('_', '').toLowerCase();
  return [plain, ...Array.from(plain, (_, at) => plain.slice(0, at) + plain.slice(at + 1))];
}

/** The options of any call that waits. */
export const WAITING: readonly string[] = ['timeout', 'signal'];

/** Check the options of one call: an object with only these names. */
export function checkCall(options: unknown, names: readonly string[] = []): void {
  if (!DEVELOPMENT) return;
  checkNames('options', options, [...WAITING, ...names]);
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

/** A name, as sent to the server or to other tabs. */
export function checkName(name: unknown, field = 'name'): string {
  if (typeof name === 'string' && /^[^\p{Cc}]{1,128}$/u.test(name)) return name;
  throw invalid(field, 'is not a short printable string', 'Give 1 to 128 printable characters.');
}
