/** The error messages for invalid topics and patterns, the same in all SDKs. */

import { DEVELOPMENT } from './build.js';
import { InvalidTopic } from './errors.js';
import { isPattern, isTopic, MAX_TOPIC } from './topics.js';

const FOREIGN = /[^a-zA-Z0-9_.*-]/u;
const SHOWN = 80;

/**
 * Check the name of a topic, or a pattern, and return it.
 *
 * @throws InvalidTopic It is not valid; the message names the problem and its position.
 */
export function checkName(name: unknown, kind: 'topic' | 'pattern'): string {
  if (kind === 'topic' ? isTopic(name) : isPattern(name)) return name as string;
  throw invalid(name, kind);
}

function invalid(name: unknown, kind: 'topic' | 'pattern'): InvalidTopic {
  if (typeof name !== 'string') {
    return new InvalidTopic(`A ${kind} is a string, not ${name === null ? 'null' : typeof name}.`);
  }
  const points = Array.from(name.slice(0, 2 * MAX_TOPIC));
  const topic = points.slice(0, MAX_TOPIC).join('');
  if (!DEVELOPMENT) return new InvalidTopic(undefined, { topic });
  const shown = points.length <= SHOWN ? name : `${points.slice(0, SHOWN).join('')}…`;
  const [problem, remedy] = diagnose(name, kind);
  return new InvalidTopic(`The ${kind} ${ascii(shown)} ${problem}.`, { remedy, topic });
}

function diagnose(
  name: string,
  kind: 'topic' | 'pattern',
): [problem: string, remedy?: string | undefined] {
  if (name === '') return ['is empty'];
  const foreign = FOREIGN.exec(name);
  if (foreign) {
    return [`has ${ascii(foreign[0])} at character ${foreign.index + 1}`, meant(name, kind)];
  }
  if (name.length > MAX_TOPIC) {
    return [`has ${name.length} bytes`, `Use at most ${MAX_TOPIC} bytes.`];
  }
  let at = 1;
  for (const segment of name.split('.')) {
    if (segment === '') {
      return [
        `has an empty segment at character ${at}`,
        'Put one or more characters before, between and after dots.',
      ];
    }
    const star = segment.indexOf('*');
    if (star >= 0 && kind === 'topic') {
      return [
        `has the wildcard '*' at character ${at + star}`,
        'Use the full name of one topic; `*` and `**` are for subscriptions.',
      ];
    }
    if (star >= 0 && segment !== '*' && segment !== '**') {
      return [
        `mixes '*' at character ${at + star} with other characters in one segment`,
        'Use `*` (one segment) or `**` (one or more) as a whole segment.',
      ];
    }
    at += segment.length + 1;
  }
  return ['is not valid'];
}

/** The remedy for a name as other services write it: `a/b`, `a:b`, `a.>`, `a/#`, or a list. */
function meant(name: string, kind: 'topic' | 'pattern'): string | undefined {
  const isRead = kind === 'pattern';
  if (isRead && name.includes(',')) return 'Pass a list of patterns.';
  // With one separator at each end. The time for a longer name would grow with its square.
  if (name.length > MAX_TOPIC + 2) return undefined;
  const segments = name.replace(/^[/:]+|[/:]+$/g, '').split(/[/:.]/);
  const here = segments
    .map((segment) => (isRead ? segment.replace(/^[>#]$/, '**').replace(/^\+$/, '*') : segment))
    .join('.');
  if (!(isRead ? isPattern : isTopic)(here)) return undefined;
  return `${/[/:]/.test(name) ? 'Separate segments with dots:' : 'Write'} '${here}'.`;
}

/** The text in quotes, with everything but printable ASCII escaped. */
function ascii(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[^ -~]|[\\'"]/gu, (found) => {
    if (found === '"' || found === "'") return found === quote ? `\\${found}` : found;
    const named = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }[found];
    if (named) return named;
    const hex = (found.codePointAt(0) ?? 0).toString(16);
    if (hex.length <= 2) return `\\x${hex.padStart(2, '0')}`;
    return hex.length <= 4 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
  });
  return quote + escaped + quote;
}
