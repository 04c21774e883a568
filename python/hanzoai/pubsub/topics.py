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
"""Topics that have been checked: a look-up takes a fifth of the time of a check."""

_LONG: Final = 16
"""Dots of a pattern that is too long for the tree of a `TopicTrie`."""

_LONG_ENDLESS: Final = 6
"""The same, if the pattern has `**` before other segments."""

_BLOCK: Final = 256
"""Maximum long patterns that are matched together."""

_FEW: Final = 8
"""Number of such patterns with the same segment whose places are then joined to one mask."""

_UNBUILT: Final = 4
"""Maximum full blocks that are built only when a long topic needs them: most topics are short."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*", re.ASCII)
_PATTERN: Final = re.compile(r"(?:[a-zA-Z0-9_-]+|\*\*?)(?:\.(?:[a-zA-Z0-9_-]+|\*\*?))*", re.ASCII)
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_.*-]", re.ASCII)
_OF_OTHERS: Final = {">": "**", "#": "**", "+": "*"}
"""Wildcards of NATS and MQTT, and those of the same meaning here."""


def validate_topic(name: str) -> str:
    """Check the name of a topic to publish to.

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
    """Check a pattern to subscribe to: a topic in which whole segments may be `*` or `**`.

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
    """Return whether a valid pattern has a wildcard."""
    return "*" in pattern


def matches(pattern: str, topic: str) -> bool:
    """Return whether a subscription to a pattern receives the messages of a topic.

    Args:
        pattern: A valid pattern: ``*`` is one segment, ``**`` one or more.
        topic: A valid topic.
    """
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
        return f"has {foreign[0]!a} at character {foreign.start() + 1}", _meant(name, kind)
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
                    f"has the wildcard '*' at character {star}",
                    "Use the full name of one topic; `*` and `**` are for subscriptions.",
                )
            if segment not in ("*", "**"):
                return (
                    f"mixes '*' at character {star} with other characters in one segment",
                    "Use `*` (one segment) or `**` (one or more) as a whole segment.",
                )
        at += len(segment) + 1
    raise AssertionError(name)  # pragma: no cover - the callers ask about invalid names alone


def _meant(name: str, kind: str) -> str | None:
    """The remedy for a name as other services write it: `a/b`, `a:b`, `a.>`, `a/#`, or a list."""
    if kind == "pattern" and "," in name:
        return "Pass a list of patterns."
    if len(name) > MAX_TOPIC + 2:  # with one separator at each end
        return None
    segments = re.split("[/:.]", name.strip("/:"))
    if kind == "pattern":
        segments = [_OF_OTHERS.get(segment, segment) for segment in segments]
    meant = ".".join(segments)
    is_valid = len(meant) <= MAX_TOPIC and (_NAME if kind == "topic" else _PATTERN).fullmatch(meant)
    advice = "Separate segments with dots:" if "/" in name or ":" in name else "Write"
    return f"{advice} {meant!a}." if is_valid else None


class _Node(Generic[V]):
    __slots__ = ("children", "endless", "values")

    def __init__(self, endless: bool) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.endless = endless
        self.values: dict[V, None] = {}


class _Block(Generic[V]):
    """Long patterns that are matched together.

    One bit for each segment of each pattern says whether the topic so far ends there, so that a
    segment of the topic costs a few operations for all patterns. A removed pattern keeps its bits
    until half of the patterns are removed.
    """

    __slots__ = (
        "_built", "_endless", "_ends", "_few", "_last", "_many", "_size", "_starts", "_wild",
        "patterns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.patterns: dict[str, dict[V, None]] = {}
        self._clear()
        self._built = False

    @property
    def full(self) -> bool:
        """Whether it has no room for another pattern."""
        return max(len(self.patterns), len(self._ends)) >= _BLOCK

    def add(self, pattern: str) -> None:
        """Add a pattern without values."""
        self.patterns[pattern] = {}
        if self._built:
            self._append(pattern)

    def remove(self, pattern: str) -> None:
        """Remove a pattern whose values were removed."""
        del self.patterns[pattern]
        if self._built and len(self._ends) >= 2 * len(self.patterns):
            self.build()

    def build(self) -> None:
        """Prepare to match; called again if many patterns were removed."""
        self._clear()
        for pattern in self.patterns:
            self._append(pattern)
        self._built = True

    def match(self, topic: list[str]) -> Iterator[dict[V, None]]:
        """Yield the values of each pattern that matches the topic."""
        if not self._built:
            self.build()
        wild, endless, inner = self._wild, self._endless, ~self._starts
        many, few = self._many, self._few
        state = self._starts
        for index, segment in enumerate(topic):
            taken = wild | many.get(segment, 0)
            for start, places in few.get(segment, ()):
                taken |= places << start
            if index:
                # The last segment of a pattern is not followed by the first one of the next.
                state = (state << 1) & inner & taken | state & endless
            else:
                state &= taken
            if not state:
                return
        state &= self._last
        while state:
            end = state & -state
            state ^= end
            yield self._ends[end.bit_length() - 1]

    def _clear(self) -> None:
        self._size = self._starts = self._last = self._wild = self._endless = 0
        # The places of each literal. A mask for the whole block is worth its memory only if many
        # patterns have the literal; otherwise, each has its own, with the place where it begins.
        self._many: dict[str, int] = {}
        self._few: dict[str, tuple[tuple[int, int], ...]] = {}
        self._ends: dict[int, dict[V, None]] = {}

    def _append(self, pattern: str) -> None:
        start = self._size
        places: dict[str, int] = {}
        bit = 1
        for segment in pattern.split("."):
            places[segment] = places.get(segment, 0) | bit
            bit <<= 1
        endless = places.pop("**", 0)
        self._endless |= endless << start
        self._wild |= (places.pop("*", 0) | endless) << start
        few = self._few
        for segment, mask in places.items():
            known = few[segment] = (*few.get(segment, ()), (start, mask))
            if len(known) == _FEW:
                few[segment] = ()
                for at, each in known:
                    self._many[segment] = self._many.get(segment, 0) | each << at
        self._starts |= 1 << start
        self._size = start + bit.bit_length() - 1
        self._last |= 1 << self._size - 1
        self._ends[self._size - 1] = self.patterns[pattern]


class TopicTrie(Generic[V]):
    """Values by pattern, found by topic.

    A pattern without a wildcard costs one dictionary look-up. The others share a tree of segments,
    and a topic walks it once for all of them: each segment is compared only with the children of
    the nodes that its beginning has reached. A node counts once, however many ways lead to it, so
    the cost of `**.**.**` does not explode.

    The beginning of a topic can reach many nodes of a long pattern, nearly all of them if `**` is
    before other segments. Long patterns are not in the tree, because clients choose their patterns:
    with 1,000 of them, one topic would take seconds.
    """

    __slots__ = ("_blocks", "_exact", "_places", "_room", "_root", "_size")

    def __init__(self) -> None:
        self._exact: dict[str, dict[V, None]] = {}
        self._root: _Node[V] = _Node(endless=False)
        # Long patterns, and the block of each.
        self._blocks: dict[_Block[V], None] = {}
        self._places: dict[str, _Block[V]] = {}
        # Blocks with fewer than `_BLOCK` patterns: filled first, so that changes leave few blocks.
        self._room: dict[_Block[V], None] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, V]]:
        """Yield each pattern with each of its values."""
        for topic, values in self._exact.items():
            for value in values:
                yield topic, value
        for pattern, block in self._places.items():
            for value in block.patterns[pattern]:
                yield pattern, value
        stack: list[tuple[str, _Node[V]]] = [("", self._root)]
        while stack:
            path, node = stack.pop()
            for value in node.values:
                yield path, value
            for segment, child in node.children.items():
                stack.append((f"{path}.{segment}" if path else segment, child))

    def insert(self, pattern: str, value: V) -> bool:
        """Add a value to a pattern; return False if the pattern has it already."""
        if _is_long(pattern):
            values = self._block(pattern).patterns[pattern]
        elif "*" in pattern:
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
        """Remove a value from a pattern; return False if the pattern does not have it."""
        if "*" not in pattern:
            values = self._exact.get(pattern)
            if values is None or value not in values:
                return False
            del values[value]
            if not values:
                del self._exact[pattern]
            self._size -= 1
            return True
        if _is_long(pattern):
            return self._remove_long(pattern, value)
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
        """Return the values of all patterns that match a topic, each once.

        The order depends only on the patterns and the order in which they were added: first the
        values of the topic's own name, then those of patterns with wildcards.
        """
        exact = self._exact.get(topic)
        if not (self._root.children or self._blocks):
            return tuple(exact) if exact else ()
        segments = topic.split(".")
        alive: list[_Node[V]] = [self._root]
        for segment in segments:
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
            alive = list(following)
            if not alive:
                break
        if not (alive or self._blocks):
            return tuple(exact) if exact else ()
        found: dict[V, None] = dict(exact) if exact else {}
        for node in alive:
            if node.values:
                found.update(node.values)
        # A segment of a pattern takes at least one of the topic.
        if len(segments) > _LONG_ENDLESS:
            for block in self._blocks:
                for values in block.match(segments):
                    found.update(values)
        return tuple(found)

    def _block(self, pattern: str) -> _Block[V]:
        """Return the block of a long pattern; assign one if it has none."""
        block = self._places.get(pattern)
        if block is None:
            block = next(iter(self._room), None) or self._new_block()
            self._places[pattern] = block
            block.add(pattern)
            if block.full:
                del self._room[block]
                if len(self._blocks) > _UNBUILT:
                    block.build()
        return block

    def _new_block(self) -> _Block[V]:
        block: _Block[V] = _Block()
        self._blocks[block] = self._room[block] = None
        return block

    def _remove_long(self, pattern: str, value: V) -> bool:
        block = self._places.get(pattern)
        if block is None or value not in block.patterns[pattern]:
            return False
        del block.patterns[pattern][value]
        self._size -= 1
        if not block.patterns[pattern]:
            block.remove(pattern)
            del self._places[pattern]
            if not block.patterns:
                del self._blocks[block]
                self._room.pop(block, None)
            elif not block.full:
                self._room[block] = None
        return True


def _is_long(pattern: str) -> bool:
    dots = pattern.count(".")
    if dots < _LONG_ENDLESS:
        return False
    return "**." in pattern or (dots >= _LONG and "*" in pattern)
