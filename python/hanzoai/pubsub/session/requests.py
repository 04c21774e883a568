"""Requests to subscribe that the server has not answered, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import SubscribedFrame
    from hanzoai.pubsub.session.subscription_state import SubscriptionState

MAX_REQUESTS: Final = 10_000
"""Requests remembered; a peer that echoes no `ref` may owe answers forever."""


class Requests:
    """Unanswered requests by `ref`, which a plain peer never sees (H-042)."""

    __slots__ = ("_number", "_open")

    def __init__(self) -> None:
        self._open: dict[str, tuple[SubscriptionState, frozenset[str]]] = {}
        self._number = 0

    def next_ref(self, kind: str) -> str:
        """A `ref` that was not used before."""
        self._number += 1
        return f"{kind}{self._number}"

    def add(self, state: SubscriptionState, *, echoed: bool) -> str:
        """A request for all patterns of a subscription; its `ref`.

        Where the peer echoes it, a subscription has one request at a time, and none is forgotten.
        """
        if not echoed and len(self._open) >= MAX_REQUESTS:
            del self._open[next(iter(self._open))]
        ref = self.next_ref("s")
        self._open[ref] = (state, frozenset(state.patterns))
        return ref

    def get(self, ref: str) -> SubscriptionState | None:
        """The subscription that it is for."""
        found = self._open.get(ref)
        return None if found is None else found[0]

    def drop(self, ref: str) -> None:
        """It is answered, or no one waits for the answer."""
        self._open.pop(ref, None)

    def clear(self) -> None:
        """The connection is gone, and the answers with it."""
        self._open.clear()

    def answered_by(self, frame: SubscribedFrame) -> str | None:
        """The request that a `subscribed` answers: by its `ref`, or the oldest of its topics."""
        if frame.ref is not None:
            return frame.ref if frame.ref in self._open else None
        topics = frozenset(frame.topics)
        for ref, (_, asked) in self._open.items():
            if asked == topics:
                return ref
        for ref, (_, asked) in self._open.items():
            if topics and topics < asked:
                return ref
        return None

    def refused_by(self, topic: str | None) -> str | None:
        """The request that an `error` without a `ref` is about: the oldest that names its topic."""
        if topic is None:
            return next(iter(self._open), None)
        return next((ref for ref, (_, asked) in self._open.items() if topic in asked), None)
