"""The body of `POST /v1/positions`, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.generated import wire
from hanzoai.pubsub.topics import validate_pattern
from pubsub_server.errors import ServiceError
from pubsub_server.shared.codec import MAX_NAMED, After, checked
from pubsub_server.shared.requests import PositionsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Positions(BaseModel):
    """`wire.PositionsRequest` with any strings as names, to name the invalid one in the error."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)

    topics: Annotated[list[str], Field(max_length=MAX_NAMED, min_length=1)]
    after: After = None
    at: wire.Timestamp | None = None
    wait_ms: Annotated[int | None, Field(ge=0, le=30_000)] = None


def decode_positions(body: Mapping[str, Any]) -> PositionsRequest:
    """Validate a request body.

    Raises:
        ServiceError: `invalid_frame`, `invalid_topic`.
    """
    wanted = checked(_Positions, body, "invalid_frame")
    for number, name in enumerate(wanted.topics):
        try:
            validate_pattern(name)
        except InvalidTopic as error:
            raise ServiceError(
                "invalid_topic", error.message, topic=name[:255], field=f"topics.{number}"
            ) from None
    topics = tuple(dict.fromkeys(wanted.topics))
    return PositionsRequest(topics, wanted.after or {}, wanted.at, wanted.wait_ms or 0)
