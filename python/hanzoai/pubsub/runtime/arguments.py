"""Validates arguments with topics, patterns, positions and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from hanzoai.pubsub.settings.checks import check_text, check_whole, invalid, kind
from hanzoai.pubsub.topics import validate_pattern, validate_topic
from hanzoai.pubsub.values import Message, Published

if TYPE_CHECKING:
    from hanzoai.pubsub.values import Before, Since

PATTERNS_MAX: Final = 1_000
SEQ_MAX: Final = 2**53 - 1

_EARLIEST: Final = 10**11
"""The earliest accepted Unix time in milliseconds, in 1973: lower numbers are probably seconds."""


def pattern_list(topics: object) -> tuple[str, ...]:
    """``topics``: a pattern or several, each once."""
    described = kind(topics)
    if isinstance(topics, str):
        return (validate_pattern(topics),)
    if not isinstance(topics, Sequence) or not topics:
        empty = isinstance(topics, list | tuple)
        raise invalid(
            "topics",
            "is empty" if empty else f"is {described}",
            "Pass a pattern or a list of patterns.",
        )
    names = cast("Sequence[str]", topics)
    if len(names) > PATTERNS_MAX:
        raise invalid(
            "topics",
            f"has {len(names):,} patterns; a subscription has at most {PATTERNS_MAX:,}",
            "Use `*` or `**`, or several subscriptions.",
        )
    return tuple(dict.fromkeys(validate_pattern(name) for name in names))


def position_map(after: object) -> dict[str, int]:
    """``after``: positions by topic."""
    if after is None:
        return {}
    if not isinstance(after, Mapping):
        raise invalid(
            "after", f"is {kind(after)}", "Pass positions by topic, as in `sub.positions`."
        )
    positions = dict(cast("Mapping[str, int]", after))
    for topic, position in positions.items():
        validate_topic(topic)
        check_whole(f"after[{topic}]", position, low=0, high=SEQ_MAX)
    return positions


def page_end(before: Before, topic: str) -> tuple[str | None, int | None]:
    """``before`` as an id and a position; either can be missing.

    Raises:
        InvalidOption: It is none of these, of another topic, or not retained.
    """
    if isinstance(before, Message):
        remedy = f"Pass a message from the history of {topic}, or a position."
        if before.topic != topic:
            raise invalid("before", f"is a message of the topic {before.topic}", remedy)
        if before.ttl == 0:
            raise invalid("before", "is a message with `ttl` 0, which history omits", remedy)
    if isinstance(before, Message | Published):
        return before.id, before.seq
    if isinstance(before, int):
        check_whole("before", before, low=0, high=SEQ_MAX, unit="a position")
        return None, before
    check_text("before", before, "a message, a position, or the id of a message")
    if not before:
        raise invalid("before", "is empty", "Pass a message, a position, or the id of a message.")
    return before, None


def unix_ms(value: Since, now_ms: int, field: str = "since") -> int:
    """Read a time; errors name the option `field`."""
    given: object = cast("object", value)
    if isinstance(given, timedelta):  # its sign is ignored: nothing can be replayed from the future
        ms = now_ms - round(abs(given).total_seconds() * 1000)
    elif isinstance(given, datetime):
        if given.tzinfo is None:
            raise invalid(
                field,
                "is a datetime without a time zone",
                "Use datetime.now(UTC), or pass Unix milliseconds.",
            )
        ms = round(given.timestamp() * 1000)
    elif isinstance(given, int) and not isinstance(given, bool):
        ms = given
    else:
        raise invalid(
            field,
            f"is {type(given).__name__}",
            "Pass Unix milliseconds, a datetime, or a timedelta before now.",
        )
    if ms != 0 and not _EARLIEST <= ms < 2**53:
        raise invalid(
            field,
            f"is {ms}, which is not a Unix time in milliseconds",
            "Pass milliseconds, round(time.time() * 1000) for now; 0 for the beginning.",
        )
    return ms
