import assert from 'node:assert/strict';
import { test } from 'node:test';

// @ts-expect-error: scripts of the build have no types.
import { withoutWords } from '../../js/words.mjs';

test('the production build leaves out remedies and the texts of errors about arguments', () => {
  const source = `
throw new InvalidOption(\`\\\`\${field}\\\` is \${kind(value)}.\`, {
  remedy: 'Pass another.',
  field,
});
throw new ClosedError('The client is closed.');
throw invalid('types', 'is empty', 'Pass a type.');
`;
  assert.equal(
    withoutWords(source).replace(/ +$/gm, ''),
    `
throw new InvalidOption(undefined, {

  field,
});
throw new ClosedError();
throw invalid('types');
`,
  );
});

test('the production build leaves out the texts of entries, but not an empty default of a field', () => {
  const usual = "  error: { code: 'internal', message: '' },";
  const entry = "  shut: { code: 'server_shutdown', message: 'The server closes.' },";
  assert.equal(
    withoutWords(`${usual}\n${entry}`),
    `${usual}\n  shut: { code: 'server_shutdown', },`,
  );
});

test('the production build keeps warnings and texts with a value of the connection', () => {
  const source = `
logger.warn('The queue is full.');
throw new ConnectionFailed(\`\${host} cannot be reached.\`);
`;
  assert.equal(withoutWords(source), source);
});
