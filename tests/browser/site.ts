/** A page that contains the SDK: bundled from the sources, served on 127.0.0.1. */

import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { build, type Plugin } from 'esbuild';

import { IS_MEASURED } from './coverage.js';
import { atEnd } from './ending.js';

const ROOT = process.cwd();
const SOURCES = join(ROOT, 'js', 'src');
const HERE = join(ROOT, 'tests', 'browser');

/** Options of a site. */
export interface SiteOptions {
  /**
   * The program of the page: a file of `tests/browser/` such as `pages/chat.ts`, or source code. It
   * imports `@hanzoai/pubsub` and its other entries by their public names.
   */
  readonly entry: string;
  /** Content of the body of the page. */
  readonly html?: string;
  /** Title of the page. */
  readonly title?: string;
  /** Its Content-Security-Policy; default none. */
  readonly policy?: string;
  /**
   * Whether to use development builds of libraries. React then mounts components in StrictMode
   * twice.
   */
  readonly development?: boolean;
  /** Further programs by their path, such as `/worker.js`. */
  readonly programs?: Readonly<Record<string, string>>;
}

/** A running site. */
export interface Site {
  /** URL of the page. Every path without a program returns the page. */
  readonly url: string;
}

/** Resolves public names to sources: `@hanzoai/pubsub/x` to `x.ts`, `x.tsx` or `x/index.ts(x)`. */
export const fromSources: Plugin = {
  name: 'from sources',
  setup({ onResolve }) {
    onResolve({ filter: /^@hanzoai\/pubsub(\/|$)/ }, ({ path }) => {
      const name = path.slice('@hanzoai/pubsub/'.length) || 'index';
      const found = [`${name}.ts`, `${name}.tsx`, `${name}/index.ts`, `${name}/index.tsx`]
        .map((each) => join(SOURCES, each))
        .find((each) => existsSync(each));
      return found ? { path: found } : { errors: [{ text: `js/src/ has no entry ${name}` }] };
    });
  },
};

/** Bundle one program; lazily loaded modules become separate files. */
async function bundle(entry: string, development = false): Promise<Map<string, Uint8Array>> {
  const file = join(HERE, entry);
  const isFile = /^[\w./-]+\.tsx?$/.test(entry);
  const { outputFiles } = await build({
    absWorkingDir: ROOT,
    ...(isFile
      ? { entryPoints: { main: file } }
      : { stdin: { contents: entry, resolveDir: HERE, loader: 'tsx', sourcefile: 'main.tsx' } }),
    entryNames: 'main',
    outdir: '/',
    bundle: true,
    splitting: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    jsx: 'automatic',
    define: { 'process.env.NODE_ENV': development ? '"development"' : '"production"' },
    sourcemap: 'inline',
    // A line that is in no bundle would count as covered.
    treeShaking: !IS_MEASURED,
    plugins: [fromSources],
    logLevel: 'silent',
  });
  // esbuild names a program from standard input after it.
  return new Map(
    outputFiles.map(({ path, contents }) => [path.replace(/^\/stdin\.js$/, '/main.js'), contents]),
  );
}

/** Serve a page until the test ends. */
export async function serveSite(t: TestContext, options: SiteOptions): Promise<Site> {
  const files = new Map<string, Uint8Array | string>();
  for (const [path, code] of await bundle(options.entry, options.development)) {
    files.set(path, code);
  }
  for (const [at, entry] of Object.entries(options.programs ?? {})) {
    for (const [path, code] of await bundle(entry)) {
      files.set(path === '/main.js' ? at : path, code);
    }
  }
  const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${options.title ?? 'Hanzo PubSub'}</title>
<link rel="icon" href="data:,">
</head>
<body>
${options.html ?? ''}
<script type="module" src="/main.js"></script>
</body>
</html>
`;
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://site');
    const code = files.get(pathname);
    const type = code ? 'text/javascript' : 'text/html';
    response.writeHead(200, {
      'Content-Type': `${type}; charset=utf-8`,
      ...(options.policy && { 'Content-Security-Policy': options.policy }),
    });
    response.end(code ?? page);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(t, () => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/` };
}
