"""Rewords errors for Spark: with the column of a row, or with the names of Spark's options."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hanzoai.pubsub.errors import PubSubError

E = TypeVar("E", bound="PubSubError")


def restated(error: E, message: str, *, remedy: str | None = None, field: str | None = None) -> E:
    """Return a copy of an error that says something else; all its other attributes stay.

    Args:
        error: The error, which does not change.
        message: The message of the copy.
        remedy: Its remedy; default: that of the error.
        field: Its field; default: that of the error.
    """
    said = copy(error)
    said.message = message
    said.args = (message,)
    if remedy is not None:
        said.remedy = remedy
    if field is not None:
        said.field = field
    return said
