import assert from 'node:assert/strict';
import { test } from 'node:test';

// @ts-expect-error: scripts of the build have no types.
import { withValues } from '../../js/constant_values.mjs';

test('the build writes the values of constants in code, also within templates', () => {
  const source = [
    'const MAX = 5_000;',
    "const NAME = 'a name';",
    'const half = MAX / 2 / other.MAX;',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: It is source code.
    'const told = `${NAME} of ${MAX} in ${list.map((one) => `${one}`)}`;',
  ];
  assert.deepEqual(withValues(source.join('\n')).split('\n'), [
    'const MAX = 5_000;',
    "const NAME = 'a name';",
    'const half = (5_000) / 2 / other.MAX;',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: It is source code.
    "const told = `${('a name')} of ${(5_000)} in ${list.map((one) => `${one}`)}`;",
  ]);
});

test('the build keeps comments, texts and patterns that contain the name of a constant', () => {
  const source = [
    'const MAX = 5;',
    "// It's MAX, and no text begins here.",
    '/** At most MAX:',
    ' * `MAX`. */',
    `const texts = ['MAX', "the MAX isn't", \`MAX \\\${MAX} "\`, "it's"];`,
    'const patterns = [/MAX\'/, /[/MAX]"/g, (text) => /MAX/.test(text)];',
  ].join('\n');
  assert.equal(withValues(`${source}\nf(MAX);`), `${source}\nf((5));`);
});
