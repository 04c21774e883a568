"""A tree of topics by segment, which finds those that a pattern matches."""

from __future__ import annotations

from typing import Final

STEPS_MAX: Final = 100_000
"""Maximum steps of consecutive searches: a client can request a thousand at once."""

FOUND: Final = 4
"""Steps that a found topic costs in addition: the caller changes its route."""


class TopicTree:
    """A set of topics. Each of them pays for some steps of the searches."""

    def __init__(self) -> None:
        self._root = _Node()
        self._size = 0
        self._steps = 0

    def __len__(self) -> int:
        return self._size

    def add(self, topic: str, steps: int) -> None:
        """Add a topic, and allow as many steps of searches; one takes about half a µs."""
        self._steps = min(self._steps + steps, STEPS_MAX)
        node = self._root
        for segment in topic.split("."):
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node()
            node = child
        if node.topic is None:
            node.topic = topic
            self._size += 1

    def clear(self) -> None:
        """Remove all topics."""
        self._root = _Node()
        self._size = self._steps = 0

    def matching(self, pattern: str) -> dict[str, None] | None:
        """The topics that a pattern matches; None if the search needs more steps than are left."""
        segments = pattern.split(".")
        last = len(segments) - 1
        found: dict[str, None] = {}
        steps = self._steps
        waiting = [(self._root, 0)]
        while waiting:
            node, index = waiting.pop()
            segment = segments[index]
            if segment in ("*", "**"):
                children = list(node.children.values())
            else:
                child = node.children.get(segment)
                children = [] if child is None else [child]
            steps -= len(children) + 1
            if steps < 0:
                return None
            if index < last:
                waiting += [(child, index + 1) for child in children]
            else:
                some = {child.topic: None for child in children if child.topic is not None}
                steps -= FOUND * len(some)
                found |= some
            if segment == "**":
                waiting += [(child, index) for child in children]
        if steps < 0:
            return None
        self._steps = steps
        return found


class _Node:
    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.topic: str | None = None
