"""Topics, found by pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Node:
    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.topic: str | None = None


class TopicTree:
    """A set of topics, as a tree by segment.

    A search follows the segments of the pattern, so its cost depends on the topics that match, or
    begin as the pattern does, and not on all of them.
    """

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, topic: str) -> None:
        """Add a topic."""
        node = self._root
        for segment in topic.split("."):
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node()
            node = child
        node.topic = topic

    def discard(self, topic: str) -> None:
        """Remove a topic, and the nodes that only it needs."""
        path: list[tuple[_Node, str]] = []
        node = self._root
        for segment in topic.split("."):
            child = node.children.get(segment)
            if child is None:
                return
            path.append((node, segment))
            node = child
        node.topic = None
        for parent, segment in reversed(path):
            child = parent.children[segment]
            if child.children or child.topic is not None:
                return
            del parent.children[segment]

    def matching(self, pattern: str) -> Iterator[str]:
        """The topics that a pattern matches, in any order.

        A node is visited once, with all positions in the pattern that it can have reached, so that
        `**.**.**` causes no exponential work.
        """
        wanted = pattern.split(".")
        stack: list[tuple[_Node, frozenset[int]]] = [(self._root, frozenset((0,)))]
        while stack:
            node, places = stack.pop()
            if len(wanted) in places and node.topic is not None:
                yield node.topic
            if wanted[-1] == "**" and len(wanted) - 1 in places:
                for child in node.children.values():
                    yield from _topics_below(child)
                continue
            open_places = [place for place in places if place < len(wanted)]
            if any("*" in wanted[place] for place in open_places):
                children = list(node.children.items())
            else:
                names = {wanted[place] for place in open_places}
                children = [(name, node.children[name]) for name in names if name in node.children]
            for segment, child in children:
                if following := _following(wanted, open_places, segment):
                    stack.append((child, following))


def _topics_below(node: _Node) -> Iterator[str]:
    """The topics of a node and of all nodes below it."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node.topic is not None:
            yield node.topic
        stack.extend(node.children.values())


def _following(wanted: list[str], places: list[int], segment: str) -> frozenset[int]:
    """The positions after a segment."""
    found: set[int] = set()
    for place in places:
        one = wanted[place]
        if one == "**":
            found.add(place)
        if one in (segment, "*", "**"):
            found.add(place + 1)
    return frozenset(found)
