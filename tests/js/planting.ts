/** Runs tests against sources that contain a fault. */

import { join } from 'node:path';

import { build, type Plugin } from 'esbuild';

/**
 * Bundle a test module with all of its imports into one text.
 *
 * @param entry Path below `tests/js`.
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
 * Bundle a test module with a fault in a source that it imports.
 *
 * @param entry Path below `tests/js`.
 * @param file The source to replace, below `js/src`.
 * @param source The text that replaces it.
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
