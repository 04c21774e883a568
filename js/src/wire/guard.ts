/**
 * Checks the shape of values parsed from JSON: one interpreter for all types of the wire.
 *
 * A shape is the list of its fields, `name:kind` or `name?:kind`; without a kind, a field is a
 * text. A kind is a key of `KINDS`, or a number, which is the index of a test in the other
 * arguments. `kind[]` is a list and `kind{}` an object of this kind. An object may have further
 * fields with any value.
 */

import { isTopic } from '../topics.js';

/** Any JSON object. */
export interface JsonObject {
  readonly [key: string]: unknown;
}

/** Checks a value parsed from JSON. */
export type Test = (value: unknown) => boolean;

/** One field of a shape. */
export interface Field {
  readonly name: string;
  readonly optional: boolean;
  readonly test: Test;
}

/** Whether a value parsed from JSON is a T. */
export interface Guard<T> {
  (value: unknown): value is T;
  /** The fields that it checks. */
  readonly fields: readonly Field[];
}

const KINDS: Readonly<Record<string, Test>> = {
  any: () => true,
  flag: (value) => typeof value === 'boolean',
  text: (value) => typeof value === 'string',
  id: (value) => isText(value, 1, 128),
  ref: (value) => isText(value, 1, 64),
  count: (value) => isCount(value),
  int: (value) => isCount(value, Infinity),
  topic: isTopic,
  object: isObject,
};

/** The guard of an object with these fields. */
export function shape<T>(spec: string, ...others: readonly Test[]): Guard<T> {
  const fields = spec.split(' ').map((field): Field => {
    const [, name = '', optional, kind] = /^(\w+)(\?)?:?(.*)$/.exec(field) ?? [];
    return { name, optional: optional !== undefined, test: testOf(kind || 'text', others) };
  });
  const is = (value: unknown): boolean => {
    if (!isObject(value)) return false;
    for (const { name, optional, test } of fields) {
      const one = value[name];
      if (one === undefined ? !optional : !test(one)) return false;
    }
    return true;
  };
  return Object.assign(is as (value: unknown) => value is T, { fields });
}

function testOf(kind: string, others: readonly Test[]): Test {
  const name = kind.replace(/\W+$/, '');
  const test = KINDS[name] ?? (others[Number(name)] as Test);
  if (kind.endsWith('[]')) return (value) => Array.isArray(value) && value.every(test);
  if (kind.endsWith('{}')) return (value) => isObject(value) && Object.values(value).every(test);
  return test;
}

/** Whether it is an object and not an array. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether it is an integer from 0 to `most`; by default, the largest that a number holds exactly. */
export function isCount(value: unknown, most: number = Number.MAX_SAFE_INTEGER): boolean {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= most;
}

/**
 * Whether it is a text with a number of code points in this range. It never has more code points
 * than UTF-16 units.
 */
export function isText(value: unknown, least: number, most: number): boolean {
  return (
    typeof value === 'string' &&
    value.length >= least &&
    (value.length <= most || [...value].length <= most)
  );
}

/** Whether it is a list of 1 to `most` of a kind. */
export function isSome(value: unknown, most: number, test: Test): boolean {
  return Array.isArray(value) && value.length > 0 && value.length <= most && value.every(test);
}
