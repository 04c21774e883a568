// Plants each fault of loss_faults.ts in the compiled sources and checks that its tests fail; a
// part of `make statements`.
// Usage: node prove.mjs [WORD ...]. With words, it runs only faults that contain one of them.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'esbuild';
import { startForks } from './forks.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '..', '..');
/** Timeouts in milliseconds, for one test and for one fault. */
const [TEST_LIMIT, LIMIT] = [60_000, 120_000];

async function run(command, parameters, env = process.env) {
  const child = spawn(command, parameters, { cwd: root, env, timeout: LIMIT });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text) => {
      output += text;
    });
  }
  const [status] = await once(child, 'close');
  return { status, output };
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

/** The passed and failed tests of a fault. */
async function outcome({ file, tests }, built, env) {
  const names = tests.map((name) => `--test-name-pattern=${escaped(name)}$`);
  const parameters = ['--test', `--test-timeout=${TEST_LIMIT}`, '--test-reporter=tap', ...names];
  const compiled = join(built, 'tests', 'js', file.replace(/\.ts$/, '.js'));
  const { output } = await run(process.execPath, [...parameters, compiled], env);
  const lines = [...output.matchAll(/^ *(not )?ok \d+ - (.*?)(?: #.*)?$/gm)];
  const found = new Map(lines.map(([, not, name]) => [name, !not]));
  return tests.map((name) => [name, found.get(name)]);
}

/** Replace the compiled source with the faulty one. */
function plant({ source, text, becomes }, built) {
  const code = readFileSync(join(root, source), 'utf8');
  if (code.split(text).length !== 2)
    throw new Error(`${source} does not have the text once: ${text}`);
  const { code: compiled } = transformSync(
    code.replace(text, () => becomes),
    {
      loader: 'ts',
      format: 'esm',
      target: 'es2022',
    },
  );
  const place = join(built, source.replace(/\.ts$/, '.js'));
  if (!existsSync(place)) throw new Error(`${source} is not compiled`);
  copyFileSync(place, `${place}.kept`);
  writeFileSync(place, compiled);
  return () => copyFileSync(`${place}.kept`, place);
}

const { status, output } = await run(process.execPath, [join(here, 'run.mjs'), '--build']);
if (status !== 0) throw new Error(output);
const built = output.trim().split('\n').at(-1);
const { FAULTS } = await import(join(built, 'tests', 'js', 'loss_faults.js'));
const words = process.argv.slice(2).map((word) => word.toLowerCase());
const chosen = FAULTS.filter(
  ({ breaks, file, tests }) =>
    !words.length ||
    words.some((word) => [breaks, file, ...tests].join('\n').toLowerCase().includes(word)),
);
const forks = await startForks(root);
const env = { ...process.env, ...forks.env };
let bad = 0;
try {
  for (const [index, fault] of chosen.entries()) {
    const wrong = [];
    for (const [name, passed] of await outcome(fault, built, env)) {
      if (!passed)
        wrong.push(`${name} ${passed === undefined ? 'did not run' : 'fails without a fault'}`);
    }
    const undo = plant(fault, built);
    try {
      for (const [name, passed] of await outcome(fault, built, env)) {
        if (passed !== false)
          wrong.push(`${name} ${passed ? 'passes all the same' : 'did not run'}`);
      }
    } finally {
      undo();
    }
    bad += Math.sign(wrong.length);
    const verdict = wrong.length ? 'NOT PROVEN' : 'proven';
    process.stdout.write(`[${index + 1}/${chosen.length}] ${verdict}: ${fault.breaks}\n`);
    for (const line of wrong) process.stdout.write(`    ${line}\n`);
  }
} finally {
  await forks.stop();
  rmSync(built, { recursive: true, force: true });
}
process.stdout.write(`${chosen.length} faults in TypeScript, ${bad} that prove nothing\n`);
process.exitCode = bad ? 1 : 0;
