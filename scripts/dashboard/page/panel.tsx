// A panel: Grafana's frame, and in it the graph that Grafana's code draws from the responses.
import {
  applyFieldOverrides,
  type DataFrame,
  type FieldConfigSource,
  FieldType,
  type GrafanaTheme2,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  getValueFormats,
  type TimeRange,
  VizOrientation,
} from '@grafana/data';
import {
  BigValueColorMode,
  BigValueGraphMode,
  BigValueTextMode,
  type Panel,
  type VizLegendOptions,
} from '@grafana/schema';
import { BigValue, PanelChrome, TimeSeries, useTheme2, VizRepeater } from '@grafana/ui';
import type { ComponentProps, ReactNode } from 'react';
import { GRAPH_DEFAULTS, graphFields, statFields } from './fields.js';

interface Size {
  readonly width: number;
  readonly height: number;
}

interface Drawn extends Size {
  readonly panel: Panel;
  readonly frames: readonly DataFrame[];
  readonly range: TimeRange;
}

/** Supported units. Grafana would append any other one unchanged to the numbers. */
const UNITS = new Set(
  getValueFormats().flatMap(({ submenu }) => submenu.map(({ value }) => value)),
);

const literally = (text: string) => text;

/** Applies the dashboard's `fieldConfig` to the responses, with Grafana's defaults. */
function applied(
  { panel, frames }: Drawn,
  registry: typeof graphFields,
  theme: GrafanaTheme2,
): { fieldConfig: FieldConfigSource; data: DataFrame[] } {
  const source = panel.fieldConfig as FieldConfigSource;
  for (const option of Object.keys(source.defaults.custom ?? {})) {
    if (!registry.getIfExists(`custom.${option}`)) {
      throw new Error(`panel ${panel.title}: no option of a ${panel.type} is called ${option}`);
    }
  }
  const { unit } = source.defaults;
  if (unit !== undefined && !UNITS.has(unit)) {
    throw new Error(`panel ${panel.title}: no unit is called ${unit}`);
  }
  const custom = panel.type === 'timeseries' ? GRAPH_DEFAULTS : {};
  const fieldConfig = {
    overrides: source.overrides,
    defaults: { ...source.defaults, custom: { ...custom, ...source.defaults.custom } },
  };
  const data = applyFieldOverrides({
    data: [...frames],
    fieldConfig,
    fieldConfigRegistry: registry,
    replaceVariables: literally,
    theme,
    timeZone: 'utc',
  });
  return { fieldConfig, data };
}

/** Removes NaN, the quantile of no data, so that the graph has a gap. */
function finite(frame: DataFrame): DataFrame {
  const hole = (value: unknown) => (Number.isFinite(value) ? value : null);
  const fields = frame.fields.map((field) =>
    field.type === FieldType.number ? { ...field, values: field.values.map(hole) } : field,
  );
  return { ...frame, fields };
}

function Graph(drawn: Drawn): ReactNode {
  const theme = useTheme2();
  const { data } = applied({ ...drawn, frames: drawn.frames.map(finite) }, graphFields, theme);
  return (
    <TimeSeries
      frames={data}
      structureRev={1}
      timeRange={drawn.range}
      timeZone="utc"
      width={drawn.width}
      height={drawn.height}
      legend={drawn.panel.options?.['legend'] as VizLegendOptions}
      options={drawn.panel.options ?? {}}
    />
  );
}

type StatOptions = Pick<
  ComponentProps<typeof BigValue>,
  'colorMode' | 'graphMode' | 'justifyMode' | 'textMode'
> & { reduceOptions: { calcs: string[]; fields: string; values: boolean } };

function Stat(drawn: Drawn): ReactNode {
  const theme = useTheme2();
  const { fieldConfig, data } = applied(drawn, statFields, theme);
  const options = drawn.panel.options as unknown as StatOptions;
  const { colorMode, graphMode, justifyMode, textMode, reduceOptions } = options;
  // A single value needs no name.
  const bare = textMode === BigValueTextMode.Auto && data.length === 1;
  return (
    <VizRepeater
      source={data}
      width={drawn.width}
      height={drawn.height}
      itemSpacing={3}
      renderCounter={0}
      autoGrid
      orientation={VizOrientation.Auto}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      getValues={() =>
        getFieldDisplayValues({
          fieldConfig,
          reduceOptions,
          replaceVariables: literally,
          theme,
          data,
          sparkline: graphMode !== BigValueGraphMode.None,
          timeZone: 'utc',
        })
      }
      renderValue={({ value, alignmentFactors, width, height, count }) => (
        <BigValue
          value={value.display}
          count={count}
          {...(value.sparkline && { sparkline: { ...value.sparkline, timeRange: drawn.range } })}
          colorMode={colorMode ?? BigValueColorMode.Value}
          graphMode={graphMode}
          {...(justifyMode && { justifyMode })}
          textMode={bare ? BigValueTextMode.Value : (textMode ?? BigValueTextMode.Auto)}
          alignmentFactors={alignmentFactors}
          width={width}
          height={height}
          theme={theme}
        />
      )}
    />
  );
}

const KINDS: Readonly<Record<string, (drawn: Drawn) => ReactNode>> = {
  timeseries: Graph,
  stat: Stat,
};

/** @throws Error The dashboard has an unsupported panel type. */
export function PanelView(drawn: Drawn): ReactNode {
  const { panel, width, height, frames } = drawn;
  const Kind = KINDS[panel.type];
  if (Kind === undefined) throw new Error(`panel ${panel.title}: ${panel.type} is not drawn here`);
  return (
    <PanelChrome
      title={panel.title ?? ''}
      description={panel.description ?? ''}
      width={width}
      height={height}
    >
      {(innerWidth, innerHeight) =>
        frames.length === 0 ? (
          <div>No data</div>
        ) : (
          <Kind {...drawn} width={innerWidth} height={innerHeight} />
        )
      }
    </PanelChrome>
  );
}
