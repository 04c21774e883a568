"""Which process and event loop a client belongs to, and errors for its use in another one."""

from __future__ import annotations

import os

# asyncio exports it for implementations of event loops.
from asyncio.events import _get_running_loop  # pyright: ignore[reportPrivateUsage]
from typing import TYPE_CHECKING, Final, NoReturn

from hanzoai.pubsub.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

running_loop: Final[Callable[[], AbstractEventLoop | None]] = _get_running_loop
"""The running event loop of this thread, if any; a forked process does not inherit one."""

_ONE_PER_LOOP: Final = "Use one client per event loop, or the blocking client `PubSub`."


class ForkedError(UsageError):
    """A client is used in a process that was forked after its first use.

    A separate class, so that leaving a ``with`` block in the child process can ignore it: the
    block of the parent process continues.
    """

    def __init__(self) -> None:
        super().__init__(
            "This client was created before the process forked, and belongs to the parent process.",
            remedy="Create the client in the child process.",
        )


class Owner:
    """The process and the event loop in which a client runs."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._pid = os.getpid()

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one in which the client runs."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Reject a call in another event loop, without one, or in a forked process."""
        running = running_loop()
        if running is self._loop:
            return
        if self.is_foreign:
            raise ForkedError
        if running is None:
            raise no_loop()
        if self._loop.is_closed():
            raise UsageError(
                "The event loop of this client has ended.", code="wrong_loop", remedy=_ONE_PER_LOOP
            )
        raise UsageError(
            "This client runs in another event loop.", code="wrong_loop", remedy=_ONE_PER_LOOP
        )


def no_loop() -> UsageError:
    """The error of a call without a running event loop."""
    return UsageError(
        "No asyncio event loop is running.",
        code="wrong_loop",
        remedy="Call this inside a coroutine that asyncio runs, or use the blocking client "
        "`PubSub`.",
    )


def refuse_copy(value: object, remedy: str) -> NoReturn:
    """Reject `copy` and `pickle` of an object that owns a connection."""
    raise UsageError(f"A {type(value).__name__} cannot be copied or pickled.", remedy=remedy)
