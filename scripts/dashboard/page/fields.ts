// The field options of the panels: what @grafana/data needs to apply a dashboard's `fieldConfig`.
import {
  createFieldConfigRegistry,
  displayNameOverrideProcessor,
  type Field,
  type FieldConfigOptionsRegistry,
  FieldConfigProperty,
  type FieldConfigPropertyItem,
  FieldType,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardFieldConfigEditorRegistry,
  thresholdsOverrideProcessor,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { type GraphFieldConfig, StackingMode, VisibilityMode } from '@grafana/schema';

const isNumber = (field: Field) => field.type === FieldType.number;

function item(
  id: string,
  process: FieldConfigPropertyItem['process'],
  shouldApply: (field: Field) => boolean = () => true,
): FieldConfigPropertyItem {
  const editor = () => null;
  return { id, path: id, name: id, process, shouldApply, editor, override: editor, settings: {} };
}

/** Field options that every panel has. */
const STANDARD = [
  item(FieldConfigProperty.Unit, unitOverrideProcessor, isNumber),
  item(FieldConfigProperty.Min, numberOverrideProcessor, isNumber),
  item(FieldConfigProperty.Max, numberOverrideProcessor, isNumber),
  item(FieldConfigProperty.Decimals, numberOverrideProcessor, isNumber),
  item(FieldConfigProperty.DisplayName, displayNameOverrideProcessor),
  item(FieldConfigProperty.NoValue, identityOverrideProcessor),
  item(FieldConfigProperty.Color, identityOverrideProcessor, isNumber),
  item(FieldConfigProperty.Thresholds, thresholdsOverrideProcessor, isNumber),
  item(FieldConfigProperty.Mappings, valueMappingsOverrideProcessor),
];

/** Field options that only graphs have. */
const CUSTOM = [
  'drawStyle',
  'lineInterpolation',
  'lineWidth',
  'lineStyle',
  'fillOpacity',
  'gradientMode',
  'showPoints',
  'pointSize',
  'spanNulls',
  'stacking',
  'axisPlacement',
  'axisLabel',
  'axisGridShow',
  'axisSoftMin',
  'axisSoftMax',
  'scaleDistribution',
  'thresholdsStyle',
] as const satisfies readonly (keyof GraphFieldConfig)[];

/** Settings of a graph that the dashboard leaves out. */
export const GRAPH_DEFAULTS: GraphFieldConfig = {
  axisGridShow: true,
  showPoints: VisibilityMode.Auto,
  stacking: { mode: StackingMode.None, group: 'A' },
};

standardFieldConfigEditorRegistry.setInit(() => STANDARD);

export const statFields: FieldConfigOptionsRegistry = createFieldConfigRegistry({}, 'stat');

export const graphFields: FieldConfigOptionsRegistry = createFieldConfigRegistry(
  {
    useCustomConfig(builder) {
      for (const path of CUSTOM) {
        builder.addCustomEditor(item(path, identityOverrideProcessor, isNumber));
      }
    },
  },
  'timeseries',
);
