"""An event loop in a green thread of gevent, which shares an operating system thread with others.

asyncio keeps the running loop per operating system thread. While the loop waits, other green
threads run, and must not find it: Django, for example, would reject all use of its database.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from asyncio.events import (
    _get_running_loop,  # pyright: ignore[reportPrivateUsage]
    _set_running_loop,  # pyright: ignore[reportPrivateUsage]
)
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class GreenSelector(selectors.BaseSelector):
    """Hides the running loop from other green threads while it waits.

    Args:
        waiting: The selector that waits.
    """

    def __init__(self, waiting: selectors.BaseSelector) -> None:
        self._waiting = waiting
        self._others: asyncio.AbstractEventLoop | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Wait for a file."""
        return self._waiting.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Wait for a file no longer."""
        return self._waiting.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Change what to wait for."""
        return self._waiting.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, while other green threads run."""
        own = _get_running_loop()
        _set_running_loop(self._others)
        try:
            return self._waiting.select(timeout)
        finally:
            # Another green thread may have begun or ended a loop of its own.
            self._others = _get_running_loop()
            _set_running_loop(own)

    def close(self) -> None:
        """Free the selector."""
        self._waiting.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return the files that it waits for."""
        return self._waiting.get_map()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop for a thread, which may be a green one."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is None or not gevent.is_module_patched("threading"):
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(GreenSelector(selectors.DefaultSelector()))


__all__ = ["GreenSelector", "new_event_loop"]
