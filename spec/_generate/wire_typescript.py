"""Writes TypeScript wire types: an interface or alias and a guard for each definition.

The types of frames are one module, and those of HTTP another, so that pages without HTTP don't load
them. A guard is data: a text that `js/src/wire/guard.ts` reads.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from spec._generate.lifecycle import SpecError
from spec._generate.text import header, single

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Schema = dict[str, Any]

_SAFE = 2**53 - 1

# Checked for each message. Engines run code faster than an interpreter of guards.
_HOT = frozenset({"Envelope", "Sender"})
_TOPICS = {"Topic": "isTopic", "TopicPattern": "isPattern"}
_KINDS: dict[str | None, str] = {"boolean": "flag", None: "any"}
_LENGTHS: dict[tuple[int, int | None], str] = {(0, None): "text", (1, 128): "id", (1, 64): "ref"}


def frames(path: Path) -> str:
    """The module `generated/wire.ts`."""
    definitions = _load(path)
    return _module(path, definitions, sorted(_in_frames(definitions)), [])


def http(path: Path) -> str:
    """The module `generated/http.ts`."""
    definitions = _load(path)
    shared = sorted(_in_frames(definitions))
    return _module(path, definitions, [name for name in definitions if name not in shared], shared)


def _load(path: Path) -> dict[str, Schema]:
    definitions: dict[str, Schema] = json.loads(path.read_text(encoding="utf-8"))["$defs"]
    return definitions


def _in_frames(definitions: dict[str, Schema]) -> set[str]:
    found, names = set[str](), {"ClientFrame", "ServerFrame"}
    while names:
        found |= names
        names = {one for name in names for one in _references(definitions[name])} - found
    return found


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        fields = cast("Schema", schema)
        if "$ref" in fields:
            yield _name(fields)
        for value in fields.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in cast("list[object]", schema):
            yield from _references(value)


def _module(
    path: Path, definitions: dict[str, Schema], names: list[str], imported: list[str]
) -> str:
    out: list[str] = []
    frames = {
        _name(member) for schema in definitions.values() for member in schema.get("oneOf", [])
    }
    for name in (name for name in definitions if name in names):
        schema = definitions[name]
        out += _comment(schema)
        if "oneOf" in schema:
            out += _union(name, schema, definitions)
        elif name in frames:
            out += _interface(name, schema)
        elif schema.get("type") == "object":
            out += _guarded(name, schema, definitions)
        else:
            out += [f"export type {name} = {_type(schema)};", ""]
            if test := _TOPICS.get(name):
                # Names that are already correct are exported again.
                again = f"export {{ {test} }};" if test == f"is{name}" else ""
                out += [again or f"{_doc(name)}\nexport const is{name}: Test = {test};"]
        out.append("")
    body = "\n".join(out)
    tools = ["type Guard", "isCount", "isObject", "isSome", "isText", "type JsonObject", "shape"]
    tools += ["type Test"]
    used = [tool for tool in tools if tool.removeprefix("type ") in body]
    topics = (
        []
        if imported
        else [f"import {{ {', '.join(sorted(_TOPICS.values()))} }} from '../topics.js';"]
    )
    types = [name for name in imported if _is_used(name, body)]
    guards = [f"is{name}" for name in imported if _is_used(f"is{name}", body)]
    from_frames = [*(f"type {name}" for name in types), *guards]
    from_frames.sort(key=lambda name: name.removeprefix("type ").lower())
    return "\n".join(
        [
            header("//", f"spec/{path.name}"),
            "",
            *topics,
            f"import {{ {', '.join(used)} }} from '../wire/guard.js';",
            *([f"import {{ {', '.join(from_frames)} }} from './wire.js';"] if imported else []),
            "",
            *([] if imported else ["export type { JsonObject };", ""]),
            body,
        ]
    )


def _is_used(name: str, body: str) -> bool:
    return re.search(rf"\b{name}\b", body) is not None


def _comment(schema: Schema, indent: str = "") -> list[str]:
    return [f"{indent}/** {schema['description']} */"] if "description" in schema else []


def _interface(name: str, schema: Schema) -> list[str]:
    out = [f"export interface {name} {{"]
    for key, field in schema["properties"].items():
        optional = "" if key in schema["required"] else "?"
        out += _comment(field, "  ")
        out.append(f"  readonly {key}{optional}: {_type(field)};")
    return [*out, "}"]


def _guarded(name: str, schema: Schema, definitions: dict[str, Schema]) -> list[str]:
    """An interface and its guard."""
    guard = (
        _function(name, schema, definitions)
        if name in _HOT
        else [f"export const is{name}: Guard<{name}> = {_shape(schema, definitions)};"]
    )
    return [*_interface(name, schema), "", _doc(name), *guard]


def _shape(schema: Schema, definitions: dict[str, Schema], tag: str = "") -> str:
    """A guard as data, without the field `tag`."""
    fields, others = list[str](), list[str]()
    for key, field in schema["properties"].items():
        if key == tag:
            continue
        optional = "" if key in schema["required"] else "?"
        kind = _kind(field, definitions, others)
        fields.append(f"{key}{optional}" if kind == "text" else f"{key}{optional}:{kind}")
    return f"/* @__PURE__ */ shape({', '.join([single(' '.join(fields)), *others])})"


def _function(name: str, schema: Schema, definitions: dict[str, Schema]) -> list[str]:
    """A guard as code."""
    tests = list[str]()
    for key, field in schema["properties"].items():
        test = _code(field, key, definitions)
        tests.append(
            test if key in schema["required"] else f"({key} === undefined || {test})",
        )
    return [
        f"export function is{name}(value: unknown): value is {name} {{",
        "  if (!isObject(value)) return false;",
        f"  const {{ {', '.join(schema['properties'])} }} = value;",
        f"  return {' && '.join(tests)};",
        "}",
    ]


def _code(schema: Schema, value: str, definitions: dict[str, Schema]) -> str:
    if "$ref" in schema:
        name = _name(schema)
        is_plain = name not in _TOPICS and definitions[name].get("type") != "object"
        return _code(definitions[name], value, definitions) if is_plain else f"is{name}({value})"
    match schema.get("type"):
        case "string" if _lengths(schema) == (0, None):
            return f"typeof {value} === 'string'"
        case "string" if "pattern" not in schema:
            least, most = _lengths(schema)
            return f"isText({value}, {least}, {most or 'Infinity'})"
        case "integer" if schema["minimum"] == 0 and schema.get("maximum") in (None, _SAFE):
            return f"isCount({value}{'' if 'maximum' in schema else ', Infinity'})"
        case "object":
            return f"isObject({value})"
        case None:
            return f"{value} !== undefined"
        case _:
            raise SpecError(f"outside the subset of the TypeScript emitter: {schema}")


def _kind(schema: Schema, definitions: dict[str, Schema], others: list[str]) -> str:
    """The kind of a field in the notation of `guard.ts`; other tests are separate arguments."""
    if "$ref" in schema and definitions[_name(schema)].get("type") != "object":
        name = _name(schema)
        return "topic" if name == "Topic" else _kind(definitions[name], definitions, others)
    if "anyOf" in schema:
        return "text"
    match schema.get("type"):
        case "array" if not schema.keys() & {"minItems", "maxItems"}:
            return f"{_kind(schema['items'], definitions, others)}[]"
        case "object" if "additionalProperties" in schema:
            values = schema["additionalProperties"]
            return "object" if values is True else f"{_kind(values, definitions, others)}{{}}"
        case "integer" if schema.get("maximum") in (None, _SAFE) and schema["minimum"] == 0:
            return "count" if "maximum" in schema else "int"
        case "string" if "pattern" not in schema and _lengths(schema) in _LENGTHS:
            return _LENGTHS[_lengths(schema)]
        case ("boolean" | None) as plain if "$ref" not in schema:
            return _KINDS[plain]
        case _:
            test = _test(schema, definitions)
            if test not in others:
                others.append(test)
            return str(others.index(test))


def _test(schema: Schema, definitions: dict[str, Schema]) -> str:
    """A test, as code."""
    if "$ref" in schema:
        return f"is{_name(schema)}"
    if "anyOf" in schema:
        return "(value) => typeof value === 'string'"
    match schema.get("type"):
        case "array" if schema.get("minItems") == 1:
            items = _test(schema["items"], definitions)
            return f"(value) => isSome(value, {schema['maxItems']}, {items})"
        case "integer" if schema["minimum"] == 0:
            return f"(value) => isCount(value, {schema['maximum']})"
        case "string":
            least, most = _lengths(schema)
            test = f"isText(value, {least}, {most or 'Infinity'})"
            if "pattern" in schema:
                test += f" && /{schema['pattern']}/.test(value as string)"
            return f"(value) => {test}"
        case _:
            raise SpecError(f"outside the subset of the TypeScript emitter: {schema}")


def _lengths(schema: Schema) -> tuple[int, int | None]:
    return schema.get("minLength", 0), schema.get("maxLength")


def _union(name: str, schema: Schema, definitions: dict[str, Schema]) -> list[str]:
    members = [_name(member) for member in schema["oneOf"]]
    tag: str = schema["discriminator"]["propertyName"]
    mapping: dict[str, str] = {}
    for member in members:
        const: str = definitions[member]["properties"][tag]["const"]
        mapping[const] = f"#/$defs/{member}"
    if mapping != schema["discriminator"]["mapping"]:
        raise SpecError(f"{name}: discriminator.mapping is not what its members say")
    out = [f"export type {name} = {' | '.join(members)};"]
    if name == "ClientFrame":
        return out
    guards = re.sub(r"(?<=.)([A-Z])", r"_\1", name).upper() + "S"
    shapes = [_shape(definitions[member], definitions, tag) for member in members]
    return [
        *out,
        "",
        f"/** Guards of each {name} by its `{tag}`; they don't check this field. */",
        f"export const {guards}: ReadonlyMap<unknown, Guard<{name}>> = "
        f"/* @__PURE__ */ new Map<unknown, Guard<{name}>>([",
        *(f"  [{single(const)}, {one}]," for const, one in zip(mapping, shapes, strict=True)),
        "]);",
        "",
        _doc(name),
        f"export function is{name}(value: unknown): value is {name} {{",
        f"  return isObject(value) && ({guards}.get(value[{single(tag)}])?.(value) ?? false);",
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
