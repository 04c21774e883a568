"""TypeScript types of the wire: an interface or alias and a guard for every definition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spec._generate.lifecycle import SpecError
from spec._generate.text import header, single

if TYPE_CHECKING:
    from pathlib import Path

Schema = dict[str, Any]

_PRELUDE = """
/** Any JSON object. */
export interface JsonObject {
  readonly [key: string]: unknown;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isInteger(value: unknown, least: number, most: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most;
}

function isText(value: unknown, least: number, most: number): value is string {
  if (typeof value !== 'string' || value.length < least) return false;
  // JSON Schema counts code points; there are never more of them than of UTF-16 units.
  return value.length <= most || [...value].length <= most;
}

function isList(
  value: unknown,
  least: number,
  most: number,
  isItem: (item: unknown) => boolean,
): boolean {
  return (
    Array.isArray(value) && value.length >= least && value.length <= most && value.every(isItem)
  );
}

function isMap(value: unknown, isItem: (item: unknown) => boolean): boolean {
  return isObject(value) && Object.values(value).every(isItem);
}
"""


def wire(path: Path) -> str:
    """The module `generated/wire.ts`."""
    definitions: dict[str, Schema] = json.loads(path.read_text(encoding="utf-8"))["$defs"]
    out = [header("//", f"spec/{path.name}"), _PRELUDE]
    for name, schema in definitions.items():
        out += _comment(schema)
        if "oneOf" in schema:
            out += _union(name, schema, definitions)
        elif schema.get("type") == "object":
            out += _interface(name, schema)
        else:
            out += [f"export type {name} = {_type(schema)};", "", *_guard(name, "", schema)]
        out.append("")
    return "\n".join(out)


def _comment(schema: Schema, indent: str = "") -> list[str]:
    return [f"{indent}/** {schema['description']} */"] if "description" in schema else []


def _interface(name: str, schema: Schema) -> list[str]:
    required = schema["required"]
    out, tests = [f"export interface {name} {{"], ["isObject(value)"]
    for key, field in schema["properties"].items():
        out += _comment(field, "  ")
        out.append(f"  readonly {key}{'' if key in required else '?'}: {_type(field)};")
        value = f"value[{single(key)}]"
        test = _test(field, value)
        if key not in required:
            if test:
                tests.append(f"({value} === undefined || {test})")
        else:
            tests.append(test or f"{single(key)} in value")
    guard = [
        _doc(name),
        f"export function is{name}(value: unknown): value is {name} {{",
        f"  return {' && '.join(tests)};",
        "}",
    ]
    return [*out, "}", "", *guard]


def _union(name: str, schema: Schema, definitions: dict[str, Schema]) -> list[str]:
    members = [_name(member) for member in schema["oneOf"]]
    tag: str = schema["discriminator"]["propertyName"]
    guards = f"{name[0].lower()}{name[1:]}s"
    mapping: dict[str, str] = {}
    for member in members:
        const: str = definitions[member]["properties"][tag]["const"]
        mapping[const] = f"#/$defs/{member}"
    if mapping != schema["discriminator"]["mapping"]:
        raise SpecError(f"{name}: discriminator.mapping is not what its members say")
    return [
        f"export type {name} = {' | '.join(members)};",
        "",
        f"const {guards} = new Map<unknown, (value: unknown) => boolean>([",
        *(f"  [{single(const)}, is{ref.rsplit('/', 1)[1]}]," for const, ref in mapping.items()),
        "]);",
        "",
        *_guard(name, f"isObject(value) && ({guards}.get(value[{single(tag)}])?.(value) ?? false)"),
    ]


def _guard(name: str, test: str, schema: Schema | None = None) -> list[str]:
    return [
        _doc(name),
        f"export function is{name}(value: unknown): value is {name} {{",
        f"  return {test or _test(schema or {}, 'value')};",
        "}",
    ]


def _doc(name: str) -> str:
    return f"/** Whether a value read from JSON is {'an' if name[0] in 'AEIOU' else 'a'} {name}. */"


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[1]


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return _name(schema)
    if "const" in schema:
        return single(schema["const"])
    if "anyOf" in schema:
        closed, anything = schema["anyOf"]
        if anything != {"type": "string"}:
            raise SpecError(f"outside the subset of the TypeScript emitter: {schema}")
        # `string & {}` keeps the known codes in completion lists.
        return " | ".join([*map(single, closed["enum"]), "(string & {})"])
    match schema.get("type"):
        case "array":
            return f"readonly {_type(schema['items'])}[]"
        case "integer":
            return "number"
        case "object":
            values = schema["additionalProperties"]
            return "JsonObject" if values is True else f"Readonly<Record<string, {_type(values)}>>"
        case "string" | "boolean" as plain:
            return str(plain)
        case None:
            return "unknown"
        case _:
            raise SpecError(f"outside the subset of the TypeScript emitter: {schema}")


def _test(schema: Schema, value: str) -> str:
    if "$ref" in schema:
        return f"is{_name(schema)}({value})"
    if "const" in schema:
        return f"{value} === {single(schema['const'])}"
    if "anyOf" in schema:
        return f"typeof {value} === 'string'"
    match schema.get("type"):
        case "array":
            bounds = f"{schema.get('minItems', 0)}, {schema.get('maxItems', 'Infinity')}"
            return f"isList({value}, {bounds}, {_function(schema['items'])})"
        case "integer":
            return f"isInteger({value}, {schema['minimum']}, {schema.get('maximum', 'Infinity')})"
        case "object":
            values = schema["additionalProperties"]
            return (
                f"isObject({value})" if values is True else f"isMap({value}, {_function(values)})"
            )
        case "string":
            return _text_test(schema, value)
        case "boolean":
            return f"typeof {value} === 'boolean'"
        case _:
            return ""


def _text_test(schema: Schema, value: str) -> str:
    if not schema.keys() & {"minLength", "maxLength", "pattern"}:
        return f"typeof {value} === 'string'"
    least, most = schema.get("minLength", 0), schema.get("maxLength", "Infinity")
    test = f"isText({value}, {least}, {most})"
    return f"{test} && /{schema['pattern']}/.test({value})" if "pattern" in schema else test


def _function(schema: Schema) -> str:
    return f"is{_name(schema)}" if "$ref" in schema else f"(item) => {_test(schema, 'item')}"
