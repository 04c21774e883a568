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

/** The members of a class, with those that are parameters of its constructor. */
function membersOf({ body }) {
  const members = body.body.flatMap((member) => [
    { name: nameOf(member), optional: member.optional },
    ...(member.value?.params ?? []).map(({ parameter }) => parameter?.left ?? parameter),
  ]);
  return members.filter((member) => member?.name);
}

/** The members of each class, with those of its base classes. */
function families(classes) {
  const all = ({ name, base, members }, derived = 0) => {
    if (!base) return members;
    const bases = classes.filter((each) => base.name && each.name === base.name);
    const count = derived + members.length;
    if (bases.length === 1) return [...all(bases[0], count), ...members];
    // Without other members, none can get the short name of a member of an unknown base.
    if (!count || (!bases.length && base.name && base.name in globalThis)) return members;
    throw new Error(`${bases.length} classes are called ${base.name}, which ${name} extends`);
  };
  return classes.map((each) => all(each));
}

/** Whether a property of an object literal copies all members of an instance. */
const copiesInstance = ({ type, argument }) =>
  type === 'SpreadElement' && /^(This|New)Expression$/.test(argument.type);

/**
 * Short names of properties, by name.
 *
 * The members of a class and its base classes have different short names. So have all properties of
 * other objects, since one can be copied into another. Properties that are optional in a type or
 * class have no short name: they are read from objects that may have another property in their
 * place.
 *
 * Throws if a base class is unknown, or if an object copies all members of an instance.
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
        const members = membersOf(node);
        for (const member of members) if (member.optional) optional.add(member.name);
        classes.push({
          name: id?.name,
          base: superClass,
          members: members.map(({ name }) => name),
        });
      } else if (type === 'ObjectExpression') {
        if (properties.some(copiesInstance))
          throw new Error('An object copies all members of an instance');
        others.push(...properties.map(nameOf));
      } else if (type.startsWith('TS') && node.optional) {
        optional.add(nameOf(node));
      }
    });
  }
  const members = families(classes);
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
    const taken = new Set(near.flatMap((other) => [other, short[other]]));
    const free = [...LETTERS].find((one) => !taken.has(one));
    if (free) short[name] = free;
  }
  return short;
}
