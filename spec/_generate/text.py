"""Helpers of all emitters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def quoted(text: str) -> str:
    """A string literal that is valid in Python and TypeScript."""
    return json.dumps(text, ensure_ascii=False)


def single(text: str) -> str:
    """A TypeScript string literal, in single quotes if the text contains none."""
    return quoted(text) if "'" in text else "'" + quoted(text)[1:-1].replace('\\"', '"') + "'"


def camel(name: str) -> str:
    """``start_open`` becomes ``startOpen``."""
    head, *tail = name.split("_")
    return head + "".join(word.title() for word in tail)


def python_name(name: str, value: str) -> str:
    """A name of the SDK in a text, in Python's spelling; ``value`` may be empty."""
    return f"`{name}={value}`" if value else f"`{name}`"


def typescript_name(name: str, value: str) -> str:
    """A name of the SDK in a text, in TypeScript's spelling; ``value`` may be empty."""
    return f"`{camel(name)}: {value.lower()}`" if value else f"`{camel(name)}`"


def both_names(name: str, value: str) -> str:
    """A name of the SDK in a text for readers of both languages."""
    return f"{python_name(name, value)} ({typescript_name(name, value)} in TypeScript)"


def python_tuple(items: Iterable[str]) -> str:
    """A tuple literal of strings."""
    inner = [quoted(item) for item in items]
    return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"


def header(mark: str, source: str) -> str:
    """The first line of a generated file."""
    return f"{mark} Generated from {source} by `make generate`; do not edit."


def union(name: str, values: Iterable[str], doc: str) -> list[str]:
    return [f"/** {doc} */", f"export type {name} = {' | '.join(map(single, values))};", ""]
