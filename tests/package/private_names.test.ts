import assert from 'node:assert/strict';
import { test } from 'node:test';
// @ts-expect-error: scripts of the build have no types.
import { privateNames } from '../../js/private_names.mjs';

const names: (sources: readonly string[]) => Record<string, string> = privateNames;

const ONE = `export class One {
  private _first = 1;
  private readonly _second = 2;
  sum(): number {
    return this._first + this._first + this._second;
  }
}`;

test('members of one class have different short names, and the most frequent one is the shortest', () => {
  assert.deepEqual(names([ONE]), { _first: 'e', _second: 't' });
});

test('members of unrelated classes share short names', () => {
  const other = ONE.replaceAll('_first', '_third').replace('One', 'Other');
  assert.deepEqual(names([ONE, other]), { _first: 't', _second: 'e', _third: 't' });
});

test('classes that inherit from each other share no short name', () => {
  const child = `class Child extends One {
  constructor(private _own: number) {
    super();
  }
}`;
  const grandchild = `abstract class Grandchild<T> extends Child {
  private async _load(): Promise<T> {
    return this._load();
  }
}`;
  const found = names([grandchild, child, ONE]);
  assert.deepEqual(Object.keys(found).sort(), ['_first', '_load', '_own', '_second']);
  assert.equal(new Set(Object.values(found)).size, 4);
});

test('a name that is not private everywhere is left out', () => {
  const used = 'const taken = (one: { _first?: number }) => one._first;';
  assert.deepEqual(Object.keys(names([ONE, used])), ['_second']);
  const exposed = 'class Two {\n  _second = 2;\n}';
  assert.deepEqual(Object.keys(names([ONE, exposed])), ['_first']);
});

test('a comment does not count as a use', () => {
  assert.deepEqual(Object.keys(names([ONE, '// See _first.\n/* and _second */'])).length, 2);
});

test('a text that looks like the start of a comment hides nothing', () => {
  const hidden = `const types = 'image/*';\n${ONE}\n/** A comment. */\nconst other = one._first;`;
  assert.deepEqual(Object.keys(names([hidden])), ['_second']);
});

test('a base class is found behind type parameters that extend something', () => {
  const child = `class Child<T extends Map<string, () => T>> extends One {
  private _own = 1;
}`;
  assert.equal(new Set(Object.values(names([child, ONE]))).size, 3);
});

test('a base class that is not found stops the build', () => {
  // The braces in its head hide this class, so the names of its base class would not be known.
  const between = 'class Between extends One implements Has<{ a: 1 }> {\n}';
  const child = 'class Child extends Between {\n}';
  assert.throws(() => names([ONE, between, child]), /No class Between is found, which Child/);
});

test('a base class whose name another class has stops the build', () => {
  const child = 'class Child extends One {\n  private _own = 1;\n}';
  const other = 'class One extends Two {\n}';
  const two = 'class Two {\n}';
  assert.throws(() => names([other, two, ONE, child]), /Two classes have the name One/);
});

test('a member with a name of one letter stops the build', () => {
  const letter = 'class Two {\n  t = 1;\n  get() {\n    return this.t;\n  }\n}';
  assert.throws(() => names([letter]), /this\.t may be a private member/);
});
