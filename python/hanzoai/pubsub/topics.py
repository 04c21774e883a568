"""Names of topics, patterns of subscriptions, and which pattern takes which topic.

HIP-56 Topics, Wildcard Subscriptions, Security 8; H-149. The client and the server both use it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from hanzoai.pubsub.errors import InvalidTopic

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    V = TypeVar("V", bound=Hashable)
else:
    V = TypeVar("V")

MAX_TOPIC: Final = 255
"""Bytes of a topic or pattern; all its characters are ASCII."""

_REMEMBERED: Final = 4_096
"""Topics in `valid_topics` at most; beyond that, they are forgotten and checked again."""

valid_topics: Final[set[str]] = set()
"""Topics that were found valid: looking one up takes a fifth of the time of checking it."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*", re.ASCII)
_PATTERN: Final = re.compile(r"(?:[a-zA-Z0-9_-]+|\*\*?)(?:\.(?:[a-zA-Z0-9_-]+|\*\*?))*", re.ASCII)
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_.*-]", re.ASCII)


def validate_topic(name: str) -> str:
    """Check the name of a topic, as one publishes to.

    Returns:
        The name.

    Raises:
        InvalidTopic: It is empty, over 255 bytes, has an empty segment, a wildcard or a character
            other than letters, digits, `_`, `-` and `.`; the message names it and its place.
    """
    given = cast("object", name)
    if isinstance(given, str) and len(given) <= MAX_TOPIC and _NAME.fullmatch(given):
        if type(given) is str:  # a subclass may not have a hash
            if len(valid_topics) >= _REMEMBERED:
                valid_topics.clear()
            valid_topics.add(given)
        return given
    raise _invalid(name, "topic")


def validate_pattern(pattern: str) -> str:
    """Check a pattern, as one subscribes to: a topic in which whole segments may be `*` or `**`.

    Returns:
        The pattern.

    Raises:
        InvalidTopic: As for `validate_topic`, or `*` is a part of a segment.
    """
    given = cast("object", pattern)
    if isinstance(given, str) and len(given) <= MAX_TOPIC and _PATTERN.fullmatch(given):
        return given
    raise _invalid(pattern, "pattern")


def is_wildcard(pattern: str) -> bool:
    """Whether a valid pattern takes more than the one topic of its name."""
    return "*" in pattern


def matches(pattern: str, topic: str) -> bool:
    """Whether one pattern takes a topic; for many patterns use a `TopicTrie`."""
    if "*" not in pattern:
        return pattern == topic
    trie: TopicTrie[None] = TopicTrie()
    trie.insert(pattern, None)
    return bool(trie.match(topic))


def _invalid(name: object, kind: str) -> InvalidTopic:
    if not isinstance(name, str):
        return InvalidTopic(f"A {kind} is a string, not {type(name).__name__}.")
    shown = name if len(name) <= 80 else f"{name[:80]}…"
    problem, remedy = _diagnose(name, kind)
    return InvalidTopic(f"The {kind} {shown!a} {problem}.", remedy=remedy, topic=name[:MAX_TOPIC])


def _diagnose(name: str, kind: str) -> tuple[str, str | None]:
    if not name:
        return "is empty", None
    if foreign := _FOREIGN.search(name):
        return f"has {foreign[0]!a} as character {foreign.start() + 1}", None
    if len(name) > MAX_TOPIC:
        return f"has {len(name)} bytes", f"Use at most {MAX_TOPIC} bytes."
    at = 1
    for segment in name.split("."):
        if not segment:
            return (
                f"has an empty segment at character {at}",
                "Put one or more characters before, between and after dots.",
            )
        if "*" in segment:
            star = at + segment.index("*")
            if kind == "topic":
                return (
                    f"has the wildcard '*' as character {star}",
                    "Publish to one topic by its full name; `*` and `**` are for subscriptions.",
                )
            if segment not in ("*", "**"):
                return (
                    f"mixes '*' at character {star} with others in one segment",
                    "Use `*` (one segment) or `**` (one or more) as a whole segment.",
                )
        at += len(segment) + 1
    raise AssertionError(name)  # pragma: no cover - the callers ask about invalid names alone


class _Node(Generic[V]):
    __slots__ = ("children", "endless", "values")

    def __init__(self, endless: bool) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.endless = endless
        self.values: dict[V, None] = {}


class TopicTrie(Generic[V]):
    """Values by pattern, found by topic.

    A pattern without a wildcard costs one dictionary look-up. The others share a tree by segment,
    walked for all of them at once: a segment is compared with the few nodes still alive, so what
    does not match costs nothing, and `**.**.**` cannot blow up, as a node is alive or not, however
    it was reached.
    """

    __slots__ = ("_exact", "_root", "_size")

    def __init__(self) -> None:
        self._exact: dict[str, dict[V, None]] = {}
        self._root: _Node[V] = _Node(endless=False)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, V]]:
        """Every pattern with each of its values."""
        for topic, values in self._exact.items():
            for value in values:
                yield topic, value
        stack: list[tuple[str, _Node[V]]] = [("", self._root)]
        while stack:
            path, node = stack.pop()
            for value in node.values:
                yield path, value
            for segment, child in node.children.items():
                stack.append((f"{path}.{segment}" if path else segment, child))

    def insert(self, pattern: str, value: V) -> bool:
        """Let `pattern` lead to `value`; False if it already does."""
        if "*" in pattern:
            node = self._root
            for segment in pattern.split("."):
                child = node.children.get(segment)
                if child is None:
                    child = node.children[segment] = _Node(endless=segment == "**")
                node = child
            values = node.values
        else:
            values = self._exact.setdefault(pattern, {})
        if value in values:
            return False
        values[value] = None
        self._size += 1
        return True

    def remove(self, pattern: str, value: V) -> bool:
        """Let `pattern` lead to `value` no more; False if it did not."""
        if "*" not in pattern:
            values = self._exact.get(pattern)
            if values is None or value not in values:
                return False
            del values[value]
            if not values:
                del self._exact[pattern]
            self._size -= 1
            return True
        path: list[tuple[_Node[V], str]] = []
        node = self._root
        for segment in pattern.split("."):
            child = node.children.get(segment)
            if child is None:
                return False
            path.append((node, segment))
            node = child
        if value not in node.values:
            return False
        del node.values[value]
        self._size -= 1
        for parent, segment in reversed(path):
            child = parent.children[segment]
            if child.values or child.children:
                break
            del parent.children[segment]
        return True

    def match(self, topic: str) -> tuple[V, ...]:
        """The values of every pattern that takes `topic`, each once.

        The order depends on the patterns and the order of insertions alone: those of the topic's
        own name first, then those of wildcards.
        """
        exact = self._exact.get(topic)
        if not self._root.children:
            return tuple(exact) if exact else ()
        alive: list[_Node[V]] = [self._root]
        for segment in topic.split("."):
            following: dict[_Node[V], None] = {}
            for node in alive:
                if node.endless:
                    following[node] = None
                children = node.children
                if children:
                    for key in (segment, "*", "**"):
                        child = children.get(key)
                        if child is not None:
                            following[child] = None
            if not following:
                return tuple(exact) if exact else ()
            alive = list(following)
        found: dict[V, None] = dict(exact) if exact else {}
        for node in alive:
            if node.values:
                found.update(node.values)
        return tuple(found)
