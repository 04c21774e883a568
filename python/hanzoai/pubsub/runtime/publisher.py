"""Validates messages of the program, publishes them, and returns their results.

Publishes go over the connection, where they are pipelined and queued, or in an HTTP request.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, cast, get_args

from pydantic import ValidationError

from hanzoai.pubsub.errors import (
    InvalidOption,
    InvalidPayload,
    InvalidTopic,
    OperationTimeout,
    PubSubError,
    UsageError,
)
from hanzoai.pubsub.generated.wire import Publication
from hanzoai.pubsub.http.calls import batches, error_info
from hanzoai.pubsub.model import trusted
from hanzoai.pubsub.runtime.failures import rejected
from hanzoai.pubsub.session.ports import Acked, Publish, Rejected, Unknown
from hanzoai.pubsub.settings.checks import check_choice, check_text, invalid, kind
from hanzoai.pubsub.topics import valid_topics, validate_topic
from hanzoai.pubsub.values import Published, Via
from hanzoai.pubsub.wire.ids import message_id
from hanzoai.pubsub.wire.payloads import check_data, check_publication

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hanzoai.pubsub.generated.wire import PublishResult
    from hanzoai.pubsub.runtime.driver import Driver
    from hanzoai.pubsub.session.ports import Outcome
    from hanzoai.pubsub.values import Duration, Outgoing, Ttl

PRESENCE_UPDATE: Final = "presence.update"
"""A message of this type changes the sender's presence (HIP-56, Client SDK)."""

_REMEDIES: Final = {
    "type": "Pass a str of 1 to 128 characters.",
    "ttl": "Give whole seconds or a timedelta, from 0 to 9007199254740991; 0 stores nothing.",
    "id": "Pass a str of 1 to 128 characters, or leave it out.",
    "meta": "Pass a dict of JSON values, or leave it out.",
}
_PROBLEMS: Final = {
    "missing": "is missing",
    "string_too_short": "is empty",
    "string_too_long": "is too long",
    "string_unicode": "contains half of a surrogate pair",
    "greater_than_equal": "is negative",
    "less_than_equal": "is too large",
}
"""What is wrong, by pydantic's type of the error; for the others, the Python type is wrong."""

_FIELDS: Final = ("topic", "type", "data", "ttl", "id", "meta")
_NAME_MAX: Final = 128
"""Maximum characters of a type."""

_USUAL: Final = ("type", "data")
"""Fields of nearly every message."""

_SET: Final = {"topic", *_USUAL, "id"}
"""Fields of its publication that have no default."""

_GIVE_PAIRS: Final = 'Give (topic, {"type": ..., "data": ...}) pairs.'

_PLAIN: Final = frozenset({dict, list, str, int, float, bool, type(None)})


@dataclass(slots=True)
class Prepared:
    """A publication that can be sent."""

    publication: Publication  # with topic and id
    id: str
    size: int  # bytes that it counts for in the queue


def prepare(
    topic: str | None,
    message: Outgoing,
    limit: int,
    *,
    ttl: Ttl | None = None,
    id: str | None = None,
) -> Prepared:
    """Validate one message, whose JSON data has at most `limit` bytes, and assign an id.

    The message may contain its topic, ttl and id. An object of a model is the payload of a message
    of type ``message``.
    """
    given = cast("dict[str, Any]", message) if type(message) is dict else _fields(topic, message)
    if len(given) == len(_USUAL) and type(topic) is str and ttl is None and id is None:
        name, data = given.get("type"), given.get("data", given)
        if (
            type(name) is str
            and 0 < len(name) <= _NAME_MAX
            and name.isascii()
            and data.__class__ in _PLAIN
            and data is not given
        ):
            # The fast path of nearly every message: pydantic would take ten times as long.
            if topic not in valid_topics:
                validate_topic(topic)
            id = message_id()
            all_fields = {"topic": topic, "type": name, "data": data}
            all_fields |= {"ttl": None, "id": id, "meta": None}
            size = check_data(data, limit, topic=topic)
            return Prepared(trusted(Publication, all_fields, _SET), id, size)
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _FIELDS:
            raise _unknown_field(name)
        if name == "data" or value is not None:
            fields[name] = value
    named = fields.setdefault("topic", topic)
    if topic is None:
        topic = cast("str", named)
    elif named is not topic and named != topic:
        raise InvalidOption(
            "The message names another topic than the call.",
            remedy="Leave the topic out of the message.",
            field="topic",
            topic=topic,
        )
    validate_topic(topic)
    if "data" not in fields:
        raise InvalidPayload(
            "The message has no `data`.",
            remedy='Publish {"type": ..., "data": ...}.',
            field="data",
            topic=topic,
        )
    if fields["data"].__class__ not in _PLAIN:
        from hanzoai.pubsub.payload_models import plain

        fields["data"] = plain(fields["data"])
    if ttl is not None:
        fields["ttl"] = ttl
    if "ttl" in fields and isinstance(fields["ttl"], timedelta):
        fields["ttl"] = _whole_seconds(fields["ttl"])
    if id is not None:
        fields["id"] = id
    elif "id" not in fields:
        fields["id"] = message_id()
    try:
        publication = Publication(**fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name, *inside = (str(part) for part in first["loc"])
        wrong = "has a key that is not a str" if inside else f"is {kind(fields.get(name))}"
        raise InvalidOption(
            f"`{name}` {_PROBLEMS.get(first['type'], wrong)}.",
            remedy=_REMEDIES.get(name),
            field=name,
            topic=topic,
        ) from None
    return Prepared(publication, fields["id"], check_publication(publication, limit))


def _whole_seconds(ttl: timedelta) -> int:
    seconds = ttl.total_seconds()
    if seconds != int(seconds):
        raise invalid("ttl", "is not a whole number of seconds", _REMEDIES["ttl"])
    return int(seconds)


def _fields(topic: object, message: object) -> Mapping[str, Any]:
    if isinstance(message, Publication):
        return {name: getattr(message, name) for name in message.model_fields_set}
    if not isinstance(message, Mapping):
        # Loaded only for objects of models.
        from hanzoai.pubsub.payload_models import is_model

        if is_model(message):
            return {"data": message}
        if isinstance(topic, Mapping):
            raise InvalidPayload(
                "The topic and the message are swapped.",
                remedy='Publish as in `publish("demo.chat", {...})`: the topic comes first.',
                field="message",
            )
        raise InvalidPayload(
            f"The message is {type(message).__name__}, not a mapping.",
            remedy='Publish {"type": ..., "data": ...}.',
            field="message",
        )
    return cast("Mapping[str, Any]", message)


def _unknown_field(given: object) -> InvalidOption:
    name = str(given).encode("utf-8", "backslashreplace").decode()
    return InvalidOption(
        f"The message has the unknown field `{name[:64]}`.",
        remedy=f"Its fields are {', '.join(_FIELDS)}; put everything else into `data`.",
        field=name,
    )


def check_list(messages: object) -> None:
    """Reject a value that is not a list; callers without a type checker may pass any."""
    if not isinstance(messages, Iterable) or isinstance(messages, Mapping):
        described = kind(cast("Any", messages))
        raise invalid("messages", f"is {described}, not a list", _GIVE_PAIRS)


def prepare_items(items: Iterable[object], limit: int) -> list[Prepared]:
    """Validate the items of ``publish_many``; the ``field`` of an error begins with the number."""
    prepared: list[Prepared] = []
    for number, item in enumerate(items):
        try:
            topic, message = split_item(item)
            prepared.append(prepare(topic, message, limit))
        except PubSubError as error:
            inside = error.field or ("topic" if isinstance(error, InvalidTopic) else None)
            error.field = f"[{number}]" if inside in (None, "messages") else f"[{number}].{inside}"
            error.message = f"Item {number}: {error.message}"
            error.args = (error.message,)
            raise error from None
    return prepared


def split_item(item: object) -> tuple[str | None, Outgoing]:
    """Read one item of ``publish_many``: ``(topic, message)``, or a message with its topic."""
    if isinstance(item, Publication):
        return item.topic, item
    if isinstance(item, Mapping):
        if cast("Mapping[str, object]", item).get("topic") is None:
            raise InvalidTopic("It has no `topic`.", remedy=_GIVE_PAIRS)
        return None, cast("Outgoing", item)
    described = kind(cast("Any", item))
    if isinstance(item, tuple):
        pair = cast("tuple[object, ...]", item)
        if len(pair) == 2:
            return cast("tuple[str, Outgoing]", pair)
        described = f"a tuple of {len(pair)}"
    problem = f"It is {described}, not a topic with its message."
    raise InvalidPayload(problem, remedy=_GIVE_PAIRS, field="messages")


class Batch:
    """Publishes that are sent together at the end of an ``async with`` block.

    Attributes:
        results: One result per message, in the order of the calls, after the block has ended.
    """

    results: list[Published | PubSubError]

    def __init__(
        self,
        check: Callable[[str, Outgoing, Ttl | None, str | None], Prepared],
        send: Callable[[Sequence[Prepared]], Awaitable[list[Published | PubSubError]]],
    ) -> None:
        self.results = []
        self._check = check
        self._send = send
        self._items: list[Prepared] = []
        self._open = False

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<Batch messages={len(self)}>"

    def publish(
        self, topic: str, message: Outgoing, *, ttl: Ttl | None = None, id: str | None = None
    ) -> str:
        """Add a message, which is checked immediately and sent at the end of the block.

        Returns:
            Its id.

        Raises:
            InvalidTopic: The topic is not valid.
            InvalidPayload: The data is not JSON.
            PayloadTooLarge: The data is over the limit.
            UsageError: Not inside the block.
        """
        if not self._open:
            raise UsageError("This batch is not open.", remedy="Publish inside its block.")
        item = self._check(topic, message, ttl, id)
        self._items.append(item)
        return item.id

    async def __aenter__(self) -> Self:
        self._items, self.results = [], []
        self._open = True
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Send everything; after an exception in the block, nothing.

        Raises:
            PubSubError: The first error among the results.
        """
        self._open = False
        if exc_type is not None or not self._items:
            return
        self.results = await self._send(self._items)
        for result in self.results:
            if isinstance(result, PubSubError):
                raise result


_BATCH_BYTES: Final = 1 << 20
"""Maximum bytes of a frame of a batch."""

_LATE: Final = "No answer arrived in time. The message may have been published."


class Publisher:
    """Publishes messages and the presence of one client."""

    def __init__(
        self, driver: Driver, post: Callable[[Publish, float, bool], Awaitable[Acked | None]]
    ) -> None:
        self._driver = driver
        self._post = post  # see `HttpApi.publish`

    def prepare(
        self, topic: str | None, message: Outgoing, ttl: Ttl | None = None, id: str | None = None
    ) -> Prepared:
        """Check one message."""
        return prepare(topic, message, self._driver.max_payload, ttl=ttl, id=id)

    def prepare_items(self, items: Iterable[object]) -> list[Prepared]:
        """Check the items of ``publish_many``."""
        return prepare_items(items, self._driver.max_payload)

    async def publish(
        self,
        topic: str,
        message: Outgoing,
        ttl: Ttl | None,
        id: str | None,
        key: str | None,
        background: bool,
        timeout: Duration | None,
        via: Via,
    ) -> Published:
        """Publish one message, or update presence if the message does that."""
        if via != "auto":
            check_choice("via", via, get_args(Via))
        if key is not None:
            check_text("key", key, "the name that messages share if one replaces another,")
        driver = self._driver
        options = driver.options
        one = prepare(topic, message, driver.max_payload, ttl=ttl, id=id)
        if one.publication.type == PRESENCE_UPDATE and via != "rest":
            await self.update_presence(topic, one.publication.data, timeout=timeout)
            return Published(one.id)
        seconds = options.operation_timeout if timeout is None else driver.timeout_of(timeout)
        deadline = driver.clock.now() + seconds
        policy = options.send_queue.policy
        key = key if policy == "latest" else None
        messages = (one.publication,)
        publish = Publish(driver.number(), messages, one.size, policy, key, False, background)
        outcome = await self._submit(publish, deadline, via)
        if isinstance(outcome, Acked):
            result = _published(outcome.results[0], one)
        else:
            result = self._failure(outcome, one, seconds, deadline)
        if isinstance(result, PubSubError):
            raise result
        return result

    async def publish_many(
        self, items: Sequence[Prepared], *, timeout: Duration | None, via: Via
    ) -> list[Published | PubSubError]:
        """Publish several; see ``PubSubClient.publish_many``."""
        check_choice("via", via, get_args(Via))
        driver = self._driver
        seconds = driver.timeout_of(timeout)
        deadline = driver.clock.now() + seconds
        driver.check_open()
        results: list[Published | PubSubError] = []
        peer = driver.peer
        most: float = driver.limits.max_batch or 1_000
        if peer is not None:
            # Room is granted for a whole frame.
            most = min(most, peer.burst)
        sizes = [item.size for item in items]
        for chunk in batches(items, sizes, most, _BATCH_BYTES):
            messages = tuple(item.publication for item in chunk)
            size, policy = sum(item.size for item in chunk), driver.options.send_queue.policy
            publish = Publish(driver.number(), messages, size, policy, batch=True)
            try:
                outcome = await self._submit(publish, deadline, via)
                if isinstance(outcome, Acked):
                    pairs = zip(outcome.results, chunk, strict=True)
                    results += [_published(result, one) for result, one in pairs]
                else:
                    results += [self._failure(outcome, one, seconds, deadline) for one in chunk]
            except PubSubError as error:
                results += [_of_item(error, item) for item in chunk]
        return results

    async def _submit(self, publish: Publish, deadline: float, via: Via) -> Outcome:
        """Publish over HTTP, or over the connection: also if there is no HTTP API."""
        driver, peer = self._driver, self._driver.peer
        if via == "rest" or (via == "auto" and peer is not None and not peer.acks):
            driver.check_open()
            acked = await self._post(publish, deadline, via == "rest")
            if acked is not None:
                return acked
        if driver.is_finished:
            driver.check_open()
        if driver.failures.state == "initialized":
            driver.connect()
        if not driver.options.echo:
            driver.deliveries.remember_own(publish.messages, len(driver.session.publishes))
        try:
            return await driver.settled(publish.ref, deadline, driver.session.publish, publish)
        except asyncio.CancelledError:
            driver.give_up(publish.ref)
            raise

    def _failure(
        self, outcome: Rejected | Unknown, item: Prepared, seconds: float, deadline: float
    ) -> PubSubError:
        driver, topic, id = self._driver, item.publication.topic, item.id
        if isinstance(outcome, Unknown):
            if driver.clock.now() >= deadline:
                return OperationTimeout(_LATE, topic=topic, id=id, outcome_unknown=True)
            return OperationTimeout(code="outcome_unknown", topic=topic, id=id)
        if outcome.code == "timeout":
            failures, rate = driver.failures, driver.limits.publish_rate
            why = f"The message could not be sent within {seconds:g} s. {failures.describe_state()}"
            if failures.state == "connected" and rate:
                why += (
                    f" The client limits publishes to {rate:g} per second, the limit of the server."
                )
            return OperationTimeout(
                why,
                topic=topic,
                remedy=failures.remedy(None),
                cause=failures.cause,
                outcome_unknown=False,
                id=id,
            )
        return rejected(outcome, topic, id)

    # ------------------------------------------------------------ presence

    async def update_presence(
        self, topic: str | None, data: Mapping[str, Any], *, timeout: Duration | None
    ) -> None:
        """Change how this client appears; see ``PubSubClient.update_presence``."""
        driver = self._driver
        if topic is not None:
            validate_topic(topic)
        # Callers without a type checker may pass any value.
        if not isinstance(cast("object", data), Mapping):
            raise InvalidPayload(
                "The presence update is not an object.",
                remedy="Pass `status` and other keys with their values.",
                field="data",
                topic=topic,
            )
        check_data(data, driver.max_payload, topic=topic)
        driver.check_open()
        seconds = driver.timeout_of(timeout)
        driver.connect()
        ref, deadline = driver.number(), driver.clock.now() + seconds
        update = driver.session.update_presence
        try:
            outcome = await driver.settled(ref, deadline, update, topic, dict(data), ref)
        except asyncio.CancelledError:
            driver.give_up(ref)  # the session then reports a rejection
            raise
        if isinstance(outcome, Unknown):
            if driver.failures.state != "connected":
                raise driver.failures.not_connected(seconds, code="not_connected", topic=topic)
            raise OperationTimeout(
                f"The server did not answer the update of presence within {seconds:g} s. "
                f"{driver.failures.describe_state()}",
                topic=topic,
                remedy=(
                    "No action is needed: the client sends the update again until it is answered."
                ),
                outcome_unknown=True,
            )
        if isinstance(outcome, Rejected):
            raise rejected(outcome, topic)

    def set_presence(self, topic: str, data: Mapping[str, Any]) -> None:
        """Set the presence of this client, now or with the next connection; report a rejection."""
        driver = self._driver
        ref, update = driver.number(), driver.session.update_presence

        def report(settled: asyncio.Future[Outcome]) -> None:
            outcome = settled.result()
            if isinstance(outcome, Rejected) and outcome.code != "closed":
                driver.listeners.report(rejected(outcome, topic), topic)

        settled = driver.settled(ref, math.inf, update, topic, dict(data), ref)
        settled.add_done_callback(report)


def _published(result: PublishResult, item: Prepared) -> Published | PubSubError:
    """The result of one publish for the program."""
    error = result.error
    if error is None:
        return Published(result.id or item.id, result.timestamp, result.seq, bool(result.duplicate))
    return rejected(error, item.publication.topic, item.id)


def _of_item(error: PubSubError, item: Prepared) -> PubSubError:
    """The error of a whole batch, as the error of one of its messages."""
    failed = rejected(error_info(error), item.publication.topic, item.id)
    failed.__cause__ = error.__cause__
    return failed
