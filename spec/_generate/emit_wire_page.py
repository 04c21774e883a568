"""Writes the page about the wire types, with an example of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spec._generate.emit_docs import header

if TYPE_CHECKING:
    from pathlib import Path

Schema = dict[str, Any]

_INTRODUCTION = """
Every type on a WebSocket, on an event stream and over HTTP. `spec/asyncapi.yaml` describes the
WebSocket and `spec/openapi.yaml` describes HTTP; both use these types. Types are open: readers
ignore unknown fields, and keep them in values that they pass on.
"""
_EXAMPLES = ("canonical", "full", "with-history", "with-position", "two", "mixed", "token", "since")


def wire(schema: Path, examples: Path) -> str:
    """The page `docs/wire.md`."""
    definitions: dict[str, Schema] = json.loads(schema.read_text(encoding="utf-8"))["$defs"]
    sides = {
        side: [_name(member) for member in definitions[side]["oneOf"]]
        for side in ("ClientFrame", "ServerFrame")
    }
    framed = {*sides, *sides["ClientFrame"], *sides["ServerFrame"]}
    objects = [
        name
        for name, definition in definitions.items()
        if definition.get("type") == "object" and name not in framed
    ]
    simple = [name for name in definitions if name not in framed and name not in set(objects)]
    out = [header(f"spec/{schema.name} and spec/examples/"), "", "# Wire types"]
    out.append(_INTRODUCTION)
    for title, names in (
        ("Frames of a client", sides["ClientFrame"]),
        ("Frames of the server", sides["ServerFrame"]),
        ("Messages, members and bodies", objects),
        ("Simple types", simple),
    ):
        out += [f"## {title}", ""]
        for name in names:
            out += _section(name, definitions, examples)
    return "\n".join(out)


def _section(name: str, definitions: dict[str, Schema], examples: Path) -> list[str]:
    schema = definitions[name]
    fields: dict[str, Schema] = schema.get("properties", {})
    title = fields.get("type", {}).get("const", name)
    out = [f"### {title} {{ #{name.lower()} }}", "", schema["description"], ""]
    if len(fields) > 1:
        out += ["| field | type | | meaning |", "|---|---|---|---|"]
        for key, field in fields.items():
            if "const" not in field:
                needed = "required" if key in schema["required"] else ""
                out.append(
                    f"| `{key}` | {_type(field)} | {needed} | {_meaning(field, definitions)} |"
                )
        out.append("")
    elif bounds := _bounds(schema):
        out += [f"{bounds[:1].upper()}{bounds[1:]}.", ""]
    if schema.get("type") == "object":
        text = _example(examples / name).read_text(encoding="utf-8").strip()
        out += ["```json", text, "```", ""]
    return out


def _example(folder: Path) -> Path:
    files = sorted(folder.glob("*.json"))
    for stem in _EXAMPLES:
        for file in files:
            if file.stem == stem:
                return file
    return files[0]


def _meaning(field: Schema, definitions: dict[str, Schema]) -> str:
    described = field if "description" in field else definitions[_name(field)]
    words = [str(described["description"])]
    if bounds := _bounds(field):
        bounds = bounds.replace("|", r"\|")  # the cell of a table
        words.append(f"{bounds[:1].upper()}{bounds[1:]}.")
    if "default" in field:
        words.append(f"Default `{json.dumps(field['default'])}`.")
    return " ".join(words)


def _bounds(field: Schema) -> str:
    words = {
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "minItems": "at least {} items",
        "maxItems": "at most {} items",
        "minimum": "at least {}",
        "maximum": "at most {}",
    }
    facts = [
        text.format(f"{field[key]:,}")
        for key, text in words.items()
        if key in field and field[key] not in (0, 1, 2**53 - 1)
    ]
    if "pattern" in field:
        facts.append(f"matches `{field['pattern']}`")
    return ", ".join(facts)


def _type(field: Schema) -> str:
    if "$ref" in field:
        return f"[{_name(field)}](#{_name(field).lower()})"
    match field.get("type"):
        case "array":
            return f"list of {_type(field['items'])}"
        case "object":
            values = field["additionalProperties"]
            return "object" if values is True else f"object of {_type(values)}"
        case None:
            return "any JSON"
        case plain:
            return str(plain)


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[1]
