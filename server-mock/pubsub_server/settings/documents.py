"""Reads YAML and JSON documents as `object`, to be narrowed by the caller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import yaml

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

    from yaml import SafeLoader
else:
    # The loader in C is ten times as fast; PyYAML's wheels contain it.
    SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


MERGE: Final = "tag:yaml.org,2002:merge"

_NUMBERS: Final = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_MISREAD: Final = re.compile(
    r"[-+]?0[0-7_]+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII
)
"""Numbers with an unexpected value: YAML 1.1 reads `010` as 8, and `1:30` as 90."""


class DocumentError(ValueError):
    """A file cannot be read or parsed; the text is one line without the file's name."""


class _Strict(SafeLoader):
    """Rejects duplicate keys, of which YAML uses the last, and impossible or misread values."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        try:
            made: object = super().construct_object(node, deep)  # pyright: ignore[reportUnknownMemberType]
        except DocumentError:
            raise
        except ValueError as error:
            # For example a date on 30 February.
            raise DocumentError(f"line {node.start_mark.line + 1}: {error}") from None
        if (
            isinstance(node, yaml.ScalarNode)
            and node.tag in _NUMBERS
            and _MISREAD.fullmatch(node.value)
        ):
            raise DocumentError(
                f"line {node.start_mark.line + 1}: YAML reads `{node.value}` as the number {made};"
                " write a plain number, or put text in quotes"
            )
        return made

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen and key.tag != MERGE:
                    line = key.start_mark.line + 1
                    raise DocumentError(f"line {line}: `{key.value}` occurs twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(file: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        DocumentError: It cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DocumentError("is not UTF-8 text") from None


def parse(text: str) -> object:
    """Parse a YAML or JSON text.

    Raises:
        DocumentError: It is neither, or has a duplicate key or an impossible value.
    """
    try:
        # A safe loader: it creates only plain values.
        return cast("object", yaml.load(text, _Strict))
    except yaml.YAMLError as error:
        raise DocumentError("is not YAML: " + _explain(error, text)) from None


def _explain(error: yaml.YAMLError, text: str) -> str:
    """The place and problem of a syntax error, with the remedy of the usual mistakes."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return " ".join(str(error).replace('in "<unicode string>", ', "").split())
    where = f"line {mark.line + 1}, column {mark.column + 1}: "
    problem = ": ".join(part for part in (error.context, error.problem) if part)
    lines = text.split("\n")
    if mark.line < len(lines) and lines[mark.line][mark.column : mark.column + 1] == "\t":
        return where + "there is a tab; indent with spaces"
    if "cannot start any token" in problem or "scanning an alias" in problem:
        return where + "the value begins with a special character; put it in quotes"
    return where + problem


def compose(text: str) -> yaml.Node | None:
    """The nodes of a text that `parse` accepts, with their lines; None if it is empty."""
    return yaml.compose(text, SafeLoader)


def blank_keys(text: str) -> frozenset[str]:
    """Keys of a mapping that `parse` accepts whose value is nothing, not even `null`, or `""`."""
    root = compose(text)
    pairs: list[tuple[yaml.Node, yaml.Node]] = (
        root.value if isinstance(root, yaml.MappingNode) else []
    )
    return frozenset(str(key.value) for key, value in pairs if value.value == "")


def mapping(value: object) -> dict[str, object] | None:
    """The value as a mapping with text keys, or None if it is not a mapping."""
    if not isinstance(value, dict):
        return None
    return {str(key): item for key, item in cast("dict[object, object]", value).items()}


def sequence(value: object) -> list[object] | None:
    """The value as a list, or None if it is not a list."""
    return list(cast("list[object]", value)) if isinstance(value, list) else None
