"""Validates arguments with topics, patterns and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from hanzoai.pubsub.errors import InvalidOption, InvalidTopic
from hanzoai.pubsub.settings.checks import check_whole, kind
from hanzoai.pubsub.topics import validate_pattern, validate_topic

_PATTERNS_MAX: Final = 1_000
_SEQ_MAX: Final = 2**53 - 1


def pattern_list(topics: object) -> tuple[str, ...]:
    """``topics``: a pattern or several, each once."""
    described = kind(topics)
    if isinstance(topics, str):
        return (validate_pattern(topics),)
    if not isinstance(topics, Sequence) or not topics:
        raise InvalidOption(
            "`topics` is empty." if topics == [] else f"`topics` is {described}.",
            remedy="Pass a pattern or a list of patterns.",
            field="topics",
        )
    names = cast("Sequence[str]", topics)
    if len(names) > _PATTERNS_MAX:
        raise InvalidOption(
            f"`topics` has {len(names):,} patterns; a subscription has at most {_PATTERNS_MAX:,}.",
            remedy="Use `*` or `**`, or several subscriptions.",
            field="topics",
        )
    return tuple(dict.fromkeys(validate_pattern(name) for name in names))


def one_topic(name: str) -> str:
    """A topic whose history or members are requested; a pattern has neither."""
    try:
        return validate_topic(name)
    except InvalidTopic as error:
        if "wildcard" in error.message:
            error.remedy = "Ask for one topic by its full name; `*` and `**` are for subscriptions."
        raise


def position_map(after: object) -> dict[str, int]:
    """``after``: positions by topic."""
    if after is None:
        return {}
    if not isinstance(after, Mapping):
        raise InvalidOption(
            f"`after` is {kind(after)}.",
            remedy="Pass positions by topic, as in `sub.positions`.",
            field="after",
        )
    positions = dict(cast("Mapping[str, int]", after))
    for topic, position in positions.items():
        validate_topic(topic)
        check_whole(f"after[{topic}]", position, low=0, high=_SEQ_MAX)
    return positions
