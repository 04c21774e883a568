"""The bounded queues of the subscriptions: the driver adds entries, one reader takes them.

A queue has three kinds of entries in one order: messages, gaps, presence changes. A full one drops
only messages, oldest first; gaps and presence changes before them move up and are delivered before
the next message.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, cast

from hanzoai.pubsub.errors import PubSubError, SlowConsumer, from_code
from hanzoai.pubsub.runtime.tasks import Waiters
from hanzoai.pubsub.transports import BURST
from hanzoai.pubsub.values import Event, Gap, Message, PresenceChange, SubscriptionStats
from hanzoai.pubsub.wire.runs import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.generated.wire import Denial, Publication
    from hanzoai.pubsub.settings.options import ReceiveQueue

_LARGEST: Final = 2 * 262_144
"""Messages are measured only if the queue could exceed its bytes with messages of this size, or of
the largest received size if that is known.
"""

_BLOW_UP: Final = 6
"""Maximum ratio of a payload's measured size to its size on the wire: `1,` counts as 12."""

_OVERHEAD: Final = 400
"""Bytes of a decoded message in addition to its payload."""

_TOPICS: Final = 1_000
"""Maximum topics with separate gaps while the program does not read; others are combined."""

_NAMED: Final = 5
"""Maximum denied topics in an error, in addition to the first."""

_POSITIONS: Final = 100_000
"""Maximum topics with a position; the one without messages for the longest time is removed."""


class Inbox:
    """Entries of one subscription that the program has not taken yet.

    Args:
        topics: The requested patterns.
        bounds: Messages, bytes and policy.
        overflowed: Called once, when the policy ``error`` ends the subscription.
    """

    def __init__(
        self, topics: tuple[str, ...], bounds: ReceiveQueue, overflowed: Callable[[], None]
    ) -> None:
        self.topics = topics
        self.granted: tuple[str, ...] = ()
        self.denied: tuple[Denial, ...] = ()
        self.joined = False
        self.finished = False
        self.error: PubSubError | None = None
        self.observed = False
        """Whether a call or an iteration raises or reports the error."""
        self.ready: Final[deque[Message]] = deque()
        """Messages of a `Run` that wait before all other entries: take them directly."""
        self._span = "", 0, -1  # topic, first and last position of the `Run`
        self._positions: dict[str, int] = {}
        self.types: frozenset[str] | None = None
        """Types of the messages to keep; None keeps all."""
        self.history: int | None = None
        """Requested messages per topic, until the server answers."""
        self.presence: Inbox | None = None
        """Gets the presence changes instead of this inbox, and ends with it."""
        self.policy: Literal["gap", "block", "error"] = bounds.policy
        self._most = bounds.messages
        self._most_bytes = bounds.bytes
        self._unmeasured: float = min(bounds.messages - 1, bounds.bytes // _LARGEST)
        """Number of entries that fit, whatever their sizes: with fewer, nothing is measured."""
        self._allowed = bounds.messages
        """Current limit of the queue: a replay may exceed `_most`."""
        self._overflowed = overflowed
        self._entries: deque[Event] = deque()
        self._sizes: deque[int] = deque()  # of the oldest entries; the rest are not measured yet
        self._bytes = 0
        self._front: dict[tuple[type, str], Gap | PresenceChange] = {}
        self._skipped: dict[str, int] = {}  # positions of other types behind the newest entry
        self._received = self._dropped = self._gaps = 0
        self._waiters = Waiters()
        self.wait = self._waiters.wait
        """Wait for an entry, an answer, room or the end."""

    # ------------------------------------------------------------ the driver's side

    def expect(self, largest: float) -> None:
        """Set the maximum size of a message on the wire; infinite if unknown."""
        each = _LARGEST if largest == math.inf else _OVERHEAD + _BLOW_UP * largest
        self._unmeasured = min(self._most - 1, self._most_bytes // each)

    def put(self, messages: Sequence[Message], many: bool = False) -> bool:
        """Add messages; the policy applies above the limits.

        Args:
            messages: The messages.
            many: They arrived together from the log, and may exceed the limits: they were requested
                and are already in memory; dropping some would cause a gap that the program cannot
                prevent.

        Returns:
            Whether the next burst might reach a bound.
        """
        if self.finished:
            return False
        self._received += len(messages)
        entries, ready = self._entries, self.ready
        if type(messages) is Run and self.empty:
            self._put_back()
            ready.extend(messages)
            self._span = messages[0].topic, messages.first, messages.first + len(ready) - 1
        else:
            entries.extend(messages)
        if many:
            self._measure()
            self._allowed = max(self._allowed, len(entries))
        elif len(entries) + len(ready) > self._unmeasured:
            self._measure()
            self._apply_policy()
        self._waiters.notify()
        waiting = len(entries) + len(ready)
        return many or (not self.finished and waiting > self._unmeasured - BURST)

    def wanted(self, messages: Iterable[Message]) -> list[Message]:
        """The messages of wanted types; others only move the position, after those before them."""
        if self.types is None:
            return list(messages)
        found: list[Message] = []
        for message in messages:
            if message.type in self.types:
                found.append(message)
            elif message.seq is not None and not self.finished:
                if message.topic in self._skipped or len(self._skipped) < _POSITIONS:
                    self._skipped[message.topic] = message.seq
                if not found and self.empty:
                    self._pass_skipped()
        return found

    def put_other(self, entry: Gap | PresenceChange, many: bool = False) -> None:
        """Add a gap or a presence change, in its place; `many` as in `put`."""
        if self.finished:
            return
        if isinstance(entry, Gap):
            self._gaps += 1
        self._entries.append(entry)
        self._measure()
        if many:
            self._allowed = max(self._allowed, len(self._entries))
        else:
            self._apply_policy()
        self._waiters.notify()

    def join(self, granted: tuple[str, ...], denied: tuple[Denial, ...]) -> None:
        """The server has answered."""
        self.granted = granted
        self.denied = denied
        self.joined = True
        self._waiters.notify()

    def finish(self, error: PubSubError | None = None) -> None:
        """The subscription has ended; waiting entries can still be taken."""
        if not self.finished:
            self.finished = True
            self.error = error
            self._waiters.notify()
            if self.presence is not None:
                self.presence.finish()

    def clear(self) -> None:
        """Drop waiting entries: the program has ended the subscription."""
        self._put_back()
        self._dropped += self._queued
        self._entries.clear()
        self._sizes.clear()
        self._front.clear()
        self._bytes = 0
        self._waiters.notify()

    # ------------------------------------------------------------ the program's side

    async def answered(self, clock: Clock, seconds: float | None = None) -> bool:
        """Wait until the server has answered, or the subscription has ended.

        Returns:
            Whether it has; False if the time has passed before.
        """
        return await self._waiters.until(lambda: self.joined or self.finished, clock, seconds)

    def take(self) -> Event | None:
        """Take the next entry, or None if the queue is empty."""
        if self.ready:
            return self.ready.popleft()
        if self._span[0]:
            self._put_back()
        if self._front:
            entry: Event = self._front.pop(next(iter(self._front)))
            self._passed(entry)
            if self._skipped and not self._entries and not self._front:
                self._pass_skipped()
            return entry
        if not self._entries:
            return None
        entry = self._entries.popleft()
        if type(entry) is Message:
            if (seq := entry.seq) is not None:
                topic, positions = entry.topic, self._positions
                if topic in positions:
                    positions[topic] = seq
                else:
                    self._set_position(topic, seq)
        else:
            self._passed(entry)
        if self._sizes or self._skipped:
            self._account()
        return entry

    def peek(self) -> Event | None:
        """The entry that ``take`` would return."""
        if self._front:
            return next(iter(self._front.values()))
        waiting = self.ready or self._entries
        return waiting[0] if waiting else None

    @property
    def empty(self) -> bool:
        """Whether the queue is empty."""
        return not (self.ready or self._entries or self._front)

    @property
    def positions(self) -> dict[str, int]:
        """Position of the last message taken of each topic. A `Run` that waits ends."""
        self._put_back()
        return self._positions

    @property
    def full(self) -> bool:
        """Whether a bound is reached, or messages were dropped; the program should run then."""
        return (
            len(self._entries) >= self._most or self._bytes >= self._most_bytes or bool(self._front)
        )

    def stats(self) -> SubscriptionStats:
        """The current counters."""
        self._measure()
        queued = self._queued
        return SubscriptionStats(
            received=self._received,
            handled=self._received - self._dropped - queued,
            dropped=self._dropped,
            queued=queued,
            queued_bytes=self._bytes,
            gaps=self._gaps,
        )

    # ------------------------------------------------------------ inside

    @property
    def _queued(self) -> int:
        return sum(type(entry) is Message for entry in self._entries)

    def _account(self) -> None:
        """The oldest entry was taken. Without sizes, a queue is short, and has room."""
        if self._sizes:
            self._bytes -= self._sizes.popleft()
        if self._skipped and not self._entries:
            self._pass_skipped()
        if self._allowed > self._most:
            self._allowed = max(self._most, len(self._entries))
        if self.policy == "block" and not self.full:
            self._waiters.notify()

    def _measure(self) -> None:
        """Measure entries up to the newest. A queue that stays short is never measured."""
        self._put_back()
        entries, sizes = self._entries, self._sizes
        for entry in islice(entries, len(sizes), None):
            size = _OVERHEAD + (measure(entry.data) if type(entry) is Message else 0)
            sizes.append(size)
            self._bytes += size

    def _put_back(self) -> None:
        """Set the position of the `Run`, and put the rest of it before the other entries."""
        topic, first, last = self._span
        taken = last - len(self.ready)
        if taken >= first:
            self._set_position(topic, taken)
        self._span = "", 0, -1
        self._entries.extendleft(reversed(self.ready))
        self.ready.clear()

    @property
    def _is_over(self) -> bool:
        return len(self._entries) > self._allowed or self._bytes > self._most_bytes

    def _apply_policy(self) -> None:
        """Apply the policy to a queue that exceeds its limits."""
        if self.policy == "block" or not self._is_over:
            return
        if self.policy == "error":
            topic = self.topics[0] if len(self.topics) == 1 else None
            self.finish(
                SlowConsumer(
                    "The queue of this subscription is full: the program reads too slowly.",
                    topic=topic,
                    remedy="Read faster, raise `queue`, or choose the policy `gap` or `block`.",
                )
            )
            self._overflowed()
            return
        while self._is_over and len(self._entries) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        entry = self._entries.popleft()
        self._bytes -= self._sizes.popleft()
        self._allowed = max(self._most, min(self._allowed, len(self._entries)))
        if type(entry) is Message:
            self._dropped += 1
            seq = entry.seq
            self._gaps += self._to_front(Gap(entry.topic, seq, seq, 1, "slow_consumer"))
        elif isinstance(entry, Gap):
            self._to_front(entry)
        elif isinstance(entry, PresenceChange):
            # Each change contains all members, so the latest one of a topic is enough.
            self._front[PresenceChange, entry.topic] = entry

    def _to_front(self, gap: Gap) -> bool:
        """Keep a gap before the oldest message, one per topic; return whether it is a new one."""
        topic = gap.topic
        if (Gap, topic) not in self._front and len(self._front) >= _TOPICS:
            topic = " ".join(self.topics)
            gap = Gap(topic, None, None, gap.missed, gap.reason)
        before = self._front.get((Gap, topic))
        if isinstance(before, Gap):
            both = before.missed is not None and gap.missed is not None
            missed = (before.missed or 0) + (gap.missed or 0) if both else None
            gap = Gap(topic, before.from_, gap.to, missed, "slow_consumer")
        self._front[Gap, topic] = gap
        return before is None

    def _passed(self, entry: Event) -> None:
        if isinstance(entry, Gap) and entry.to is not None:
            self._set_position(entry.topic, entry.to)

    def _pass_skipped(self) -> None:
        for topic, seq in self._skipped.items():
            if seq > self._positions.get(topic, -1):
                self._set_position(topic, seq)
        self._skipped.clear()

    def _set_position(self, topic: str, seq: int) -> None:
        positions = self._positions
        if topic not in positions and len(positions) >= _POSITIONS:
            del positions[next(iter(positions))]
        positions[topic] = seq


def denial_error(denials: Sequence[Denial], topics: tuple[str, ...]) -> PubSubError:
    """The error of a subscription without a granted topic."""
    if not denials:
        return from_code("forbidden", "The server granted none of the topics.", topic=topics[0])
    first, *others = denials
    message = first.message or f"Rejected: {first.topic}."
    error = from_code(first.code, message, topic=first.topic)
    if not others:
        return error
    names = ", ".join(denial.topic for denial in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    stop = "" if error.message.endswith((".", "!", "?")) else "."
    return from_code(
        first.code, f"{error.message}{stop} Also rejected: {names}{more}.", topic=first.topic
    )


def measure(value: object) -> int:
    """Approximate JSON bytes of a payload: characters of strings, 8 per other value, 4 per item."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        total = 0
        for key, item in cast("dict[str, object]", value).items():
            total += len(key) + 4 + (len(item) if isinstance(item, str) else measure(item))
        return total
    if isinstance(value, list):
        return sum(4 + measure(item) for item in cast("list[object]", value))
    return 8


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
