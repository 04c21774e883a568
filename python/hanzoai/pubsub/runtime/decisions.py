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


def check_allow(allow: object, arguments: int = 1) -> None:
    """Check `allow`: None, or a function of this many arguments, but not a coroutine function."""
    check_function("allow", allow, _REMEDY, arguments)
    if inspect.iscoroutinefunction(allow):
        raise invalid("allow", "is a coroutine function", _REMEDY)


def decide(allow: Callable[..., object], *arguments: object) -> bool:
    """Call `allow`, which must not return an awaitable: it would count as True."""
    decision = allow(*arguments)
    if inspect.isawaitable(decision):
        if asyncio.iscoroutine(decision):
            decision.close()
        raise UsageError("`allow` returned an awaitable.", remedy=_REMEDY)
    return bool(decision)
