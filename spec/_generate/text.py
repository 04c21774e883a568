"""Small helpers that every emitter needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def quoted(text: str) -> str:
    """A string literal that Python and TypeScript both read."""
    return json.dumps(text, ensure_ascii=False)


def single(text: str) -> str:
    """A TypeScript string literal in single quotes where the text has none."""
    return quoted(text) if "'" in text else "'" + quoted(text)[1:-1].replace('\\"', '"') + "'"


def camel(name: str) -> str:
    """``start_open`` becomes ``startOpen``."""
    head, *tail = name.split("_")
    return head + "".join(word.title() for word in tail)


def python_tuple(items: Iterable[str]) -> str:
    """A tuple literal of strings."""
    inner = [quoted(item) for item in items]
    return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"


def header(mark: str, source: str) -> str:
    """The first line of a generated file."""
    return f"{mark} Generated from {source} by `make generate`; do not edit."
