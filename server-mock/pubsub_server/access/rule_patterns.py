"""Patterns of access rules: segments that are literal, `<placeholder>`, `*` or `**`; pure.

`bind` finds the values of the placeholders in a topic; `may_overlap` and `covers` compare a
rule's pattern with the pattern of a subscription.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

Bindings = Mapping[str, str]
"""The value of each placeholder in one topic."""

Allowed = Mapping[str, Collection[str]]
"""The allowed values of each placeholder; a placeholder that is absent may have any value."""

_LITERAL = re.compile(r"[a-zA-Z0-9_-]+")
_PLACEHOLDER = re.compile(r"<([a-zA-Z_][a-zA-Z0-9_]*)>")
MAX_PATTERN = 255


@dataclass(frozen=True, slots=True)
class RulePattern:
    """A parsed pattern.

    Attributes:
        text: As written in the rule.
        segments: Literal text, `<name>`, `*` or `**`.
        placeholders: Names of the placeholders.
    """

    text: str
    segments: tuple[str, ...]
    placeholders: frozenset[str]


def parse(text: str) -> RulePattern:
    """Parses the pattern of a rule.

    Raises:
        ValueError: A segment is none of the four kinds, or a placeholder is between two `**`, where
            its position would be ambiguous.
    """
    if not text or len(text) > MAX_PATTERN:
        raise ValueError(f"a pattern has 1 to {MAX_PATTERN} characters")
    segments = tuple(text.split("."))
    names: set[str] = set()
    for number, segment in enumerate(segments, 1):
        if segment in {"*", "**"} or _LITERAL.fullmatch(segment):
            continue
        if match := _PLACEHOLDER.fullmatch(segment):
            names.add(match[1])
            continue
        raise ValueError(
            f"segment {number} of {text!r} is {segment!r}; use letters, digits, `_` and `-`, "
            "or `<name>`, `*`, `**` as a whole segment"
        )
    stars = [i for i, segment in enumerate(segments) if segment == "**"]
    if stars and any(s.startswith("<") for s in segments[stars[0] : stars[-1]]):
        raise ValueError(f"a placeholder between two `**` of {text!r} is ambiguous")
    return RulePattern(text, segments, frozenset(names))


def topics_of(pattern: RulePattern) -> str:
    """The pattern of a subscription that matches all topics of a rule."""
    return ".".join("*" if each.startswith("<") else each for each in pattern.segments)


def bind(pattern: RulePattern, topic: str) -> dict[str, str] | None:
    """The values of the placeholders, or None if the pattern does not match the topic."""
    parts = topic.split(".")
    segments = pattern.segments
    if "**" not in segments:
        return _bind_fixed(segments, parts) if len(parts) == len(segments) else None
    first = segments.index("**")
    last = len(segments) - segments[::-1].index("**") - 1
    tail = len(segments) - last - 1
    if len(parts) < len(segments):
        return None
    head = _bind_fixed(segments[:first], parts[:first])
    if head is None:
        return None
    end = len(parts) - tail
    found = _bind_fixed(segments[last + 1 :], parts[end:], head)
    if found is None or not _takes(segments[first : last + 1], tuple(parts[first:end])):
        return None
    return found


def may_overlap(pattern: RulePattern, subscription: str, allowed: Allowed) -> bool:
    """Whether the pattern matches some topic of the subscription, with values from `allowed`.

    The answer may be a false yes (a placeholder that occurs twice is compared by position only),
    but never a false no.
    """
    theirs = subscription.split(".")
    wild = endless = 0
    literal: dict[str, int] = {}
    for index, other in enumerate(theirs):
        bit = 1 << index
        if other == "**":
            endless |= bit
        if "*" in other:
            wild |= bit
        else:
            literal[other] = literal.get(other, 0) | bit
    everything = (1 << len(theirs)) - 1
    # One bit for each segment of theirs that can match the same segment of a topic as ours: clients
    # choose their patterns, and a comparison of all pairs would take long.
    met = 0
    following = 1
    for mine in pattern.segments:
        if mine == "**":
            # From the first one on, as it matches any number of segments.
            met = everything & -(following & -following)
        elif mine == "*":
            met = following & everything
        else:
            met = following & _meets(mine, wild, literal, allowed)
        following = met << 1 | met & endless
    return bool(met >> (len(theirs) - 1))


def covers(pattern: RulePattern, subscription: str) -> dict[str, str] | None:
    """Bindings that are valid for every topic of the subscription, if the rule matches all of them.

    The bindings do not contain placeholders that are opposite a wildcard.
    """
    theirs = tuple(subscription.split("."))
    ours = pattern.segments
    found: dict[str, str] = {}
    if not _covered(ours, theirs):
        return None
    if not pattern.placeholders:
        return found
    first = ours.index("**") if "**" in ours else len(ours)
    pairs = list(zip(ours[:first], theirs[:first], strict=False))
    pairs += list(zip(reversed(ours[first:]), reversed(theirs), strict=False))
    varied: set[str] = set()
    for mine, other in pairs:
        if not mine.startswith("<"):
            continue
        name = mine[1:-1]
        if "*" in other:
            varied.add(name)
        elif found.setdefault(name, other) != other:
            return None
    if varied & set(found) or _repeated(ours, varied):
        return None
    return found


def _repeated(ours: tuple[str, ...], names: set[str]) -> bool:
    return any(ours.count(f"<{name}>") > 1 for name in names)


def _covered(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    @cache
    def within(i: int, j: int) -> bool:
        if i == len(ours) or j == len(theirs):
            return i == len(ours) and j == len(theirs)
        mine, other = ours[i], theirs[j]
        if mine == "**":
            return within(i + 1, j + 1) or within(i, j + 1)
        if other == "**" or (other == "*" and not mine.startswith(("<", "*"))):
            return False
        return (mine == other or mine == "*" or mine.startswith("<")) and within(i + 1, j + 1)

    return within(0, 0)


def _bind_fixed(
    segments: tuple[str, ...], parts: list[str], found: dict[str, str] | None = None
) -> dict[str, str] | None:
    found = {} if found is None else found
    for segment, part in zip(segments, parts, strict=True):
        if segment.startswith("<"):
            if found.setdefault(segment[1:-1], part) != part:
                return None
        elif segment not in ("*", part):
            return None
    return found


def _takes(segments: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    alive = {0}
    for part in parts:
        following: set[int] = set()
        for i in alive:
            if i == len(segments):
                continue
            segment = segments[i]
            if segment == "**":
                following |= {i, i + 1}
            elif segment in ("*", part):
                following.add(i + 1)
        alive = following
        if not alive:
            return False
    return len(segments) in alive


def _meets(mine: str, wild: int, literal: Mapping[str, int], allowed: Allowed) -> int:
    """The segments of a subscription that can match what a literal or placeholder matches."""
    if not mine.startswith("<"):
        return wild | literal.get(mine, 0)
    values = allowed.get(mine[1:-1])
    if values is not None and not values:
        return 0
    return wild | sum(bits for name, bits in literal.items() if values is None or name in values)
