"""The error of an operation that the server or the session rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.errors import OperationTimeout, PubSubError, from_code

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import ErrorInfo
    from hanzoai.pubsub.session.ports import Rejected


def rejected(
    outcome: Rejected | ErrorInfo, topic: str | None = None, id: str | None = None
) -> PubSubError:
    """Build the error; `topic`: that of the operation, `id`: that of the message."""
    wait = outcome.retry_after_ms
    error = from_code(
        outcome.code,
        outcome.message,
        remedy=outcome.remedy,
        topic=outcome.topic or topic,
        field=outcome.field,
        retry_after=None if wait is None else wait / 1000,
    )
    if isinstance(error, OperationTimeout):
        error.id = id
    return error
