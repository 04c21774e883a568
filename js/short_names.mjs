// Short names of the properties that the build shortens. Properties that no object has both of share
// a letter, because a few letters compress better than a name of its own for each property.

import { parseAst } from 'vite';

/** The most frequent letters of minified code first. */
const LETTERS = 'etsiraonchldufmpgvbkwyxjqzABCDEFGHIJKLMNOPQRSTUVWXYZ';

/** Call a function with every node of a source in TypeScript. */
function visit(source, see) {
  const enter = (node) => {
    if (typeof node.type === 'string') see(node);
    for (const child of Object.values(node)) if (Object(child) === child) enter(child);
  };
  enter(parseAst(source, { lang: 'ts' }));
}

/** The name of a member or property, if it is not computed or a text. */
const nameOf = ({ computed, key }) => (computed ? undefined : key?.name);

/** The names of the members of a class, with those that are parameters of its constructor. */
function membersOf({ body }) {
  const names = body.body.flatMap((member) => [
    nameOf(member),
    ...(member.value?.params ?? []).map(({ parameter }) => (parameter?.left ?? parameter)?.name),
  ]);
  return names.filter(Boolean);
}

/** The members of each class, with those of its base classes. */
function families(classes) {
  const all = ({ name, base, members }) => {
    if (!base || base.name in globalThis) return members;
    const bases = classes.filter((each) => base.name && each.name === base.name);
    if (bases.length === 1) return [...all(bases[0]), ...members];
    if (!members.length) return members;
    throw new Error(`${bases.length} classes are called ${base.name}, which ${name} extends`);
  };
  return classes.map(all);
}

/**
 * Short names of properties, by name.
 *
 * The members of a class and its base classes have different short names. So have all properties of
 * other objects, since one can be copied into another. Properties that are optional in a type have
 * no short name: they are read from objects that may have another property in their place.
 *
 * Throws if a base class is unknown, or if a member has a name of one letter.
 *
 * @param {readonly string[]} sources All sources, in TypeScript.
 * @param {readonly string[]} frequent Those whose most frequent properties get the first letters.
 * @param {RegExp} shortened Matches the names to shorten.
 * @returns {Record<string, string>}
 */
export function shortNames(sources, frequent, shortened) {
  const classes = [];
  const others = [];
  const optional = new Set();
  for (const source of sources) {
    visit(source, (node) => {
      const { type, id, superClass, properties } = node;
      if (type === 'ClassDeclaration' || type === 'ClassExpression') {
        classes.push({ name: id?.name, base: superClass, members: membersOf(node) });
      } else if (type === 'ObjectExpression') {
        others.push(...properties.map(nameOf));
      } else if (type.startsWith('TS') && node.optional) {
        optional.add(nameOf(node));
      }
    });
  }
  const members = families(classes);
  const letter = members.flat().find(({ length }) => length === 1);
  if (letter) throw new Error(`Give the member ${letter} a longer name`);
  const uses = new Map();
  for (const source of frequent) {
    visit(source, ({ type, name }) => {
      if (type === 'Identifier') uses.set(name, (uses.get(name) ?? 0) + 1);
    });
  }
  const by = (name) => uses.get(name) ?? 0;
  const groups = [...members, others].map((names) => new Set(names));
  const names = new Set([...members, others].flat());
  const short = {};
  for (const name of [...names].sort((a, b) => by(b) - by(a) || (a < b ? -1 : 1))) {
    if (!shortened.test(name) || optional.has(name)) continue;
    const near = groups.filter((group) => group.has(name)).flatMap((group) => [...group]);
    const taken = new Set(near.map((other) => short[other]));
    const free = [...LETTERS].find((one) => !taken.has(one));
    if (free) short[name] = free;
  }
  return short;
}
