"""Subscribers of one listener by topic, for messages that stay on it.

Other listeners cannot carry topics outside HIP-56's alphabet and payloads above `max_payload`, so
these do not go through the hub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

_S = TypeVar("_S")


class LocalTopics(Generic[_S]):
    """Subscribers by the bytes of the topic."""

    def __init__(self) -> None:
        self._topics: dict[bytes, dict[_S, None]] = {}
        self._everything: dict[_S, None] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, subscriber: _S, topic: bytes) -> None:
        """Subscribe to one topic."""
        self._topics.setdefault(topic, {})[subscriber] = None

    def add_everything(self, subscriber: _S) -> None:
        """Subscribe to all topics."""
        self._everything[subscriber] = None

    def discard(self, subscriber: _S, topic: bytes) -> None:
        """End a subscription, if there is one."""
        subscribers = self._topics.get(topic)
        if subscribers is not None:
            subscribers.pop(subscriber, None)
            if not subscribers:
                del self._topics[topic]

    def discard_everything(self, subscriber: _S) -> None:
        """End a subscription to all topics, if there is one."""
        self._everything.pop(subscriber, None)

    def subscribers(self, topic: bytes) -> Iterator[tuple[_S, bool]]:
        """Each subscriber once, and whether it subscribed to this topic by name."""
        named = self._topics.get(topic, {})
        for subscriber in tuple(named):
            yield subscriber, True
        for subscriber in tuple(self._everything):
            if subscriber not in named:
                yield subscriber, False
