/** Runs parts of the tests against sources with a fault in them. */

import { join } from 'node:path';

import { build, type Plugin } from 'esbuild';

/**
 * A module of the tests as one text, with all that it imports.
 *
 * @param entry Below `tests/js`.
 */
export async function bundle(entry: string, ...plugins: Plugin[]): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [join(process.cwd(), 'tests', 'js', entry)],
    bundle: true,
    format: 'esm',
    platform: 'node',
    write: false,
    logLevel: 'silent',
    plugins,
  });
  return outputFiles[0]?.text ?? '';
}

/** Run the text of a module. */
export async function load<Module>(text: string): Promise<Module> {
  return import(`data:text/javascript;base64,${Buffer.from(text).toString('base64')}`);
}

/**
 * A module of the tests, with a fault in a source that it imports.
 *
 * @param entry Below `tests/js`.
 * @param file The source to replace, below `js/src`.
 * @param source What takes its place.
 */
export async function plant<Module>(entry: string, file: string, source: string): Promise<Module> {
  const path = join(process.cwd(), 'js', 'src', file);
  const fault: Plugin = {
    name: 'fault',
    setup: (building) => {
      building.onLoad({ filter: /\.ts$/ }, (loaded) =>
        loaded.path === path ? { contents: source, loader: 'ts' } : undefined,
      );
    },
  };
  return load(await bundle(entry, fault));
}
