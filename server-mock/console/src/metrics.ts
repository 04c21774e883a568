/** Reads the metrics that the page shows from `/metrics`, in the text format of Prometheus. */

const LINE = /^hanzo_pubsub_([a-z_]+)(?:\{[^}]*\})?\s+([0-9.eE+-]+)$/;

/** The sum of each metric over its labels, by name without the prefix. */
export function readMetrics(text: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const line of text.split('\n')) {
    const match = LINE.exec(line);
    const [, name, number] = match ?? [];
    const value = Number(number);
    if (name && Number.isFinite(value)) found.set(name, (found.get(name) ?? 0) + value);
  }
  return found;
}
