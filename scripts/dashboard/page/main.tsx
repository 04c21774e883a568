// The page of which draw.mjs takes a screenshot.
import { createTheme, type DataFrame, dateTime, rangeUtil, type TimeRange } from '@grafana/data';
import type { Panel, RowPanel } from '@grafana/schema';
import {
  GlobalStyles,
  Icon,
  PortalContainer,
  Text,
  ThemeContext,
  ToolbarButton,
} from '@grafana/ui';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { PanelView } from './panel.js';
import { ask, type Given, type Target } from './queries.js';

declare global {
  interface Window {
    /** The dashboard to draw. */
    given: Given;
    /** Titles of panels without data; set once the dashboard is on the page. */
    empty?: string[];
  }
}

/** Grafana's grid: columns, and sizes in pixels. */
const COLUMNS = 24;
const CELL = 30;
const GAP = 8;
const PADDING = 16;
const HEAD = 48;

interface Answered {
  readonly panel: Panel | RowPanel;
  readonly frames: readonly DataFrame[];
}

function place({ gridPos }: Panel | RowPanel): { x: number; y: number; w: number; h: number } {
  if (gridPos === undefined) throw new Error('a panel has no place');
  const column = (window.innerWidth - 2 * PADDING - (COLUMNS - 1) * GAP) / COLUMNS;
  return {
    x: PADDING + Math.round(gridPos.x * (column + GAP)),
    y: HEAD + gridPos.y * (CELL + GAP),
    w: Math.round(gridPos.w * column + (gridPos.w - 1) * GAP),
    h: gridPos.h * CELL + (gridPos.h - 1) * GAP,
  };
}

function Row({ title }: { title: string }): ReactNode {
  return (
    <div style={{ display: 'flex', alignItems: 'center', gap: 4, height: CELL }}>
      <Icon name="angle-down" size="lg" />
      <Text element="h3" variant="h5">
        {title}
      </Text>
    </div>
  );
}

function Board({
  answered,
  range,
}: {
  answered: readonly Answered[];
  range: TimeRange;
}): ReactNode {
  const ends = answered.map(({ panel }) => place(panel)).map(({ y, h }) => y + h);
  const { board } = window.given;
  return (
    <div style={{ position: 'relative', height: Math.max(...ends) + PADDING }}>
      <div
        style={{
          display: 'flex',
          alignItems: 'center',
          justifyContent: 'space-between',
          padding: `0 ${PADDING}px`,
          height: HEAD,
        }}
      >
        <Text element="h1" variant="h4">
          {board.title ?? ''}
        </Text>
        <ToolbarButton icon="clock-nine" variant="canvas">
          {rangeUtil.describeTimeRange(range.raw, 'utc')}
        </ToolbarButton>
      </div>
      {answered.map(({ panel, frames }) => {
        const { x, y, w, h } = place(panel);
        return (
          <div
            key={panel.id}
            style={{ position: 'absolute', left: x, top: y, width: w, height: h }}
          >
            {panel.type === 'row' ? (
              <Row title={panel.title ?? ''} />
            ) : (
              <PanelView
                panel={panel as Panel}
                frames={frames}
                range={range}
                width={w}
                height={h}
              />
            )}
          </div>
        );
      })}
    </div>
  );
}

async function draw(given: Given): Promise<void> {
  const from = dateTime(given.from);
  const to = dateTime(given.to);
  const range = { from, to, raw: { from, to } };
  const answered: Answered[] = await Promise.all(
    (given.board.panels ?? []).map(async (panel) => {
      const targets = (panel as { targets?: unknown }).targets as Target[] | undefined;
      return { panel, frames: await ask(given, targets ?? [], range, place(panel).w) };
    }),
  );
  const theme = createTheme({ colors: { mode: 'dark' } });
  // The axes are drawn on a canvas, so the fonts must be loaded first.
  const root = createRoot(document.getElementById('root') as HTMLElement);
  root.render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
    </ThemeContext.Provider>,
  );
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  await Promise.all(['400', '500'].map((weight) => document.fonts.load(`${weight} 12px Inter`)));
  root.render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Board answered={answered} range={range} />
      <PortalContainer />
    </ThemeContext.Provider>,
  );
  const graphs = answered.filter(({ panel }) => panel.type !== 'row');
  window.empty = graphs
    .filter(({ frames }) => frames.length === 0)
    .map(({ panel }) => panel.title ?? '');
}

await draw(window.given);
