/** Exports the shown messages to a file. */

import type { Entry } from './buffer.js';

/** One message per line, or one array. */
export type ExportFormat = 'ndjson' | 'json';

/** The text of the file, without gaps. */
export function exported(entries: readonly Entry[], format: ExportFormat): string {
  const messages = entries.flatMap((entry) => (entry.kind === 'message' ? [entry.message] : []));
  if (format === 'json') return `${JSON.stringify(messages, undefined, 2)}\n`;
  return messages.map((message) => `${JSON.stringify(message)}\n`).join('');
}

/** Download a text in the browser. */
export function save(text: string, name: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
