"""Requests to subscribe that the server has not answered, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import SubscribedFrame
    from hanzoai.pubsub.session.join import Join

MAX_ASKS: Final = 10_000
"""Requests remembered; a peer that echoes no `ref` may owe answers for ever."""


class Asks:
    """Unanswered requests by `ref`, which a plain peer never sees (H-042)."""

    __slots__ = ("_asks", "_number")

    def __init__(self) -> None:
        self._asks: dict[str, tuple[Join, frozenset[str]]] = {}
        self._number = 0

    def next_ref(self, kind: str) -> str:
        """A `ref` that was not used before."""
        self._number += 1
        return f"{kind}{self._number}"

    def add(self, join: Join, *, echoed: bool) -> str:
        """A request for all patterns of a subscription; its `ref`.

        Where the peer echoes it, a subscription has one request at a time, and none is forgotten.
        """
        if not echoed and len(self._asks) >= MAX_ASKS:
            del self._asks[next(iter(self._asks))]
        ref = self.next_ref("s")
        self._asks[ref] = (join, frozenset(join.patterns))
        return ref

    def get(self, ref: str) -> Join | None:
        """Who asked."""
        found = self._asks.get(ref)
        return None if found is None else found[0]

    def drop(self, ref: str) -> None:
        """It is answered, or nobody waits for the answer."""
        self._asks.pop(ref, None)

    def clear(self) -> None:
        """The connection is gone, and the answers with it."""
        self._asks.clear()

    def answered_by(self, frame: SubscribedFrame) -> str | None:
        """The request that a `subscribed` answers: by its `ref`, or the oldest of its topics."""
        if frame.ref is not None:
            return frame.ref if frame.ref in self._asks else None
        topics = frozenset(frame.topics)
        for ref, (_, asked) in self._asks.items():
            if asked == topics:
                return ref
        for ref, (_, asked) in self._asks.items():
            if topics and topics < asked:
                return ref
        return None

    def refused_by(self, topic: str | None) -> str | None:
        """The request that an `error` without a `ref` is about: the oldest that names its topic."""
        if topic is None:
            return next(iter(self._asks), None)
        return next((ref for ref, (_, asked) in self._asks.items() if topic in asked), None)
