/** A guide of docs/, pasted into an empty folder as a reader does. */

import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Browser, Page } from 'playwright-core';

import { BOUND } from '../js/runtime/server.js';
import { APPLICATION, ROOT } from './application.js';

const FILE = /^```\w+ title="([^"]+)"\n(.*?)^```/gms;
const local = join(ROOT, '.venv', 'bin', 'python');

/** The Python that has the product installed. */
export const PYTHON: string = existsSync(local) ? local : 'python3';

/**
 * A folder with the files that a page of the docs shows. The packages that `npm install` adds in
 * its `page/` are copied from the checkout.
 *
 * @param name Name of the page in docs/, without `.md`.
 */
export function paste(name: string): string {
  const folder = join(APPLICATION, `guide-${name}`);
  const text = readFileSync(join(ROOT, 'docs', `${name}.md`), 'utf8');
  for (const [, file = '', content = ''] of text.matchAll(FILE)) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), content);
  }
  const modules = join(folder, 'page', 'node_modules');
  mkdirSync(join(modules, '@hanzoai'), { recursive: true });
  for (const name of ['react', 'react-dom', 'scheduler'])
    cpSync(join(ROOT, 'node_modules', name), join(modules, name), { recursive: true });
  // Copy it, so that it finds the React in this folder.
  const installed = join(APPLICATION, 'node_modules', '@hanzoai', 'pubsub');
  cpSync(installed, join(modules, '@hanzoai', 'pubsub'), { recursive: true, dereference: true });
  for (const name of ['vite', '@types'])
    symlinkSync(join(ROOT, 'node_modules', name), join(modules, name));
  return folder;
}

/** Open a tab at an address, with bounded waits. */
export async function openTab(browser: Browser, address: string): Promise<Page> {
  const page = await browser.newPage();
  page.setDefaultTimeout(BOUND);
  await page.goto(address);
  return page;
}

/** Wait until the page shows this status. */
export async function hasStatus(page: Page, status: string): Promise<void> {
  await page.getByRole('status').filter({ hasText: status }).waitFor({ timeout: BOUND });
}
