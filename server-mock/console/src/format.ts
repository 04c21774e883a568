/** Formats numbers, times and data for display. */

const CLOCK = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});
const WHEN = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** Maximum characters of a preview. */
export const PREVIEW_MAX = 320;

/** `14:03:22.418`, in the time zone of the browser. */
export function clockTime(ms: number): string {
  return `${CLOCK.format(ms)}.${String(Math.floor(ms) % 1000).padStart(3, '0')}`;
}

/** Date and time in full. */
export function fullTime(ms: number): string {
  return WHEN.format(ms);
}

/** `4:32`, `1:04:32`; never negative. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const end = `${String(m).padStart(h ? 2 : 1, '0')}:${String(s).padStart(2, '0')}`;
  return h ? `${h}:${end}` : end;
}

/** `now`, `12 s`, `4 min`, `3 h`, `2 d`. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 1) return 'now';
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** `just now`, `12 s ago`. */
export function ago(ms: number): string {
  const span = age(ms);
  return span === 'now' ? 'just now' : `${span} ago`;
}

/** `0`, `950`, `12.3k`, `4.1M`. */
export function compact(count: number): string {
  if (count < 1000) return String(Math.round(count));
  const [unit, name] = count < 999_950 ? [1e3, 'k'] : count < 999_950_000 ? [1e6, 'M'] : [1e9, 'G'];
  return `${(count / unit).toFixed(count / unit < 100 ? 1 : 0)}${name}`;
}

/** `0`, `0.3`, `8.2`, `128`, `9.9k`: a rate per second. */
export function rate(perSecond: number): string {
  if (perSecond < 0.05) return '0';
  return perSecond < 10 ? perSecond.toFixed(1) : compact(perSecond);
}

/** `512 B`, `4.1 KiB`, `12 MiB`. */
export function bytes(size: number): string {
  if (Math.round(size) < 1024) return `${Math.round(size)} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let [value, unit] = [size / 1024, 0];
  // Compare the rounded number, so that neither `10.0 KiB` nor `1024 KiB` appears.
  while (value >= 1023.5 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${value.toFixed(value < 9.95 ? 1 : 0)} ${units[unit]}`;
}

/** `1 message`, `2 messages`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en-US')} ${count === 1 ? one : many}`;
}

/** Data on one line, truncated. It stops walking through the data when the line is full. */
export function preview(data: unknown, limit = PREVIEW_MAX): string {
  const parts: string[] = [];
  let length = 0;
  const put = (text: string): boolean => {
    parts.push(text);
    length += text.length;
    return length < limit;
  };
  const walk = (value: unknown, depth: number): boolean => {
    if (typeof value === 'string') return put(JSON.stringify(value.slice(0, limit)));
    if (value === null || typeof value !== 'object') return put(String(value));
    const isList = Array.isArray(value);
    if (depth > 6) return put(isList ? '[…]' : '{…}');
    if (!put(isList ? '[' : '{')) return false;
    let first = true;
    for (const key in value) {
      if (!Object.hasOwn(value, key)) continue;
      if (!first && !put(', ')) return false;
      first = false;
      if (!isList && !put(`${key}: `)) return false;
      if (!walk((value as Record<string, unknown>)[key], depth + 1)) return false;
    }
    return put(isList ? ']' : '}');
  };
  walk(data, 0);
  const text = parts.join('').replace(/\s+/g, ' ');
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

/** Two letters that represent a user without a picture. */
export function initials(name: string): string {
  const words = name.split(/[\s._@-]+/).filter(Boolean);
  const letters = words.length > 1 ? [words[0], words.at(-1)] : [words[0]];
  return letters.map((word) => Array.from(word ?? '?')[0]?.toUpperCase() ?? '?').join('');
}
