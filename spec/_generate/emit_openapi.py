"""Writes the HTTP description as one file without external references; the server sends it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias, cast

from spec._generate import yaml_text
from spec._generate.lifecycle import SpecError

if TYPE_CHECKING:
    from pathlib import Path

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_OUTSIDE = "./pubsub.schema.json#/$defs/"
_INSIDE = "#/components/schemas/"


def bundle(description: Path, schema: Path) -> str:
    """The JSON of an OpenAPI document, with the types that it uses under `components`."""
    source: Json = yaml_text.parse(description.read_text(encoding="utf-8"))
    definitions: dict[str, Json] = json.loads(schema.read_text(encoding="utf-8"))["$defs"]
    wanted: set[str] = set()
    document = cast("dict[str, dict[str, Json]]", _inside(source, wanted))
    schemas = cast("dict[str, Json]", document["components"]["schemas"])
    while missing := sorted(wanted - schemas.keys()):
        for name in missing:
            if name not in definitions:
                raise SpecError(f"{description.name}: {schema.name} defines no {name!r}")
            schemas[name] = _inside(definitions[name], wanted)
    order = [*definitions, *sorted(schemas.keys() - definitions.keys())]
    document["components"]["schemas"] = {name: schemas[name] for name in order if name in schemas}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _inside(node: Json, wanted: set[str]) -> Json:
    """This node with references to components; adds the names of its types to the set."""
    if isinstance(node, dict):
        return {key: _inside(value, wanted) for key, value in node.items()}
    if isinstance(node, list):
        return [_inside(value, wanted) for value in node]
    if isinstance(node, str):
        for start in (_OUTSIDE, "#/$defs/"):
            if node.startswith(start):
                wanted.add(node.removeprefix(start))
                return _INSIDE + node.removeprefix(start)
    return node
