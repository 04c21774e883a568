"""Whether a library that the extra `speed` installs is there, in a version that can be used."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final

_LEAST: Final = {"picows": (2, 3, 1), "msgspec": (0, 19)}
"""The oldest version of each that can be used, as in `pyproject.toml`."""


def is_usable(package: str) -> bool:
    """Whether `picows` or `msgspec` can be imported, and is not too old.

    An old version may be installed for the sake of another program.
    """
    return find_spec(package) is not None and _version(package) >= _LEAST[package]


@cache
def _version(package: str) -> tuple[int, ...]:
    # The metadata of the installation would say it too, but reading it takes longer than this
    # package takes to import.
    try:
        found: object = getattr(import_module(package), "__version__", "")
    except ImportError:
        return ()
    return tuple(map(int, re.findall(r"\d+", str(found))[:3]))
