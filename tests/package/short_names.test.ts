import assert from 'node:assert/strict';
import { test } from 'node:test';
// @ts-expect-error: scripts of the build have no types.
import { shortNames } from '../../js/short_names.mjs';

const names = (...sources: string[]): Record<string, string> =>
  shortNames(sources, sources, /^_|^wait$/);

const ONE = `export class One {
  private _first = 1;
  readonly _second = 2;
  sum(): number {
    return this._first + this._first + this._second;
  }
}`;

const different = (found: Record<string, string>): number => new Set(Object.values(found)).size;

test('members of one class have different short names, and the most frequent one is the first', () => {
  assert.deepEqual(names(ONE), { _first: 'e', _second: 't' });
});

test('only the sources of frequent names count for the order', () => {
  assert.deepEqual(shortNames([ONE], ['one._second'], /^_/), { _second: 'e', _first: 't' });
});

test('members of unrelated classes share short names', () => {
  const other = ONE.replaceAll('_first', '_third').replace('One', 'Other');
  assert.deepEqual(names(ONE, other), { _second: 'e', _first: 't', _third: 't' });
});

test('names that do not match keep their own', () => {
  assert.deepEqual(Object.keys(names('class Two {\n  sum = 1;\n  wait = 2;\n}')), ['wait']);
});

test('classes that inherit from each other share no short name', () => {
  const child = `class Child<T extends Map<string, () => T>> extends One {
  constructor(private _own: number, readonly _other = 2) {
    super();
  }
}`;
  const grandchild = `abstract class Grandchild<T> extends Child implements Has<{ a: 1 }> {
  private async _load(): Promise<T> {
    return this._load();
  }
}`;
  const found = names(grandchild, child, ONE);
  assert.deepEqual(Object.keys(found).sort(), ['_first', '_load', '_other', '_own', '_second']);
  assert.equal(different(found), 5);
});

test('two children of a class may share short names', () => {
  const child = (name: string) => `class ${name} extends One {\n  _${name} = 1;\n}`;
  const found = names(ONE, child('Two'), child('Three'));
  assert.equal(found['_Two'], found['_Three']);
  assert.equal(different(found), 3);
});

test('properties of two objects differ, because one can be copied into the other', () => {
  assert.equal(different(names('const a = { _one: 1 };', 'const b = { ...a, _two() {} };')), 2);
});

test('a member differs from the properties of objects that may have its name', () => {
  const found = names(ONE, 'const one = { _first: 1, _third: 3 };');
  assert.deepEqual(found, { _first: 'e', _second: 't', _third: 't' });
});

test('an optional property gets no short name, because an object may lack it', () => {
  assert.deepEqual(
    names('interface A {\n  _a?: 1;\n  _b?(): void;\n}', 'f({ _a: 1, _b() {} });'),
    {},
  );
});

test('an optional member of a class gets no short name either', () => {
  const source = `class A {
  _a?: number;
  constructor(private _b?: number, private _c = 1) {}
}`;
  assert.deepEqual(names(source), { _c: 'e' });
});

test('an object that copies all members of an instance stops the build', () => {
  for (const instance of ['this', 'new One()']) {
    assert.throws(
      () => names(ONE, `f({ ...${instance}, _own: 1 });`),
      /An object copies all members of an instance/,
    );
  }
});

test('a class that has the name of one of the platform is the base class', () => {
  const child = 'class Child extends Event {\n  _own = 1;\n}';
  assert.equal(different(names(ONE.replace('One', 'Event'), child)), 3);
});

test('a base class of the platform has no members with short names', () => {
  assert.deepEqual(names('class Failed extends Error {\n  _why = 1;\n}'), { _why: 'e' });
});

test('a base class that is not found stops the build', () => {
  const child = 'class Child extends Between {\n  _own = 1;\n}';
  assert.throws(() => names(ONE, child), /0 classes are called Between, which Child extends/);
});

test('a class without members may extend an unknown class, unless a class with members extends it', () => {
  const between = 'class Between extends Unknown {}';
  const child = 'class Child extends Between {}';
  assert.deepEqual(names(ONE, between, child), { _first: 'e', _second: 't' });
  assert.throws(
    () => names(between, child.replace('{}', '{\n  _own = 1;\n}')),
    /0 classes are called Unknown, which Between extends/,
  );
});

test('a base class that is the result of a call stops the build', () => {
  assert.throws(
    () => names(ONE, 'class Child extends mixed(One) {\n  _own = 1;\n}'),
    /which Child/,
  );
});

test('a base class whose name another class has stops the build', () => {
  const child = 'class Child extends One {\n  _own = 1;\n}';
  assert.throws(() => names(ONE, ONE, child), /2 classes are called One, which Child extends/);
});

test('no property has the short name that another one has as its own name', () => {
  assert.deepEqual(names('class Two {\n  _long = 1;\n  e = 2;\n}'), { _long: 't' });
  assert.deepEqual(names('f({ _long: 1, e: 2 });'), { _long: 't' });
});
