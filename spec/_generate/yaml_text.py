"""Parses YAML."""

from __future__ import annotations

from typing import Any

import yaml

# The parser in C is ten times as fast; PyYAML's wheels contain it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str) -> Any:
    """Return the plain values of a YAML text."""
    return yaml.load(text, _LOADER)
