// Queries Prometheus for the targets of a panel, and returns Grafana data frames.
import {
  createDataFrame,
  type DataFrame,
  FieldType,
  rangeUtil,
  type TimeRange,
} from '@grafana/data';
import type { Dashboard } from '@grafana/schema';

/** The dashboard and its data source; draw.mjs sets it. */
export interface Given {
  readonly board: Dashboard;
  /** Unix milliseconds. */
  readonly from: number;
  readonly to: number;
  /** Seconds between two scrapes, as in the settings of the data source. */
  readonly scrapedEvery: number;
}

interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [number, string])[];
}

export interface Target {
  readonly refId: string;
  readonly expr: string;
  readonly legendFormat: string;
}

const ALL = '$__all';

/** The initial values of the dashboard's variables; for this dashboard, all of them. */
function variables(board: Dashboard): Map<string, string> {
  const found = new Map<string, string>();
  for (const { name, current, allValue } of board.templating?.list ?? []) {
    const value = [current?.value ?? ''].flat().map(String);
    found.set(name, value.includes(ALL) ? (allValue ?? '.*') : value.join('|'));
  }
  return found;
}

/** Computes `$__rate_interval` like Grafana's data source: at least four scrapes. */
function rateInterval(interval: number, scrapedEvery: number): string {
  return `${Math.max(interval + scrapedEvery, 4 * scrapedEvery)}s`;
}

function name(format: string, labels: Series['metric']): string {
  if (format !== '') {
    return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label: string) => labels[label] ?? '');
  }
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  return `{${pairs.join(', ')}}`;
}

/**
 * Queries all targets.
 *
 * @param width Width of the graph in pixels; the maximum number of points.
 * @throws Error Prometheus rejected an expression, or one names an unknown variable.
 */
export async function ask(
  given: Given,
  targets: readonly Target[],
  range: TimeRange,
  width: number,
): Promise<DataFrame[]> {
  const lowest = `${given.scrapedEvery}s`;
  const { intervalMs } = rangeUtil.calculateInterval(range, width, lowest);
  const known = variables(given.board);
  known.set('__rate_interval', rateInterval(intervalMs / 1000, given.scrapedEvery));
  const frames: DataFrame[] = [];
  for (const { refId, expr, legendFormat } of targets) {
    const query = expr.replace(/\$(\w+)/g, (_, variable: string) => {
      const value = known.get(variable);
      if (value === undefined) throw new Error(`no variable is called ${variable}: ${expr}`);
      return value;
    });
    const step = intervalMs / 1000;
    const from = Math.floor(given.from / intervalMs) * step;
    const to = Math.floor(given.to / intervalMs) * step;
    const form = new URLSearchParams({ query, start: `${from}`, end: `${to}`, step: `${step}` });
    const response = await fetch(`/api/v1/query_range?${form}`);
    const answer: { data?: { result: Series[] }; error?: string } = await response.json();
    if (answer.data === undefined) throw new Error(`${answer.error}: ${query}`);
    for (const { metric, values } of answer.data.result) {
      frames.push(
        createDataFrame({
          refId,
          fields: [
            {
              name: 'Time',
              type: FieldType.time,
              config: { interval: intervalMs },
              values: values.map(([seconds]) => 1000 * seconds),
            },
            {
              name: 'Value',
              type: FieldType.number,
              labels: { ...metric },
              config: { displayNameFromDS: name(legendFormat, metric) },
              values: values.map(([, text]) => Number(text)),
            },
          ],
        }),
      );
    }
  }
  return frames;
}
