"""Errors of SP sockets."""

from __future__ import annotations

from hanzoai.pubsub.errors import ClosedError, Unsupported
from hanzoai.pubsub.errors import NotFound as _NotFound


class NotSupported(Unsupported):
    """The socket type does not support this: a PUB cannot receive, a SUB cannot send."""

    def __init__(self, message: str = "protocol: operation not supported") -> None:
        super().__init__(message, remedy="")


class NotFound(_NotFound):
    """The socket is not subscribed to this prefix."""

    def __init__(self, message: str = "protocol: not found") -> None:
        super().__init__(message, remedy="")


class Closed(ClosedError):
    """The socket is closed."""

    def __init__(self, message: str = "protocol: closed") -> None:
        super().__init__(message, remedy="")
