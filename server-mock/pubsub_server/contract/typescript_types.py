"""TypeScript types of a contract: an interface or type for each schema, and the map `Topics`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

from pubsub_server.contract.document import ContractError
from pubsub_server.contract.header import DO_NOT_EDIT
from pubsub_server.contract.python_types import definitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pubsub_server.contract.document import Contract, Topic

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_REFERENCE: Final = "#/$defs/"
_SIMPLE: Final = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
}
_DEPTH_MAX: Final = 50


def typescript_types(contract: Contract) -> str:
    """A module with a type for each schema, and `Topics` for `new PubSub<Topics>()`.

    Raises:
        ContractError: A schema refers to another file.
    """
    parts = [f"// {DO_NOT_EDIT}"]
    for name, schema in definitions(contract).items():
        parts.append(_comment(schema.get("description"), "") + _declaration(name, schema))
    entries = "".join(
        _comment(topic.description, "  ") + f"  {_topic_key(topic)}: {topic.name};\n"
        for topic in contract.topics
    )
    parts.append(
        "/** The payloads of each topic: `new PubSub<Topics>(…)`. */\n"
        f"export interface Topics {{\n{entries}}}"
    )
    return "\n\n".join(parts) + "\n"


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    text = _type(schema, "", 0)
    if text.startswith("{\n") and text.endswith("\n}"):
        return f"export interface {name} {text}"
    return f"export type {name} = {text};"


def _topic_key(topic: Topic) -> str:
    """A topic name, or a template literal type if segments are open."""
    segments = topic.pattern.segments
    if all(re.fullmatch(r"[A-Za-z0-9_-]+", segment) for segment in segments):
        return json.dumps(topic.pattern.text)
    open_ = ("${string}" if segment.startswith(("*", "<")) else segment for segment in segments)
    return f"[topic: `{'.'.join(open_)}`]"


def _type(schema: Any, indent: str, depth: int) -> str:
    if depth > _DEPTH_MAX:
        raise ContractError(f"a schema is nested deeper than {_DEPTH_MAX} levels")
    if schema is True or schema == {}:
        return "unknown"
    if schema is False:
        return "never"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if not reference.startswith(_REFERENCE):
            raise ContractError(f"`$ref: {reference}` does not point into `#/schemas/`")
        return reference.removeprefix(_REFERENCE)
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "enum" in schema:
        return _union(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return _union(_type(one, indent, depth + 1) for one in schema[key])
    if "allOf" in schema:
        return " & ".join(_grouped(_type(one, indent, depth + 1)) for one in schema["allOf"])
    kinds: Any = schema.get("type")
    if isinstance(kinds, list):
        several = cast("list[str]", kinds)
        return _union(_type({**schema, "type": kind}, indent, depth + 1) for kind in several)
    if kinds == "array" or (kinds is None and "items" in schema):
        return _array(schema, indent, depth)
    if kinds == "object" or (kinds is None and "properties" in schema):
        return _object(schema, indent, depth)
    return _SIMPLE.get(str(kinds), "unknown")


def _array(schema: Mapping[str, Any], indent: str, depth: int) -> str:
    prefix: list[Any] | None = schema.get("prefixItems")
    rest = schema.get("items", True)
    if prefix is not None:
        members = [_type(one, indent, depth + 1) for one in prefix]
        if rest is not False:
            members.append(f"...{_grouped(_type(rest, indent, depth + 1))}[]")
        return f"[{', '.join(members)}]"
    return f"{_grouped(_type(rest, indent, depth + 1))}[]"


def _object(schema: Mapping[str, Any], indent: str, depth: int) -> str:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", [])
    more = schema.get("additionalProperties", True)
    inner = indent + "  "
    lines: list[str] = []
    for name, value in properties.items():
        key = name if _IDENTIFIER.fullmatch(name) else json.dumps(name)
        optional = "" if name in required else "?"
        described = None if isinstance(value, bool) else value.get("description")
        lines.append(
            _comment(described, inner)
            + f"{inner}{key}{optional}: {_type(value, inner, depth + 1)};"
        )
    if not properties:
        return f"Record<string, {_type(more, indent, depth + 1)}>"
    return "{\n" + "\n".join(lines) + f"\n{indent}}}"


def _union(members: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(members)) or "never"


def _grouped(text: str) -> str:
    return f"({text})" if " | " in text or " & " in text else text


def _comment(text: object, indent: str) -> str:
    if not isinstance(text, str) or not text:
        return ""
    return f"{indent}/** {' '.join(text.split()).replace('*/', '* /')} */\n"
