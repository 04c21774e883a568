import assert from 'node:assert/strict';
import { test } from 'node:test';

// @ts-expect-error: scripts of the build have no types.
import { withValues } from '../../js/constant_values.mjs';

/** The code of a module, without its source map. */
async function built(lines: readonly string[]): Promise<string[]> {
  const code: string = await withValues(lines.join('\n'), 'module.ts', '{}');
  return code.split('\n').filter((line) => line && !line.startsWith('//#'));
}

test('the build writes the values of constants in code, also within templates', async () => {
  const source = [
    'const MAX = 5_000;',
    "const NAME = 'a name';",
    'const half = MAX / 2 / other.MAX;',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: It is source code.
    'const told = `${NAME} of ${MAX} in ${list.map((one) => `${one}`)}`;',
    'const most = { MAX };',
  ];
  assert.deepEqual(await built(source), [
    'const half = 5e3 / 2 / other.MAX;',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: It is source code.
    'const told = `${"a name"} of ${5e3} in ${list.map((one) => `${one}`)}`;',
    'const most = { MAX: 5e3 };',
  ]);
});

test('the build keeps texts, patterns and variables with the name of a constant', async () => {
  const source = [
    'const MAX = 5;',
    "// It's MAX, and no text begins here.",
    `const texts = ['MAX', "the MAX isn't", \`MAX \\\${MAX} "\`, "it's"];`,
    'const patterns = [/MAX\'/, /[/MAX]"/g, (text) => /MAX/.test(text)];',
    'const twice = (MAX) => MAX * 2;',
  ];
  assert.deepEqual(await built(source), [
    `const texts = ["MAX", "the MAX isn't", \`MAX \\\${MAX} "\`, "it's"];`,
    ...source.slice(3),
  ]);
});
