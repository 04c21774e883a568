"""Presence of a session, whose changes a subscription to each pattern receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.wire import PresenceSnapshotFrame
from hanzoai.pubsub.session.cursor import SeqCursor
from hanzoai.pubsub.session.ports import Context, Subscribe
from hanzoai.pubsub.session.presence import Presence
from hanzoai.pubsub.session.routes import SubscriptionState
from hanzoai.pubsub.settings.session import SessionOptions
from tests.traces.effects import PresenceChanged
from tests.traces.recorder import Log

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import Message, PresenceMember


class WatchedPresence:
    """Presence of topics; each call returns the changes that it has caused."""

    def __init__(self, *patterns: str) -> None:
        self._log = Log()
        self._context = Context(SessionOptions(), self._log, lambda: 0.0)
        self.presence = Presence(self._context)
        self._states = {pattern: self.state(pattern) for pattern in patterns}
        for state in self._states.values():
            self.presence.add(state)

    def state(self, *patterns: str, presence: bool = True) -> SubscriptionState:
        """A subscription that is not added."""
        request = Subscribe(1, patterns, presence=presence)
        return SubscriptionState(request, SeqCursor(request, self._context.options))

    def snapshot(self, topic: str, members: list[PresenceMember]) -> list[PresenceChanged]:
        frame = PresenceSnapshotFrame.model_construct(topic=topic, members=members)  # any topic
        self.presence.snapshot(frame)
        return self.changes()

    def message(self, message: Message) -> list[PresenceChanged]:
        self.presence.message(message)
        return self.changes()

    def expire(self) -> list[PresenceChanged]:
        self.presence.expire()
        return self.changes()

    def lists(self, pattern: str = "**") -> list[PresenceChanged]:
        """The members of the topics of a pattern, as a new subscription receives them."""
        self.presence.show(self.state(pattern), ())
        return self.changes()

    def end(self, pattern: str) -> None:
        """End the subscription to a pattern."""
        self.presence.remove(self._states.pop(pattern), [pattern])

    def changes(self) -> list[PresenceChanged]:
        return [entry for entry in self._log.take() if isinstance(entry, PresenceChanged)]
