"""The one exception of the service; each listener renders it in its own way."""

from __future__ import annotations

from typing import Final

_MESSAGE_MAX: Final = 500
ADMINISTRATOR_REMEDY: Final = (
    "Use the token of an administrator. For a development server, "
    "`hanzo-pubsub token --user NAME --admin` prints one."
)
"""Remedy of `forbidden`, if no access rule decides."""


class ServiceError(Exception):
    """A request of a client was rejected, or the server could not perform it.

    Code, meaning, remedy, HTTP status and close code come from ``spec/errors.yaml``; a listener
    renders it as an ``error`` frame, a close or a problem document.

    Attributes:
        code: One of the wire codes of ``spec/errors.yaml``.
        message: The problem in words; never contains a token or a payload.
        topic: The topic or pattern that it is about.
        field: The field at fault, as a path such as ``messages.3.topic``.
        retry_after_ms: Earliest time to try again, milliseconds from now.
        remedy: What to do about it, if it is more specific than in the table.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        topic: str | None = None,
        field: str | None = None,
        retry_after_ms: int | None = None,
        remedy: str | None = None,
    ) -> None:
        if len(message) > _MESSAGE_MAX:
            message = message[: _MESSAGE_MAX - 1] + "…"
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.topic = topic if topic is None or len(topic) <= 255 else topic[:254] + "…"
        self.field = field
        self.retry_after_ms = retry_after_ms
        self.remedy = remedy

    def __str__(self) -> str:
        where = f" (field {self.field})" if self.field else ""
        return f"{self.code}: {self.message}{where}"
