"""Decisions of the program: functions that return whether another client may do something."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import UsageError
from hanzoai.pubsub.settings.checks import check_function, invalid

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEDY = "Pass a function that returns True or False immediately; load earlier what it needs."


def check_decision(name: str, function: object, arguments: int = 1) -> None:
    """A function of this many arguments that is not a coroutine function, or None."""
    check_function(name, function, _REMEDY, arguments)
    if inspect.iscoroutinefunction(function):
        raise invalid(name, "is a coroutine function", _REMEDY)


def decide(name: str, function: Callable[..., object], *arguments: object) -> bool:
    """Call it.

    Raises:
        UsageError: It returned an awaitable, which would count as True.
    """
    decision = function(*arguments)
    if inspect.isawaitable(decision):
        if asyncio.iscoroutine(decision):
            decision.close()
        raise UsageError(f"`{name}` returned an awaitable.", remedy=_REMEDY)
    return bool(decision)
