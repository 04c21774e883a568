"""Converts an answer by callback to an awaitable one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

_T = TypeVar("_T")


class Answer(Generic[_T]):
    """A callback for one answer, which can be awaited."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

    def __call__(self, answer: _T) -> None:
        """Set the answer."""
        if not self._future.done():
            self._future.set_result(answer)

    def __await__(self) -> Generator[object, None, _T]:
        """Wait for the answer."""
        return self._future.__await__()

    @property
    def here(self) -> _T | None:
        """The answer, if it has arrived."""
        return self._future.result() if self._future.done() else None
