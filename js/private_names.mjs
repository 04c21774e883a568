// Short names of private members. Members of unrelated classes share the same few names, because
// these compress better than a name of its own for each member.

/** A comment; `/*` and `//` within a text, such as `image/*`, begin none. */
const COMMENT = /(?<=^|\s)(?:\/\*[\s\S]*?\*\/|\/\/.*$)/gm;
/** A class: its name, the rest of its head, and its body up to a brace without indentation. */
const CLASS = /^(?:export )?(?:abstract )?class (\w+)([^{]*)\{$[\s\S]*?^\}/gm;
const PRIVATE = /\bprivate (?:(?:readonly|static|async|get|set) )*(_\w+)/g;
const NAME = /\b_\w+/g;
const LETTER = /\bthis\.([a-z])\b/;
const PARAMETERS = /<[^<>]*>/g;

/** The most frequent letters of minified code. With more of them, the public names become longer. */
const SHORT = 'etsiraonchldufmp';

function count(counts, text) {
  for (const [name] of text.matchAll(NAME)) counts.set(name, (counts.get(name) ?? 0) + 1);
}

/** The class that a head extends. A parameter of a type can contain `extends`, too. */
function baseOf(head) {
  let rest = head.replaceAll('=>', '');
  while (rest.search(PARAMETERS) >= 0) rest = rest.replace(PARAMETERS, '');
  return rest.match(/extends (?:\w+\.)*(\w+)/)?.[1];
}

/** Stop at what would let two members of one object share a name. */
function check(sources, classes) {
  const names = new Set(classes.map(({ name }) => name)).add('Error');
  for (const { name, base } of classes) {
    if (base && !names.has(base))
      throw new Error(`No class ${base} is found, which ${name} extends`);
    if (classes.filter((each) => each.name === base).length > 1)
      throw new Error(`Two classes have the name ${base}, which ${name} extends`);
  }
  for (const source of sources) {
    const [member] = source.match(LETTER) ?? [];
    if (member) throw new Error(`${member} may be a private member; give it a longer name`);
  }
}

/** Members by class. Classes that inherit from each other are one class, as they share objects. */
function families(classes) {
  const rootOf = ({ name, base }) => {
    const parent = classes.find((each) => each.name === base);
    return parent ? rootOf(parent) : name;
  };
  const found = new Map();
  for (const each of classes) {
    const root = rootOf(each);
    found.set(root, new Set([...(found.get(root) ?? []), ...each.members]));
  }
  return [...found.values()];
}

/**
 * Short names of private members, by name. Leaves out members for which no short name is left, and
 * names that a source also uses outside of the classes in which they are private.
 * Throws if it does not find one base class, or if a member could have the name of another.
 *
 * @param {readonly string[]} texts The sources.
 * @returns {Record<string, string>}
 */
export function privateNames(texts) {
  const sources = texts.map((text) => text.replace(COMMENT, ''));
  const classes = sources.flatMap((source) =>
    [...source.matchAll(CLASS)].map(([text, name, head]) => ({
      name,
      base: baseOf(head),
      text,
      members: new Set([...text.matchAll(PRIVATE)].map(([, member]) => member)),
    })),
  );
  check(sources, classes);
  const everywhere = new Map();
  for (const source of sources) count(everywhere, source);
  const within = new Map();
  for (const { text, members } of classes) {
    const counts = new Map();
    count(counts, text);
    for (const name of members) within.set(name, (within.get(name) ?? 0) + counts.get(name));
  }
  const names = [...within.keys()]
    .filter((name) => within.get(name) === everywhere.get(name))
    .sort((a, b) => within.get(b) - within.get(a) || (a < b ? -1 : 1));
  const all = families(classes);
  const short = {};
  for (const name of names) {
    const related = all.filter((members) => members.has(name)).flatMap((members) => [...members]);
    const taken = new Set(related.map((other) => short[other]));
    const free = [...SHORT].find((letter) => !taken.has(letter));
    if (free) short[name] = free;
  }
  return short;
}
