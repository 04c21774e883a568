"""The HTTP API as data: the request of each operation, and the meaning of its answers.

No I/O. `performing.py` performs these calls on asyncio; any other HTTP client can do this.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeGuard, TypeVar, cast
from urllib.parse import quote

from pydantic import ValidationError
from pydantic_core import from_json

from hanzoai.pubsub.errors import OperationTimeout, ProtocolError, PubSubError
from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.generated.wire import (
    BatchRequest,
    ErrorInfo,
    HistoryPage,
    Occupancy,
    PositionList,
    PositionsRequest,
    PresenceMember,
    Publication,
    PublishRequest,
    PublishResult,
    SessionInfo,
    TopicInfo,
    TopicList,
)
from hanzoai.pubsub.http.problems import object_of, word_of
from hanzoai.pubsub.wire.codec import to_json
from hanzoai.pubsub.wire.readings import read_envelope, read_member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hanzoai.pubsub.generated.wire import Message

logger = logging.getLogger("hanzoai.pubsub")

T = TypeVar("T")

_BATCH_BYTES: Final = 4 << 20
_JSON: Final = "application/json"
_VISIBLE: Final = re.compile("[!-~]+")
"""Text that a header carries unchanged."""

MISSING: Final = frozenset({404, 405, 501})
"""Statuses with which a peer reports that it does not have the operation."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request.

    Attributes:
        method: HTTP method.
        path: Path below the base URL, quoted.
        read: Converts the body of a successful answer to the result; raises ProtocolError.
        params: Query.
        body: JSON, or None.
        headers: Headers in addition to `Authorization` and those of every request.
        repeatable: Whether it is idempotent: reads, and publishes with message ids.
        carries_ids: Whether it is repeatable only if the peer supports `idempotency`.
        topic: Its topic, for errors.
        id: Id of the published message, for errors.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True
    carries_ids: bool = False
    topic: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of history, as far as it can be read.

    Attributes:
        messages: Its messages, in order.
        has_more: Whether the log continues beyond it.
        ids: The ids of its entries that have one, including malformed entries.
        positions: The positions of its entries that have one, including malformed entries.
    """

    messages: Sequence[Message]
    has_more: bool
    ids: Sequence[str]
    positions: Sequence[int]


# ---------------------------------------------------------------- requests


def publish(publication: Publication) -> Call[PublishResult]:
    """Publish one message (H-070); its id is the idempotency key."""
    request = PublishRequest(
        type=publication.type,
        data=publication.data,
        ttl=publication.ttl,
        id=publication.id,
        meta=publication.meta,
    )
    key = publication.id
    headers = [("Content-Type", _JSON)]
    if key is not None and _VISIBLE.fullmatch(key):  # the body has every id
        headers.append(("Idempotency-Key", key))

    def read(body: bytes) -> PublishResult:
        result = _publish_result(_json_object(body))
        if result is None:
            raise ProtocolError("It has no `id` or no `timestamp`.")
        return result

    return Call(
        "POST",
        f"/v1/topics/{quote(publication.topic, safe='')}/messages",
        read,
        body=to_json(request),
        headers=tuple(headers),
        repeatable=key is not None,
        carries_ids=True,
        topic=publication.topic,
        id=key,
    )


def publish_batch(publications: Sequence[Publication]) -> Call[list[PublishResult]]:
    """Publish several messages in order; one result each, in the same order."""
    keys = [publication.id for publication in publications]

    def read(body: bytes) -> list[PublishResult]:
        results = _json_object(body).get("results")
        if not isinstance(results, list) or len(cast("list[object]", results)) != len(keys):
            raise ProtocolError(f"The server answered a batch of {len(keys)} with other results.")
        return [
            _batch_item(item, key)
            for item, key in zip(cast("list[object]", results), keys, strict=True)
        ]

    return Call(
        "POST",
        "/v1/messages:batch",
        read,
        body=to_json(BatchRequest.model_construct(messages=list(publications))),
        headers=(("Content-Type", _JSON),),
        repeatable=all(key is not None for key in keys),
        carries_ids=True,
    )


def history(
    topic: str,
    *,
    since: int | None = None,
    before: str | None = None,
    before_seq: int | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> Call[Page]:
    """One page of the retained messages of a topic (H-072).

    Args:
        topic: A concrete topic.
        since: Only newer messages, Unix milliseconds.
        before: Only messages older than the one with this id.
        before_seq: Only messages before this position; a server that knows it ignores `before`.
        after: Only messages after this position.
        limit: Maximum messages of the page, 1 to 500.
    """
    return Call(
        "GET",
        f"/v1/topics/{quote(topic, safe='')}/history",
        _history_page,
        params=_params(since=since, before=before, before_seq=before_seq, after=after, limit=limit),
        topic=topic,
    )


def presence(topic: str) -> Call[list[PresenceMember]]:
    """The members of a topic (H-073)."""
    return Call("GET", f"/v1/topics/{quote(topic, safe='')}/presence", _members, topic=topic)


def occupancy(topic: str) -> Call[Occupancy]:
    """The number of members of one topic; plain HIP-56 does not define this operation."""
    return Call("GET", f"/v1/topics/{quote(topic, safe='')}/occupancy", _occupancy, topic=topic)


def topics(prefix: str | None = None, limit: int | None = None) -> Call[TopicList]:
    """Active topics, for administrators (H-074)."""
    return Call("GET", "/v1/topics", _topic_list, params=_params(prefix=prefix, limit=limit))


def positions(
    topics: Sequence[str],
    *,
    after: Mapping[str, int] | None = None,
    at: int | None = None,
    wait_ms: int = 0,
) -> Call[PositionList]:
    """The positions of topics; plain HIP-56 does not define this operation.

    Args:
        topics: Topics and patterns.
        after: Positions that the caller knows.
        at: Also request the positions of this time, Unix milliseconds.
        wait_ms: Maximum milliseconds that the server waits for a change, at most 30,000.
    """
    request = PositionsRequest.model_construct(
        topics=list(topics),
        after=None if after is None else dict(after),
        at=at,
        wait_ms=wait_ms or None,
    )
    return Call(
        "POST",
        "/v1/positions",
        _position_list,
        body=to_json(request),
        headers=(("Content-Type", _JSON),),
        topic=topics[0] if len(topics) == 1 else None,
    )


def session(client_id: str | None = None) -> Call[SessionInfo]:
    """The content of `auth.ok` on a socket; plain HIP-56 does not define this operation.

    Args:
        client_id: The client that the next event stream resumes. The answer names the id that the
            stream gets.
    """
    return Call("GET", "/v1/session", _session_info, params=_params(client_id=client_id))


def _params(**given: object) -> tuple[tuple[str, str], ...]:
    """The query of the arguments that are not None."""
    return tuple((name, str(value)) for name, value in given.items() if value is not None)


def batches(
    messages: Iterable[T],
    sizes: Iterable[int],
    most: float = LIMITS.max_batch,
    most_bytes: int = _BATCH_BYTES,
) -> Iterable[list[T]]:
    """Split messages into batches that a server accepts: by number and by bytes, in order.

    Args:
        messages: The messages.
        sizes: Bytes of each message.
        most: Maximum messages of a batch.
        most_bytes: Maximum bytes of a batch; a larger message is alone.
    """
    batch: list[T] = []
    held = 0
    for message, size in zip(messages, sizes, strict=True):
        if batch and (len(batch) >= most or held + size > most_bytes):
            yield batch
            batch, held = [], 0
        batch.append(message)
        held += size
    if batch:
        yield batch


# ---------------------------------------------------------------- answers


def error_info(error: PubSubError) -> ErrorInfo:
    """An exception as the result of one item of a batch."""
    wait = error.retry_after
    unknown = isinstance(error, OperationTimeout) and error.outcome_unknown
    return ErrorInfo(
        code="outcome_unknown" if unknown else error.code,
        message=error.message,
        remedy=error.remedy,
        retry_after_ms=None if wait is None else round(wait * 1000),
        topic=error.topic,
        field=error.field,
    )


def not_sent(error: PubSubError) -> ErrorInfo:
    """The result of a message of a batch that was not sent because an earlier one failed."""
    if isinstance(error, OperationTimeout):
        return error_info(
            OperationTimeout(
                "The message was not sent, because an earlier one was not acknowledged."
            )
        )
    return error_info(error)


def _publish_result(fields: dict[str, object]) -> PublishResult | None:
    """The result of a published message; None if the answer does not confirm it.

    A gateway or web site in front of the server may also answer 200.
    """
    id, timestamp = word_of(fields.get("id")), fields.get("timestamp")
    if id is None or not isinstance(timestamp, int | float) or isinstance(timestamp, bool):
        return None
    try:
        return PublishResult.model_validate(fields, strict=False)
    except ValidationError:
        return PublishResult(id=id[:128])


def _batch_item(item: object, key: str | None) -> PublishResult:
    fields = object_of(item)
    error = fields.get("error")
    if error is None:
        unknown = ErrorInfo(code="outcome_unknown", message="The server sent no result for it.")
        return _publish_result(fields) or PublishResult(id=key, error=unknown)
    try:
        info = ErrorInfo.model_validate(error, strict=False)
    except ValidationError:
        info = ErrorInfo(code=word_of(object_of(error).get("code")) or "internal", message="")
    return PublishResult(id=key, error=info)


def _history_page(body: bytes) -> Page:
    try:
        page = HistoryPage.model_validate_json(body)
    except ValidationError:
        return _odd_page(_json_object(body))
    messages = page.messages
    ids = [message.id for message in messages]
    positions = [message.seq for message in messages if message.seq is not None]
    return Page(messages, page.has_more, ids, positions)


def _odd_page(fields: dict[str, object]) -> Page:
    """A page with malformed entries or other fields."""
    if "messages" not in fields:
        raise ProtocolError("It has no `messages`.")
    entries = cast("list[object]", fields["messages"])
    read = [read_envelope(entry) for entry in entries]
    messages = [entry for entry in read if not isinstance(entry, str)]
    if len(messages) < len(read):
        logger.warning("%d history entries were malformed", len(read) - len(messages))
    known = [object_of(entry) for entry in entries]
    ids = [id for entry in known if (id := word_of(entry.get("id"))) is not None]
    positions = [seq for entry in known if _is_position(seq := entry.get("seq"))]
    return Page(messages, fields.get("has_more") is True, ids, positions)


def _members(body: bytes) -> list[PresenceMember]:
    entries = _json_object(body).get("members", [])
    read = [read_member(entry) for entry in cast("list[object]", entries)]
    return [member for member in read if member is not None]


def _occupancy(body: bytes) -> Occupancy:
    try:
        return Occupancy.model_validate_json(body)
    except ValidationError:
        raise ProtocolError("It has no numbers of members and users.") from None


def _topic_list(body: bytes) -> TopicList:
    try:
        return TopicList.model_validate_json(body)
    except ValidationError:
        pass
    # HIP-56 does not define a TopicInfo, so also accept names.
    fields = _json_object(body)
    infos: list[TopicInfo] = []
    for entry in cast("list[object]", fields.get("topics", [])):
        known = object_of(entry)
        name = word_of(entry) or word_of(known.get("topic")) or word_of(known.get("name"))
        if name is not None:
            infos.append(
                TopicInfo.model_construct(
                    topic=name,
                    subscribers=_count(known.get("subscribers")),
                    messages=_count(known.get("messages")),
                )
            )
    return TopicList(topics=infos, has_more=fields.get("has_more") is True)


def _position_list(body: bytes) -> PositionList:
    try:
        return PositionList.model_validate(_json_object(body), strict=False)
    except ValidationError:
        raise ProtocolError("The positions of the server have an unknown format.") from None


def _session_info(body: bytes) -> SessionInfo:
    try:
        return SessionInfo.model_validate(_json_object(body), strict=False)
    except ValidationError:
        raise ProtocolError("The session of the server has an unknown format.") from None


def _json_object(body: bytes) -> dict[str, object]:
    try:
        value: object = from_json(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ProtocolError("It is not the JSON object that a PubSub server sends.")
    fields = cast("dict[str, object]", value)
    for name in ("messages", "members", "topics"):
        if not isinstance(fields.get(name, []), list):
            raise ProtocolError(f"`{name}` of the server's answer is not a list.")
    return fields


def _is_position(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**53


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
