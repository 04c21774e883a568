import { cpSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { APPLICATION, INSTALLED, ROOT, run } from './application.js';

const COMPILER = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');

/** Compiler settings of applications, in addition to the common ones. */
const SETTINGS: Record<string, { files: string[]; compilerOptions: object }> = {
  'by Node, with the types of browsers': {
    files: ['application.mts', 'common.cts', 'entries.mts', 'browser_socket.mts'],
    compilerOptions: { module: 'nodenext', lib: ['ES2022', 'DOM', 'ESNext.Disposable'] },
  },
  'by Node, with the types of Node alone': {
    files: ['application.mts', 'common.cts', 'entries.mts', 'node_socket.mts'],
    compilerOptions: {
      module: 'nodenext',
      esModuleInterop: true,
      paths: { ws: [join(ROOT, 'node_modules', '@types', 'ws')] },
      lib: ['ES2022', 'ESNext.Disposable'],
      types: ['node'],
      typeRoots: [join(ROOT, 'node_modules', '@types')],
    },
  },
  'by a bundler': {
    files: ['application.mts', 'react.mts'],
    compilerOptions: {
      module: 'esnext',
      moduleResolution: 'bundler',
      lib: ['ES2022', 'DOM', 'ESNext.Disposable'],
      exactOptionalPropertyTypes: true,
      isolatedModules: true,
      paths: { react: [join(ROOT, 'node_modules', '@types', 'react')] },
    },
  },
};

for (const [how, { files, compilerOptions }] of Object.entries(SETTINGS)) {
  test(`a typed program compiles against the package resolved ${how}`, async () => {
    const folder = mkdtempSync(join(APPLICATION, 'types-'));
    cpSync(join(ROOT, 'tests', 'package', 'types'), folder, { recursive: true });
    const config = {
      // Check the declarations of the package, too.
      compilerOptions: {
        strict: true,
        noEmit: true,
        target: 'es2022',
        types: [],
        ...compilerOptions,
      },
      files,
    };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    await run(process.execPath, [COMPILER, '--project', folder, '--pretty', 'false']);
  });
}

/** Packages that users of some entries install; their declarations in the repository. */
const PEERS = {
  react: [join(ROOT, 'node_modules', '@types', 'react', 'index.d.ts')],
  vue: [join(ROOT, 'node_modules', 'vue', 'dist', 'vue.d.ts')],
};

/** Ways in which a program finds declarations, with the names of its modules. */
const RESOLUTIONS: readonly [module: string, moduleResolution: string, endings: string[]][] = [
  ['nodenext', 'nodenext', ['mts', 'cts']],
  ['esnext', 'bundler', ['mts']],
];

for (const [module, moduleResolution, endings] of RESOLUTIONS) {
  test(`the declarations of every entry compile with the resolution ${moduleResolution}`, async () => {
    const folder = mkdtempSync(join(APPLICATION, 'entries-'));
    const { exports } = JSON.parse(readFileSync(join(INSTALLED, 'package.json'), 'utf8'));
    const names = Object.keys(exports).filter((name) => name !== './package.json');
    const program = names.map(
      (name, at) => `import * as entry${at} from '${join('@hanzoai/pubsub', name)}';\n`,
    );
    const used = `export const all: object[] = [${names.map((_, at) => `entry${at}`)}];\n`;
    const files = endings.map((ending) => `every.${ending}`);
    for (const file of files) writeFileSync(join(folder, file), program.join('') + used);
    const compilerOptions = {
      ...{ module, moduleResolution, paths: PEERS, skipLibCheck: false, strict: true },
      ...{ noEmit: true, target: 'es2022', types: [] },
      lib: ['ES2022', 'DOM', 'ESNext.Disposable'],
    };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }));
    await run(process.execPath, [COMPILER, '--project', folder, '--pretty', 'false']);
  });
}
