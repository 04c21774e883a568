"""Options of a source: plain data that Spark sends to executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast

from pydantic_core import from_json

from hanzoai.pubsub.errors import InvalidOption, InvalidTopic
from hanzoai.pubsub.settings.checks import check_seconds, check_whole
from hanzoai.pubsub.spark.config import PubSubConfig
from hanzoai.pubsub.spark.options import (
    SERVER_OPTIONS,
    Table,
    flag,
    invalid,
    milliseconds,
    read_options,
    renamed,
    whole,
)
from hanzoai.pubsub.topics import matches, validate_pattern, validate_topic

Bound = Literal["earliest", "latest"] | Mapping[str, int]
"""A place in each topic: a word for all topics, or the last position read."""

LATEST: Final = -1
"""Value of a position: after the newest message."""
EARLIEST: Final = -2
"""Value of a position: before the oldest retained message."""

BEFORE_ALL: Final = 0
"""Position before every log, whose first message may have any position: as `EARLIEST`."""

_SEQ_MAX: Final = 2**53 - 1
_TOPICS_MAX: Final = 1_000
_ROWS_MAX: Final = 1 << 30
_EARLIEST_MS: Final = 10**11
_POLL_BOUNDS: Final = (0.05, 30.0)
_FORGET_BOUNDS: Final = (1.0, 366 * 86_400.0)


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """Options of a source.

    Args:
        server: Address, token source and retries.
        topics: Names of topics, or patterns.
        starting: Start of a new query; None for `latest` in a stream, `earliest` in a batch.
        starting_timestamp: Unix ms; a new query begins at the first message that is not older.
        ending: End of a batch; None for `latest`.
        ending_timestamp: Unix ms; a batch ends before the first message that is not older.
        fail_on_data_loss: Whether lost rows fail the query; otherwise, they are counted.
        max_offsets_per_trigger: Maximum rows of a micro-batch, in fair shares of its topics.
        min_partitions: Minimum tasks of a batch, if it has enough rows.
        max_rows_per_partition: Maximum rows of a task.
        types: Message types to return; others are read and skipped.
        page_size: Messages of a request, 1 to 500.
        poll: Seconds that a request waits for news.
        forget: Seconds after which a topic that no longer exists leaves the offsets.

    Raises:
        InvalidOption: An option is wrong; `field` names it.
    """

    server: PubSubConfig
    topics: tuple[str, ...]
    starting: Bound | None = None
    starting_timestamp: int | None = None
    ending: Bound | None = None
    ending_timestamp: int | None = None
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_partitions: int = 1
    max_rows_per_partition: int = 50_000
    types: frozenset[str] | None = None
    page_size: int = 500
    poll: float = 0.5
    forget: float = 86_400.0

    def __post_init__(self) -> None:
        if self.max_offsets_per_trigger is not None:
            check_whole(
                "max_offsets_per_trigger", self.max_offsets_per_trigger, 1, _SEQ_MAX, "rows"
            )
        check_whole("min_partitions", self.min_partitions, 1, 100_000, "tasks")
        check_whole("max_rows_per_partition", self.max_rows_per_partition, 1, _ROWS_MAX, "rows")
        check_whole("page_size", self.page_size, 1, 500, "messages")
        check_seconds("poll", self.poll, *_POLL_BOUNDS)
        check_seconds("forget", self.forget, *_FORGET_BOUNDS)
        for field in ("starting", "ending"):
            bound = getattr(self, field)
            if isinstance(bound, Mapping):
                self._check_named(field, cast("Mapping[str, int]", bound))

    def _check_named(self, field: str, bound: Mapping[str, int]) -> None:
        for topic in bound:
            if not any(matches(pattern, topic) for pattern in self.topics):
                raise InvalidOption(
                    f"`{field}` names {topic!a}, which is not among the topics.",
                    remedy="Name only topics that are read.",
                    field=field,
                )


# ---------------------------------------------------------------- options


def _names(name: str, value: str) -> object:
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not found:
        raise invalid(name, "is empty", "Give one or more, separated by commas.")
    if len(found) > _TOPICS_MAX:
        raise invalid(name, f"has more than {_TOPICS_MAX:,} entries", "Give a pattern.")
    return found


def _bound(name: str, value: str) -> object:
    words = value.strip()
    if words.lower() in ("earliest", "latest"):
        return words.lower()
    remedy = (
        '`earliest`, `latest`, or JSON like {"agent.bot1.events": 1740307200000042}: the position'
        " that was read last, -1 for the newest, -2 for before the oldest."
    )
    if not words.startswith("{"):
        raise invalid(name, "is not a valid offset", f"Give {remedy}")
    try:
        found: object = from_json(words)
    except ValueError as error:
        raise invalid(name, f"is not JSON: {error}", f"Give {remedy}") from None
    places = cast("dict[str, object]", found)
    for topic, place in places.items():
        _topic(name, topic)
        if isinstance(place, bool) or not isinstance(place, int):
            raise invalid(name, f"has no whole number for {topic!a}", f"Give {remedy}")
        if not EARLIEST <= place <= _SEQ_MAX:
            raise invalid(name, f"is out of range for {topic!a}", f"Give {remedy}")
    return places


def _ending(name: str, value: str) -> object:
    bound = cast("Bound", _bound(name, value))
    if bound == "earliest" or (bound != "latest" and EARLIEST in bound.values()):
        raise invalid(name, "is before the first row", "Give `latest`, -1, or positions.")
    return bound


def _time(name: str, value: str) -> object:
    words = value.strip()
    if words.isascii() and words.isdecimal():
        found = cast("int", whole(name, words))
    else:
        try:
            then = datetime.fromisoformat(words)
        except ValueError:
            raise invalid(
                name,
                "is not a time",
                "Give Unix milliseconds, or ISO 8601 like 2026-02-23T10:00:00Z.",
            ) from None
        then = then if then.tzinfo is not None else then.replace(tzinfo=UTC)
        found = int(then.timestamp() * 1000)
    if not _EARLIEST_MS <= found <= _SEQ_MAX:
        raise invalid(name, "is before 1973 or out of range", "Give Unix milliseconds.")
    return found


def _topic(name: str, topic: str) -> None:
    try:
        validate_topic(topic)
    except InvalidTopic as error:
        pattern = name == "topics" and "*" in topic
        remedy = "Give patterns as topicsPattern." if pattern else error.remedy
        raise InvalidTopic(
            f"Option `{name}`: {error.message}", remedy=remedy, topic=error.topic, field=name
        ) from None


def _topics(name: str, value: str) -> object:
    names = cast("tuple[str, ...]", _names(name, value))
    for topic in names:
        _topic(name, topic)
    return names


def _patterns(name: str, value: str) -> object:
    patterns = cast("tuple[str, ...]", _names(name, value))
    for pattern in patterns:
        try:
            validate_pattern(pattern)
        except InvalidTopic as error:
            raise InvalidTopic(
                f"Option `{name}`: {error.message}",
                remedy=error.remedy,
                topic=error.topic,
                field=name,
            ) from None
    return patterns


SOURCE_OPTIONS: Final[Table] = {
    **SERVER_OPTIONS,
    "topics": ("topics", _topics),
    "topicsPattern": ("patterns", _patterns),
    "startingOffsets": ("starting", _bound),
    "startingTimestamp": ("starting_timestamp", _time),
    "endingOffsets": ("ending", _ending),
    "endingTimestamp": ("ending_timestamp", _time),
    "failOnDataLoss": ("fail_on_data_loss", flag),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", whole),
    "minPartitions": ("min_partitions", whole),
    "maxRowsPerPartition": ("max_rows_per_partition", whole),
    "types": ("types", _names),
    "pageSize": ("page_size", whole),
    "minPollIntervalMs": ("poll", milliseconds(_POLL_BOUNDS)),
    "topicForgetMs": ("forget", milliseconds(_FORGET_BOUNDS)),
}
"""The source's options: name → field of `SourceConfig`, or of its `server`."""

_SERVER_FIELDS: Final = frozenset(field for field, _ in SERVER_OPTIONS.values())


def source_config(options: Mapping[str, str]) -> SourceConfig:
    """Return the config of the options of a source.

    Args:
        options: Options from Spark; names in any case.

    Raises:
        InvalidOption: An option is missing, unknown or wrong; `field` is its name. The message
            omits values.
        InvalidTopic: A topic or pattern is not valid.
    """
    given = read_options(options, SOURCE_OPTIONS, "Call load() without a path; name `topics`.")
    server: dict[str, Any] = {
        field: given.pop(field) for field in list(given) if field in _SERVER_FIELDS
    }
    patterns = given.pop("patterns", None)
    if ("topics" in given) == (patterns is not None):
        raise invalid(
            "topics",
            "is missing" if patterns is None else "and `topicsPattern` cannot be used together",
            "Give `topics` (names, separated by commas) or `topicsPattern` (with `*` and `**`).",
        )
    if patterns is not None:
        given["topics"] = patterns
    if "types" in given:
        given["types"] = frozenset(given["types"])
    try:
        return SourceConfig(PubSubConfig(**server), **given)
    except InvalidOption as error:
        raise renamed(error, SOURCE_OPTIONS) from None


def refuse(config: SourceConfig, kind: Literal["batch", "stream"], *, limits: bool = True) -> None:
    """Check that a batch or a stream supports the options.

    Args:
        config: Config of the source.
        kind: Kind of the query.
        limits: Whether this version of Spark supports limits of a micro-batch.

    Raises:
        InvalidOption: The query does not support an option; `field` names it.
    """
    if kind == "stream":
        for field, name in (("ending", "endingOffsets"), ("ending_timestamp", "endingTimestamp")):
            if getattr(config, field) is not None:
                raise invalid(name, "is not possible for a stream", "Leave it out, or use read.")
        if config.max_offsets_per_trigger is not None and not limits:
            raise invalid(
                "maxOffsetsPerTrigger", "needs Spark 4.2 or later", "Leave it out, or upgrade."
            )
        return
    if config.max_offsets_per_trigger is not None:
        raise invalid("maxOffsetsPerTrigger", "is not possible for a batch", "Leave it out.")
    begin, end = config.starting_timestamp, config.ending_timestamp
    if begin is not None and end is not None and end < begin:
        raise invalid("endingTimestamp", "is before `startingTimestamp`", "Give a later time.")
    if config.starting == "latest" and begin is None:
        raise invalid(
            "startingOffsets", "is `latest`: a batch would have no rows", "Give `earliest` or JSON."
        )
