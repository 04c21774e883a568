"""What Redis says that it will not do for now: whose fault that is, and what an operator does."""

from __future__ import annotations

from typing import Final

from redis.exceptions import NoPermissionError, OutOfMemoryError, RedisError, ResponseError

_KNOWN: Final = {
    "MISCONF": (
        "Redis cannot write to its disk",
        "free space on its disk, and check its log (stop-writes-on-bgsave-error, appendonly)",
    ),
    "NOREPLICAS": (
        "Redis has fewer replicas than it requires",
        "restart them, or lower its min-replicas-to-write",
    ),
    "BUSY": (
        "Redis is busy with a script",
        "wait until it ends, or stop it with SCRIPT KILL",
    ),
}


class RefusedError(RedisError):
    """Redis is there and refuses: until an operator has fixed it, or until it is over.

    Args:
        why: A clause for users and operators.
        remedy: What an operator does.
    """

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.why}: {self.remedy}"


def refusal(error: ResponseError) -> RefusedError | None:
    """The meaning of an error from Redis that the command did not cause."""
    if isinstance(error, NoPermissionError):
        return RefusedError(
            f"the user of redis_url lacks a permission ({error})",
            "give it the commands, keys and channels that docs/operations.md lists under Redis",
        )
    known = _KNOWN.get(str(error).partition(" ")[0])
    return RefusedError(*known) if known is not None else None


def cause(error: Exception) -> str:
    """For the log: what is the matter, and what to do where that is known."""
    if isinstance(error, OutOfMemoryError):
        return "Redis is full (maxmemory)"
    said = str(error)
    return said if isinstance(error, RefusedError) else f"{type(error).__name__}: {said}"
