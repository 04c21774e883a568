/** Checks of single option values; each error names the option, the problem and the remedy. */

import { InvalidOption } from '../errors.js';

const DAY = 86_400_000;
const GIB = 2 ** 30;
const TOKEN_MAX = 16_384;
const NAME_MAX = 128;

/** A number in a range. */
export function checkNumber(
  name: string,
  value: unknown,
  low: number,
  high: number,
  unit: string,
): number {
  const remedy = `Give ${unit} from ${low} to ${high}.`;
  if (typeof value !== 'number' || Number.isNaN(value)) {
    throw new InvalidOption(`\`${name}\` is ${kind(value)}, not a number.`, {
      remedy,
      field: name,
    });
  }
  if (value < low || value > high) {
    throw new InvalidOption(`\`${name}\` is out of range.`, { remedy, field: name });
  }
  return value;
}

/** A time in milliseconds. */
export function checkTime(name: string, value: unknown, low = 1, high: number = DAY): number {
  return checkNumber(name, value, low, high, 'milliseconds');
}

/** A whole number in a range. */
export function checkWhole(
  name: string,
  value: unknown,
  low = 1,
  high: number = GIB,
  unit = 'a number',
): number {
  const number = checkNumber(name, value, low, high, unit);
  if (!Number.isInteger(number)) {
    throw new InvalidOption(`\`${name}\` is not a whole number.`, {
      remedy: `Give ${unit} as a whole number.`,
      field: name,
    });
  }
  return number;
}

/** True or false. */
export function checkFlag(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw new InvalidOption(`\`${name}\` is ${kind(value)}, not a boolean.`, {
    remedy: 'Give true or false.',
    field: name,
  });
}

/** One of a few words. */
export function checkChoice<T extends string>(
  name: string,
  value: unknown,
  choices: readonly T[],
): T {
  const found = choices.find((choice) => choice === value);
  if (found !== undefined) return found;
  const listed = choices.map((choice) => `\`${choice}\``).join(', ');
  throw new InvalidOption(`\`${name}\` is none of its choices.`, {
    remedy: `Use one of ${listed}.`,
    field: name,
  });
}

/** A function, or nothing. */
export function checkFunction(name: string, value: unknown): void {
  if (value !== undefined && typeof value !== 'function') {
    throw new InvalidOption(`\`${name}\` is ${kind(value)}, not a function.`, { field: name });
  }
}

/** An object of named settings, none of them unknown. */
export function checkNames(what: string, value: unknown, names: readonly string[]): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InvalidOption(`\`${what}\` is ${kind(value)}, not an object.`, {
      remedy: `Give an object with ${names.slice(0, 5).join(', ')} …`,
      field: what,
    });
  }
  for (const name of Object.keys(value)) {
    if (!names.includes(name)) {
      throw new InvalidOption(`There is no option \`${name.slice(0, 64)}\`.`, {
        remedy: `\`${what}\` takes ${names.join(', ')}.`,
        field: name,
      });
    }
  }
}

/** What a wrong value is, without showing it. */
export function kind(value: unknown): string {
  if (value === null || value === undefined || Number.isNaN(value)) return String(value);
  if (Array.isArray(value)) return 'an array';
  const type = typeof value;
  return type === 'object' ? 'an object' : `a ${type}`;
}

/**
 * Check a token, whoever gave it, and take blanks and line ends off its ends.
 *
 * @throws InvalidOption It cannot be a token. The error does not show it.
 */
export function checkToken(token: unknown, field = 'token'): string {
  if (typeof token !== 'string') {
    throw new InvalidOption(`\`${field}\` is ${kind(token)}, not a string.`, {
      remedy: 'Give the bearer token or API key as a string.',
      field,
    });
  }
  const trimmed = token.trim();
  const body = bareToken(trimmed);
  let problem: string | undefined;
  if (!body) problem = 'is empty';
  else if (trimmed.length > TOKEN_MAX) problem = 'is longer than 16,384 characters';
  else if (!/^[!-~]+$/.test(body)) {
    problem = 'has blanks, control characters or other than ASCII characters';
  }
  if (problem === undefined) return trimmed;
  throw new InvalidOption(`\`${field}\` ${problem}.`, {
    remedy: 'Give the bearer token or API key, with or without `Bearer `.',
    field,
  });
}

/** A token without the word `Bearer` before it, in whatever case (HIP-56, ambiguity E1). */
export function bareToken(token: string): string {
  return /^bearer(?: |$)/i.test(token) ? token.slice(6).trim() : token;
}

/** A short name, such as that of a program as it is told to the server. */
export function checkName(name: unknown, field = 'name'): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is control characters that are refused
  if (typeof name === 'string' && /^[^\u0000-\u001f\u007f-\u009f]{1,128}$/u.test(name)) return name;
  throw new InvalidOption(`\`${field}\` is not a short printable string.`, {
    remedy: `Give 1 to ${NAME_MAX} printable characters.`,
    field,
  });
}
