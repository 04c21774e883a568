/**
 * Whether a value read from JSON has a shape: one interpreter for all types of the wire.
 *
 * A shape is written as its fields, `name:kind` or `name?:kind`; without a kind it is a text. Kinds
 * are those of `KINDS`, a word (`=auth.ok`), or a number: the test that is passed in that place.
 * `kind[]` is a list of them, `kind{}` an object of them. Fields that are not named may be there,
 * and hold anything.
 */

import { isTopic } from '../topics.js';

/** Any JSON object. */
export interface JsonObject {
  readonly [key: string]: unknown;
}

/** Whether a value read from JSON is of a kind. */
export type Test = (value: unknown) => boolean;

/** What a shape says of one field. */
export interface Field {
  readonly name: string;
  readonly optional: boolean;
  readonly test: Test;
}

/** Tells whether a value read from JSON is a T. */
export interface Guard<T> {
  (value: unknown): value is T;
  /** What it asks. */
  readonly fields: readonly Field[];
}

const KINDS: Readonly<Record<string, Test>> = {
  any: () => true,
  flag: (value) => typeof value === 'boolean',
  text: (value) => typeof value === 'string',
  id: (value) => isText(value, 1, 128),
  ref: (value) => isText(value, 1, 64),
  count: (value) => isCount(value),
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
  if (kind.startsWith('=')) {
    const word = kind.slice(1);
    return (value) => value === word;
  }
  const name = kind.replace(/\W+$/, '');
  const test = KINDS[name] ?? (others[Number(name)] as Test);
  if (kind.endsWith('[]')) return (value) => Array.isArray(value) && value.every(test);
  if (kind.endsWith('{}')) return (value) => isObject(value) && Object.values(value).every(test);
  return test;
}

/** Whether it is an object, and no array. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether it is a whole number from 0 to `most`. */
export function isCount(value: unknown, most: number = Number.MAX_SAFE_INTEGER): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= most;
}

/** Whether it is a text of so many code points: there are never more of them than UTF-16 units. */
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
