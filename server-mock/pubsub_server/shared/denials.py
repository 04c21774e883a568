"""The error for an operation that the access rules deny."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from pubsub_server.settings.config import Settings

_DEVELOPMENT: Final = "; a development server lets every user use topics below `demo.` and `dev.`"


def denial(
    settings: Settings, message: str, topic: str, *, field: str | None = None
) -> ServiceError:
    """The error of what the access rules do not allow with a topic or pattern.

    Args:
        settings: Whether this is a development server, whose open topics the message names.
        message: What is not allowed.
        topic: The topic or pattern.
        field: The field that names it, if the request has several.
    """
    if settings.dev:
        message += _DEVELOPMENT
    return ServiceError("forbidden", message, topic=topic, field=field)
