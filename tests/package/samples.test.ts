/** Every TypeScript sample of README and docs/ compiles against the package without changes. */

import assert from 'node:assert/strict';
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { before, test } from 'node:test';

import { APPLICATION, INSTALLED, ROOT, run } from './application.js';

const FENCE =
  /(?<directive><!-- (?:not run|file): [^\n]* -->\n)?^```(?<language>[jt]sx?|vue|svelte)(?: title="(?<title>[^"]+)")?\n(?<text>.*?)^```$/gms;

/** Files of a guide that another test builds and runs, and the page that a server sends as it is. */
const OF_A_GUIDE = /^(page|public)\//;
/** Samples in other formats, of which only the script is TypeScript. */
const SCRIPT = /<script[^>]*>\n(.*?)<\/script>/s;

/**
 * Declarations for functions of the reader's own program that samples call. They declare nothing of
 * the product.
 */
const READER = `
import type { PresenceMember, PubSub, PubSubOptions, TokenCallback } from '@hanzoai/pubsub';
import type { Anthropic } from '@anthropic-ai/sdk';
import type { OpenAI } from 'openai';
import type { LanguageModel } from 'ai';

declare global {
  const ps: PubSub;
  const options: PubSubOptions;
  const url: string;
  const token: string;
  const getToken: TokenCallback;
  const topic: string;
  const session: string;
  const question: string;
  const responseId: string;
  const openai: OpenAI;
  const anthropic: Anthropic;
  const model: LanguageModel & string & { abort(): void };
  const result: { readonly textStream: AsyncIterable<string> };
  const stopButton: HTMLButtonElement;
  const view: {
    append(text: string): void;
    replace(text: string): void;
    markStale(): void;
    waiting(ms: number): void;
  };
  const ethereum: { request(call: { method: string; params?: readonly string[] }): Promise<any> };
  function show(value: unknown): void;
  function greet(member: PresenceMember): void;
  function appendToken(text: string): void;
  function updatePresenceUI(members: unknown): void;
  /** Of Svelte. */
  function $props(): any;
  function $derived<T>(value: T): T;
  function $state<T>(value: T): T;
  namespace $state {
    function raw<T>(value: T): T;
  }
  function $effect(run: () => () => void): void;
}
`;

/** What the samples use of packages that are not installed here. */
const FRAMEWORKS = `
declare module 'next/server' {
  export function connection(): Promise<void>;
  export function after(task: Promise<unknown>): void;
}
`;

let folder: string;
const samples: { readonly file: string; readonly place: string }[] = [];

/** All pages of docs/, README and the README of the package. */
function pages(): string[] {
  const docs = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' });
  const found = docs.filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`);
  return ['README.md', 'js/README.md', ...found.sort()];
}

before(() => {
  folder = join(APPLICATION, 'samples');
  mkdirSync(join(folder, 'node_modules', '@hanzoai'), { recursive: true });
  symlinkSync(INSTALLED, join(folder, 'node_modules', '@hanzoai', 'pubsub'));
  const theirs = [
    '@ai-sdk',
    '@anthropic-ai',
    '@hono',
    '@opentelemetry',
    '@noble',
    '@standard-schema',
  ];
  const frameworks = ['ai', 'express', 'hono', 'openai', 'react', 'vite', 'vue'];
  const others = [...frameworks, '@types', 'undici', 'valibot', 'ws', 'zod'];
  for (const name of [...theirs, ...others])
    symlinkSync(join(ROOT, 'node_modules', name), join(folder, 'node_modules', name));
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}');
  writeFileSync(join(folder, 'reader.d.ts'), READER);
  writeFileSync(join(folder, 'frameworks.d.ts'), FRAMEWORKS);
  for (const page of pages()) {
    const text = readFileSync(join(ROOT, page), 'utf8');
    const home = page.replace(/\.md$/, '').replaceAll('/', '.');
    for (const { groups = {}, index } of text.matchAll(FENCE)) {
      const { directive, language = '', title, text: shown = '' } = groups;
      if (directive || OF_A_GUIDE.test(title ?? '')) continue;
      const line = text.slice(0, index).split('\n').length;
      const script = language === 'vue' || language === 'svelte';
      const name = title ?? `line_${line}.${script ? 'ts' : language}`;
      const file = join(home, name);
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), script ? (SCRIPT.exec(shown)?.[1] ?? '') : shown);
      samples.push({ file, place: `${page}:${line}` });
    }
  }
  // The reader puts these files next to the samples of other pages.
  for (const [file, ...homes] of [
    [
      'get_token.ts',
      'docs.integrations',
      'docs.react',
      'docs.streams',
      'docs.ai-sdk',
      'docs.signed',
      'docs.tabs',
    ],
    ['pubsub_token.ts', 'docs.browsers'],
    ['pubsub.ts', 'docs.integrations', 'docs.streams', 'docs.ai-sdk', 'docs.signed', 'docs.tabs'],
    ['pubsub_server.ts', 'docs.integrations', 'docs.streams', 'docs.ai-sdk'],
  ] as const)
    for (const home of homes)
      copyFileSync(join(folder, 'docs.typescript', file), join(folder, home, file));
});

test('every sample compiles strictly with only its own imports of the product', async () => {
  const compilerOptions = {
    strict: true,
    noEmit: true,
    // Vite wants the extension in its configuration; its templates allow it.
    allowImportingTsExtensions: true,
    jsx: 'react-jsx',
    target: 'es2022',
    module: 'esnext',
    moduleResolution: 'bundler',
    // A sample without an import is also a module, with its own names.
    moduleDetection: 'force',
    skipLibCheck: true,
    lib: ['ES2023', 'DOM', 'DOM.Iterable', 'ESNext.Disposable'],
    types: ['node', 'vite/client'],
  };
  const scripts = { ...compilerOptions, noImplicitAny: false, allowJs: true, checkJs: true };
  const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  const files = samples.map(({ file }) => file);
  const typed = files.filter((file) => /\.tsx?$/.test(file));
  for (const config of [
    { compilerOptions, files: ['reader.d.ts', 'frameworks.d.ts', ...typed] },
    { compilerOptions: scripts, files: files.filter((file) => !typed.includes(file)) },
  ]) {
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    await run(process.execPath, [compiler, '--project', folder, '--pretty', 'false']);
  }
  assert.ok(samples.length >= 40, `only ${samples.length} samples were found`);
});

test('a sample that uses the product imports it', () => {
  const ours = /\bnew (PubSub|SignedTopic|MemoryServer|HanzoChatTransport|TokenSigner)\b/g;
  for (const { file, place } of samples) {
    const text = readFileSync(join(folder, file), 'utf8');
    for (const [, name = ''] of text.matchAll(ours))
      assert.match(text, new RegExp(`import \\{[^}]*\\b${name}\\b`), `${place}: ${name}`);
  }
});
