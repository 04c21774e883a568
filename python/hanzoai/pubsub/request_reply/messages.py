"""Creates and reads the messages of requests and replies. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from hanzoai.pubsub.errors import InvalidOption, ReplyError
from hanzoai.pubsub.settings.checks import kind
from hanzoai.pubsub.topics import matches, validate_topic

if TYPE_CHECKING:
    from hanzoai.pubsub.values import Message

REPLY: Final = "reply"
REPLY_ERROR: Final = "reply.error"

_REPLIES: Final = "replies"
"""Segment of reply topics: replies go to `<topic>.replies.<client>`."""
_PREFIX: Final = "re_"
"""Prefix of the request's id in the id of its reply, so that only one reply is published."""
_ID_MAX: Final = 128 - len(_PREFIX)
_TOPIC_MAX: Final = 255


def reply_topic(topic: str, nonce: str) -> str:
    """Topic of the replies to the requests that one client publishes to ``topic``.

    Raises:
        InvalidOption: It would exceed the maximum length of a topic.
    """
    name = f"{validate_topic(topic)}.{_REPLIES}.{nonce}"
    if len(name.encode()) > _TOPIC_MAX:
        raise InvalidOption(
            "The topic of the request is too long to hold its replies below it.",
            remedy="Pass `reply_to`, or use a shorter topic.",
            field="reply_to",
        )
    return name


def check_request_id(id: object) -> None:
    """Validate the id of a request.

    Raises:
        InvalidOption: It is not a string of 1 to 125 characters.
    """
    if not isinstance(id, str) or not 0 < len(id) <= _ID_MAX:
        raise InvalidOption(
            f"`id` is {kind(id)}, not a request id."
            if not isinstance(id, str)
            else f"`id` has {len(id)} characters.",
            remedy=f"Pass a string of 1 to {_ID_MAX} characters.",
            field="id",
        )


def retention(timeout: float) -> int:
    """Seconds for which history keeps a request, so that a responder can reconnect meanwhile."""
    return math.ceil(timeout)


def request(type: str, data: Any, id: str, reply_to: str, ttl: int) -> dict[str, Any]:
    """A request."""
    return {"type": type, "data": data, "id": id, "ttl": ttl, "meta": {"reply_to": reply_to}}


def reply(request: Message, data: Any) -> dict[str, Any]:
    """The answer to a request."""
    return _answer(request, REPLY, data)


def error_reply(request: Message, error: ReplyError) -> dict[str, Any]:
    """An error as the answer to a request."""
    data = {"code": error.code, "message": error.message}
    return _answer(
        request, REPLY_ERROR, data if error.data is None else data | {"data": error.data}
    )


def _answer(request: Message, type: str, data: Any) -> dict[str, Any]:
    answer = {"type": type, "data": data, "meta": {"in_reply_to": request.id}}
    if request.ttl:
        answer["ttl"] = request.ttl
    if len(request.id) <= _ID_MAX:
        answer["id"] = _PREFIX + request.id
    return answer


def reply_to_of(message: Message) -> str | None:
    """The reply topic of a request; None for any other message."""
    name = None if message.meta is None else message.meta.get("reply_to")
    return name if isinstance(name, str) else None


def is_own_reply_topic(request: Message, reply_to: str) -> bool:
    """Whether a reply topic belongs to the request's topic or its sender.

    A responder may have more permissions than the sender, so a request must not choose an arbitrary
    topic.
    """
    below = f"{request.topic}.{_REPLIES}.*"
    sender = request.sender
    # By segments: `user.ann.lee.x` belongs to the user `ann`, not to one whose id is `ann.lee`.
    head, *names = reply_to.split(".")
    own = sender is not None and head == "user" and len(names) > 1 and names[0] == sender.id
    return matches(below, reply_to) or own


def request_of(message: Message) -> str | None:
    """Id of the request that a message answers; None for any other message."""
    if message.type not in (REPLY, REPLY_ERROR) or message.meta is None:
        return None
    id = message.meta.get("in_reply_to")
    return id if isinstance(id, str) else None


def error_of(message: Message, topic: str) -> ReplyError | None:
    """The error in a reply; None if there is none."""
    if message.type != REPLY_ERROR:
        return None
    data: object = message.data
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {}
    code, text = fields.get("code"), fields.get("message")
    return ReplyError(
        text if isinstance(text, str) else None,
        code=code if isinstance(code, str) and code else None,
        topic=topic,
        data=fields.get("data"),
    )
