"""Creates message ids that stay the same when Spark repeats a task.

Spark repeats a task with the same rows, but a shuffle may change their order. An id is therefore a
function of the content of a row, not of its position: if the order changes, ids by position lose
some rows and repeat others.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

IdStrategy = Literal["auto", "column", "content", "position", "random"]
ID_STRATEGIES: tuple[IdStrategy, ...] = get_args(IdStrategy)


class Numbering(ABC):
    """A function from the content of a row to its id."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, content: str) -> str:
        """Return the id of the next row."""

    def each(self, contents: Sequence[str]) -> list[str]:
        """Return the ids of the next rows."""
        return [self(content) for content in contents]


def numbering(strategy: IdStrategy, namespace: str, partition: int) -> Numbering:
    """Return a function from the content of a row to its id.

    Args:
        strategy: `position` counts rows, `random` creates a new id; all others use the content.
        namespace: Distinguishes this job or micro-batch from all others.
        partition: Partition of the task.
    """
    match strategy:
        case "random":
            return _Random()
        case "position":
            return _Position(f"{namespace}\0{partition}")
        case _:
            return _Content(f"{namespace}\0{partition}\0")


class _Random(Numbering):
    __slots__ = ()

    def __call__(self, content: str) -> str:
        return f"msg_{secrets.token_hex(16)}"


class _Content(Numbering):
    """Numbers rows of equal content in order of arrival.

    Keeps eight bytes of each digest while the task runs.
    """

    __slots__ = ("_prefix", "_repeats", "_seen")

    def __init__(self, namespace: str) -> None:
        self._prefix = blake2b(namespace.encode(), digest_size=16)
        self._seen: set[bytes] = set()
        self._repeats: dict[bytes, int] = {}

    def __call__(self, content: str) -> str:
        digest = self._prefix.copy()
        digest.update(content.encode())
        found = digest.digest()
        key = found[:8]
        if key not in self._seen:
            self._seen.add(key)
            return f"msg_{found.hex()}"
        number = self._repeats[key] = self._repeats.get(key, 0) + 1
        digest.update(f"\0{number}".encode())
        return f"msg_{digest.hexdigest()}"

    def each(self, contents: Sequence[str]) -> list[str]:
        # For new contents, the ids of `__call__` in three quarters of the time.
        copy = self._prefix.copy
        digests = [copy() for _ in contents]
        for digest, content in zip(digests, contents, strict=True):
            digest.update(content.encode())
        found = [digest.digest() for digest in digests]
        keys = {each[:8] for each in found}
        if len(keys) < len(found) or not self._seen.isdisjoint(keys):
            return super().each(contents)
        self._seen |= keys
        return ["msg_" + each.hex() for each in found]


class _Position(Numbering):
    __slots__ = ("_next", "_prefix")

    def __init__(self, namespace: str) -> None:
        self._prefix = namespace
        self._next = 0

    def __call__(self, content: str) -> str:
        place, self._next = self._next, self._next + 1
        digest = blake2b(f"{self._prefix}\0{place}".encode(), digest_size=16)
        return f"msg_{digest.hexdigest()}"
