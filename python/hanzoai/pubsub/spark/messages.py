"""Checks rows and writes them as items of a batch request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_core import from_json, to_json

from hanzoai.pubsub.errors import InvalidPayload, InvalidTopic, PayloadTooLarge, PubSubError
from hanzoai.pubsub.spark.records import Unreadable
from hanzoai.pubsub.spark.values import Ambiguous, all_json, check_json, place_of_fault, to_text
from hanzoai.pubsub.topics import validate_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hanzoai.pubsub.spark.config import PubSubConfig
    from hanzoai.pubsub.spark.ids import Numbering
    from hanzoai.pubsub.spark.records import Chunk, Record

_ID_MAX: Final = 128
_CACHED: Final = 10_000
_TTL_MAX: Final = 2**31 - 1
_PLACE_MAX: Final = 200
"""Maximum characters of the place of a value in an error."""
_LETTER_SHARE: Final = 8
"""Factor by which data may grow when it is escaped as text within a dead letter."""
_LETTER_MAX: Final = 262_144 // _LETTER_SHARE
"""Maximum characters of data: a server accepts no larger letter, even if the config allows it."""


class Message(NamedTuple):
    """One item of a batch.

    Attributes:
        topic: Its topic.
        text: The item as JSON.
        size: Its size in bytes.
    """

    topic: str
    text: str
    size: int


@dataclass(slots=True)
class Messages:
    """Items of a batch as columns: one tuple per item would cost a tenth of the time of a task.

    Attributes:
        topics: Topic of each item.
        texts: The items as JSON.
        sizes: Their sizes in bytes.
    """

    topics: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])
    sizes: list[int] = field(default_factory=list[int])

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, message: Message) -> None:
        """Add an item."""
        self.topics.append(message.topic)
        self.texts.append(message.text)
        self.sizes.append(message.size)

    def extend(self, other: Messages) -> None:
        """Add the items of another batch."""
        self.topics += other.topics
        self.texts += other.texts
        self.sizes += other.sizes

    def one_by_one(self) -> Iterable[Message]:
        """Return the items."""
        return map(Message, self.topics, self.texts, self.sizes)


def together(messages: Iterable[Message]) -> Messages:
    """Return messages as a batch."""
    found = Messages()
    for message in messages:
        found.add(message)
    return found


class Encoded(NamedTuple):
    """A chunk as messages.

    Attributes:
        messages: Messages of the valid rows, in order.
        places: Index of each of these rows in the chunk.
        refused: Errors of the invalid rows, by index in the chunk.
    """

    messages: Messages
    places: Sequence[int]
    refused: list[tuple[int, PubSubError]]


class Encoder:
    """Converts records to messages.

    Args:
        config: Defaults, limits, and the source of ids.
        number: Creates ids.
    """

    def __init__(self, config: PubSubConfig, number: Numbering) -> None:
        self._config = config
        self._number = number
        self._topics: dict[object, str] = {}
        self._types: dict[object, str] = {}

    def encode_all(self, chunk: Chunk) -> Encoded:
        """Return the results of `encode` for all rows, for most chunks in a third of the time."""
        plain = self._plain(chunk)
        if plain is not None:
            return Encoded(plain, range(len(plain)), [])
        messages = Messages()
        places: list[int] = []
        refused: list[tuple[int, PubSubError]] = []
        for place in range(len(chunk.data)):
            try:
                messages.add(self.encode(chunk.record(place)))
                places.append(place)
            except (InvalidTopic, InvalidPayload, PayloadTooLarge) as error:
                refused.append((place, error))
        return Encoded(messages, places, refused)

    def _plain(self, chunk: Chunk) -> Messages | None:
        """Return the messages of ordinary rows; None if a row needs `encode`.

        Numbers rows only after all checks, so the ids are the same as those of `encode`.
        """
        count = len(chunk.data)
        if chunk.ttl.count(None) != count:
            return None
        try:
            topics = _read(chunk.topic, self._topics, self._topic)
            kinds = _read(chunk.type, self._types, self._type_of_any)
            data = all_json(chunk.data)
            given = self._config.ids in ("auto", "column") and chunk.id.count(None) < count
            ids = [self._id("", id) for id in chunk.id] if given else None
        except (TypeError, ValueError, PubSubError):
            return None
        # A character has at most four bytes.
        if 4 * max(map(len, data), default=0) > self._config.max_message_bytes:
            return None
        heads = [
            f'{{"topic":"{topic}","type":{kind},"data":{text}'
            for topic, kind, text in zip(topics, kinds, data, strict=True)
        ]
        rest = "" if self._config.ttl is None else f',"ttl":{self._config.ttl}'
        if ids is None:
            if self._config.ids == "column":
                return None
            # Most rows have none; avoid a copy.
            own = self._number.each([head + rest for head in heads] if rest else heads)
            items = [f'{head},"id":"{id}"{rest}}}' for head, id in zip(heads, own, strict=True)]
        elif None in ids:
            return None
        else:
            items = [f'{head},"id":{id}{rest}}}' for head, id in zip(heads, ids, strict=True)]
        sizes = map(len, items) if "".join(items).isascii() else map(_bytes, items)
        return Messages(topics, items, list(sizes))

    def encode(self, record: Record) -> Message:
        """Check a record and write it.

        Raises:
            InvalidTopic: The topic is missing or not valid.
            InvalidPayload: A field is missing, has a wrong type, or is not JSON; `field` names it.
            PayloadTooLarge: `data` is over the limit.
        """
        if Unreadable in map(type, record):
            raise _unreadable(record)
        topic_, kind_, data_, ttl_, id_ = record
        topic = self._topic(topic_)
        kind = self._type(topic, kind_)
        data = self._data(topic, data_)
        ttl = self._config.ttl if ttl_ is None else self._ttl(topic, ttl_)
        head = f'{{"topic":"{topic}","type":{kind},"data":{data}'
        rest = "" if ttl is None else f',"ttl":{ttl}'
        id = self._id(topic, id_)
        if id is None:
            id = f'"{self._number(head + rest)}"'
        text = f'{head},"id":{id}{rest}}}'
        return Message(topic, text, _bytes(text))

    def _topic(self, given: object) -> str:
        topic: object = self._config.topic if given is None else given
        if topic is None:
            raise InvalidTopic(
                "Column `topic` is null, and no default is given.",
                remedy="Fill it, or give the option topic.",
                field="topic",
            )
        try:
            return validate_topic(topic)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        except InvalidTopic as error:
            raise InvalidTopic(
                f"Column `topic`: {error.message}",
                remedy=error.remedy,
                topic=error.topic,
                field="topic",
            ) from None

    def _type_of_any(self, given: object) -> str:
        return self._type("", given)

    def _type(self, topic: str, given: object) -> str:
        kind = self._config.type if given is None else given
        if not isinstance(kind, str) or not 0 < len(kind) <= _ID_MAX:
            raise _ill("type", f"a text of 1 to {_ID_MAX} characters", topic)
        return _quoted(kind, "type", topic)

    def _data(self, topic: str, data: object) -> str:
        if isinstance(data, str):
            text = data
            try:
                check_json(text)
                size = _bytes(text)
            except ValueError as error:
                raise InvalidPayload(
                    f"Column `data` is not JSON: {error}.",
                    remedy="Write it with to_json, or quote a plain text as JSON.",
                    topic=topic,
                    field="data",
                ) from None
        elif data is None:
            raise _ill("data", "set: it is null", topic)
        else:
            try:
                text = to_text(data)
            except (TypeError, ValueError) as error:
                place = place_of_fault(data)
                which = f"`data{place[:_PLACE_MAX]}`" if place else "it"
                raise InvalidPayload(
                    f"Column `data` cannot be written as JSON: {which} {error}.",
                    remedy=_remedy(error),
                    topic=topic,
                    field="data",
                ) from None
            size = len(text.encode())
        limit = self._config.max_message_bytes
        if size > limit:
            # The server measures compact JSON.
            size = len(to_json(from_json(text)))
            if size > limit:
                raise PayloadTooLarge(
                    f"Column `data` has {size:,} bytes of JSON; the limit is {limit:,}.",
                    size=size,
                    limit=limit,
                    topic=topic,
                    field="data",
                )
        return text

    def _ttl(self, topic: str, given: object) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= _TTL_MAX:
            raise _ill("ttl", f"a whole number of seconds from 0 to {_TTL_MAX:,}", topic)
        return given

    def _id(self, topic: str, given: object) -> str | None:
        strategy = self._config.ids
        if strategy in ("auto", "column") and given is not None:
            if not isinstance(given, str) or not 0 < len(given) <= _ID_MAX:
                raise _ill("id", f"a text of 1 to {_ID_MAX} characters", topic)
            return _quoted(given, "id", topic)
        if strategy == "column":
            raise _ill("id", "set: it is null", topic)
        return None


def _read(
    column: Sequence[object], known: dict[object, str], read: Callable[[object], str]
) -> list[str]:
    """Read a column with many equal values: reads each of them once.

    Args:
        column: The values.
        known: Cache of values that were read; bounded.
        read: Reads one value.

    Raises:
        TypeError: A value is not hashable.
        PubSubError: A value is wrong.
    """
    new = set(column).difference(known)
    if new:
        if len(known) + len(new) > _CACHED:
            known.clear()
            new = set(column)
        known.update({value: read(value) for value in new})
    return list(map(known.__getitem__, column))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def letter(
    record: Record, error: PubSubError, config: PubSubConfig, number: Callable[[str], str]
) -> Message:
    """Return the message for the dead-letter topic that replaces a row.

    Equal rows give equal letters with equal ids.

    Args:
        record: The row.
        error: Reason why it was not published.
        config: Names the topic.
        number: A function from content to id.
    """
    topic = config.dead_letter_topic
    assert topic is not None
    data = record.data if isinstance(record.data, str) else _shown(record.data)
    longest = min(config.max_message_bytes // _LETTER_SHARE, _LETTER_MAX)
    fields = {
        "error": {"code": error.code, "field": error.field, "message": error.message},
        "row": {
            "topic": _shown(record.topic, 255),
            "type": _shown(record.type, 255),
            "id": _shown(record.id, 255),
            "ttl": _shown(record.ttl, 255),
            "data": _clean(data[:longest]) if data is not None else None,
        },
        "truncated": data is not None and len(data) > longest,
    }
    content = "\0".join(_shown(value, 1 << 30) or "" for value in record)
    item = {"topic": topic, "type": "dead_letter", "data": fields, "id": number(content)}
    text = to_json(item).decode()
    return Message(topic, text, len(text.encode()))


def _shown(value: object, longest: int | None = None) -> str | None:
    if value is None:
        return None
    if isinstance(value, str | int | float):
        text = str(value)
    else:
        try:
            text = to_text(value)
        except (TypeError, ValueError):
            text = f"<{type(value).__name__}>"
    return _clean(text if longest is None else text[:longest])


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _quoted(text: str, name: str, topic: str) -> str:
    try:
        return to_json(text).decode()
    except ValueError:
        raise _ill(name, "text that UTF-8 can encode", topic) from None


def _remedy(error: TypeError | ValueError) -> str:
    if isinstance(error, Ambiguous):
        return "Rename one of them."
    if isinstance(error, ValueError):
        return "Replace it, for example with null."
    return "Cast it, or encode bytes as base64."


def _unreadable(record: Record) -> InvalidPayload:
    name, why = next(
        (name, value.why)
        for name, value in zip(record._fields, record, strict=True)
        if isinstance(value, Unreadable)
    )
    return InvalidPayload(
        f"Column `{name}` cannot be read: it {why}.",
        remedy="Correct it in Spark, or leave such rows out.",
        field=name,
    )


def _ill(name: str, expected: str, topic: str) -> InvalidPayload:
    return InvalidPayload(
        f"Column `{name}` is not {expected}.",
        remedy=f"Select another value as {name}.",
        topic=topic,
        field=name,
    )
