"""Delivers messages, gaps, presence and answers to the subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.runtime.inbox import denial_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hanzoai.pubsub.errors import PubSubError
    from hanzoai.pubsub.generated.wire import Denial, Message, Publication
    from hanzoai.pubsub.runtime.inbox import Inbox
    from hanzoai.pubsub.values import Gap, PresenceChange

_OWN_IDS: Final = 10_000
"""Maximum remembered ids of own messages with ``echo=False``, which may be in transit."""


class Deliveries:
    """The subscriptions of one client, and the entries of their inboxes."""

    def __init__(self) -> None:
        self._inboxes: dict[int, Inbox] = {}
        self.near_limit: Final[set[Inbox]] = set()  # the messages of one burst might fill these
        # An inbox is full, or has received many entries at once: the tasks that read the inboxes
        # have to run before the next frame.
        self.give_way = False
        self.largest: float = 0  # bytes on the wire of the largest message; infinite if unknown
        self.user: str | None = None  # sender of own messages, if the server tracks ids by sender
        self._own: dict[tuple[str, str | None], None] = {}

    # ------------------------------------------------------------ routing

    def add(self, sub: int, inbox: Inbox) -> None:
        """Route entries of the session to a subscription."""
        inbox.expect(self.largest)
        self._inboxes[sub] = inbox
        self.near_limit.add(inbox)

    def remove(self, sub: int) -> bool:
        """Stop routing to it. Returns whether anything was routed to it."""
        inbox = self._inboxes.pop(sub, None)
        if inbox is None:
            return False
        self.near_limit.discard(inbox)
        return True

    def remember_own(self, messages: Iterable[Publication], unsettled: int) -> None:
        """Skip own messages when they arrive: ``echo`` is off. Keep `unsettled` earlier ones."""
        own = self._own
        for one in messages:
            own[one.topic, one.id] = None
        while len(own) > _OWN_IDS + unsettled:
            del own[next(iter(own))]

    def expect(self, largest: float) -> None:
        """Raise `largest`. With this bound, the inboxes need not measure each message."""
        self.largest = largest
        for inbox in self._inboxes.values():
            inbox.expect(largest)
            self.near_limit.add(inbox)

    def blocking(self) -> list[Inbox]:
        """The full inboxes with the policy ``block``."""
        return [
            inbox
            for inbox in self._inboxes.values()
            if inbox.full and inbox.policy == "block" and not inbox.finished
        ]

    # ------------------------------------------------------------ entries

    def deliver(self, sub: int, messages: Sequence[Message], many: bool = False, /) -> None:
        """See ``Ports``."""
        inbox = self._inboxes.get(sub)
        if inbox is None:
            return
        if self._own or inbox.types is not None:
            messages = inbox.wanted(one for one in messages if not self._is_own(one))
        if inbox.put(messages, many):
            self.near_limit.add(inbox)
            if many or inbox.full:
                self.give_way = True
        elif self.near_limit:
            self.near_limit.discard(inbox)

    def _is_own(self, message: Message) -> bool:
        if (message.topic, message.id) not in self._own:
            return False
        # Other senders may use the same id.
        return self.user is None or message.sender is None or message.sender.id == self.user

    def gap(self, sub: int, gap: Gap, many: bool = False, /) -> None:
        """See ``Ports``."""
        inbox = self._inboxes.get(sub)
        if inbox is not None:
            self.near_limit.add(inbox)
            inbox.put_other(gap, many)
            self.give_way |= inbox.full

    def presence_changed(self, sub: int, change: PresenceChange, /) -> None:
        """See ``Ports``."""
        inbox = self._inboxes.get(sub)
        if inbox is not None:
            self.near_limit.add(inbox)
            reader = inbox.presence or inbox
            reader.put_other(change)
            self.give_way |= reader.full

    def joined(self, sub: int, topics: tuple[str, ...], denied: tuple[Denial, ...]) -> Inbox | None:
        """The server has answered; without a granted topic it ends. Returns the inbox, if any."""
        inbox = self._inboxes.get(sub)
        if inbox is None:
            return None
        inbox.join(topics, denied)
        if not topics:
            inbox.finish(denial_error(denied, inbox.topics))
            self.remove(sub)
        return inbox

    def finish(self, error: PubSubError | None) -> None:
        """The client has ended."""
        for inbox in self._inboxes.values():
            inbox.finish(error)
        self._inboxes.clear()
        self.near_limit.clear()
