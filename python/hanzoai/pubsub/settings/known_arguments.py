"""Rejects arguments that do not exist, with the name that was probably meant."""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.near_names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

Settings = TypeVar("Settings")


def unknown_option(name: str, known: Iterable[str], otherwise: str) -> InvalidOption:
    """Return the error of an option that does not exist.

    Args:
        name: What the program passed.
        known: Names of all options.
        otherwise: The remedy if none of them is near.
    """
    return InvalidOption(
        f"There is no option `{name[:64]}`.",
        remedy=did_you_mean(name, known).rstrip() or otherwise,
        field=name,
    )


def known_arguments(cls: type[Settings]) -> type[Settings]:
    """Let a dataclass of settings raise InvalidOption, not TypeError, for an unknown argument."""
    known = [field.name for field in fields(cls) if field.init]  # type: ignore[arg-type]
    create = cls.__init__

    @functools.wraps(create)
    def checked(self: Settings, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in known:
                listed = ", ".join(f"`{each}`" for each in known)
                raise unknown_option(name, known, f"{cls.__name__} has the options {listed}.")
        create(self, *args, **given)

    cls.__init__ = checked  # type: ignore[assignment]
    return cls
