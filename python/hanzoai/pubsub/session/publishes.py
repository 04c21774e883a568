"""Unsettled publishes: their order, limits, policies and rate.

Sent publishes stay in flight until they are answered, with the limits of the queue. When the
connection is lost, they return to the head of the queue if the peer publishes an id once; otherwise
their outcome is unknown. PUB-1 to PUB-6.

When the rate is used up, publishes wait in three lanes: messages, the newest values of keys (policy
`latest`), and background publishes, such as token streams. The lanes take turns, 4:1:1, by smooth
weighted round robin; a message that comes alone goes next. Within a lane the order is that of the
calls.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain, islice, repeat, takewhile
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from hanzoai.pubsub.generated.wire import ErrorFrame, ErrorInfo, PublishFrame, PublishResult
from hanzoai.pubsub.model import trusted
from hanzoai.pubsub.session.events import RATE_LIMITED, rejection
from hanzoai.pubsub.session.ports import Acked, Rejected, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hanzoai.pubsub.generated.wire import PublishedFrame
    from hanzoai.pubsub.session.ports import Context, Outcome, Peer, Publish

Lane: TypeAlias = Literal["messages", "latest", "background"]

_WEIGHTS: Final[Mapping[Lane, int]] = {"messages": 4, "latest": 1, "background": 1}

PAUSE: Final = 1_000
"""Milliseconds to pause after `rate_limited` if the server states no time."""

MAX_PAUSE: Final = 60_000
"""Maximum pause that a server can request, milliseconds."""

SLOW: Final = 1_000
"""Milliseconds of delay from which a publish counts as slowed."""

STALL: Final = 400
"""Milliseconds without an answer from which unanswered publishes use up the budget."""

_ONE: Final = {"message", "ref"}
"""Fields of a frame that publishes one message."""

_ABSENT: Final = dict.fromkeys(("messages", "topic", "data", "message_type", "ttl", "id"))
"""Its other fields."""

_SUPERSEDED: Final = Rejected(
    code="superseded", message="A newer message with the same key took its place."
)

_UNANSWERED: Final = PublishResult(
    error=ErrorInfo(code="outcome_unknown", message="The server sent no result for this message.")
)
"""The result of a message that is missing in the server's answer."""

_STATED: Final = {"id", "timestamp", "seq", "duplicate"}
"""Fields of a result that is not an error."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class PublishState:
    """One publish."""

    number: int  # its place in the order of the calls
    publish: Publish
    ref: str  # on the wire
    results: list[PublishResult | None]  # a slot for each message, None until it is answered
    # Milliseconds for which publishes had been held back when it was last queued; infinite after it
    # counted as slowed.
    since: float
    sent: bool = False  # a part of it may already be published
    doubted: bool = False  # it was in flight when a connection was lost: a rejection proves nothing
    newer: PublishState | None = None  # one of its key, perhaps published before it

    @property
    def lane(self) -> Lane:
        """The lane in which it waits."""
        if self.publish.background:
            return "background"
        return "messages" if self.publish.key is None else "latest"

    def unanswered(self) -> list[int]:
        """Slots without an answer."""
        return [n for n, result in enumerate(self.results) if result is None]


def result_of(frame: PublishedFrame, sent_id: str | None) -> PublishResult:
    """The result in the server's answer to one message, with the sent id if it states none."""
    fields = {
        "id": frame.id or sent_id,
        "timestamp": frame.timestamp,
        "seq": frame.seq,
        "duplicate": frame.duplicate,
        "error": None,
    }
    return trusted(PublishResult, fields, _STATED)


def _count_in(counter: list[int], publish: Publish, sign: int) -> None:
    """Add or subtract a publish from a count of messages and bytes."""
    counter[0] += sign * len(publish.messages)
    counter[1] += sign * publish.size


def _next_turn(
    queue: Iterable[PublishState], saved: Mapping[Lane, int]
) -> tuple[PublishState, dict[Lane, int]]:
    """The publish whose turn it is, and the credit of the lanes after it; `saved`: before it."""
    heads: dict[Lane, PublishState] = {}
    for entry in queue:
        heads.setdefault(entry.lane, entry)
    # Saved credit stays small, so that a single message is sent next.
    credit: dict[Lane, int] = {
        lane: min(saved.get(lane, 0), 1) + weight
        for lane, weight in _WEIGHTS.items()
        if lane in heads
    }
    lane: Lane = max(credit, key=lambda lane: credit[lane])
    credit[lane] -= sum(_WEIGHTS[waiting] for waiting in credit)
    return heads[lane], credit


class Publishes:
    """Unsettled publishes of a session.

    The option `send_queue_messages` limits the waiting messages, and also those in flight;
    `send_queue_bytes` limits their bytes. A single publish may be larger if the queue is empty.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._options = context.options
        self._ports = context.ports
        self._timers = context.timers
        self._queue: OrderedDict[int, PublishState] = OrderedDict()  # by number, in order
        self._flight: dict[str, PublishState] = {}  # by what names it on the wire
        # Those of each key of the policy `latest`, oldest first.
        self._keys: dict[str | None, list[PublishState]] = {}
        self._queued = [0, 0]
        self._flying = [0, 0]
        self._number = 0
        self._credit: dict[Lane, int] = {}
        self._spent = 0  # of the rate, in thousandths of a message
        self._sent_last = False  # a publish was sent after the last update of presence
        # While the server owes answers: ms since one, and messages given up in flight since then.
        self._silence = 0
        self._abandoned = 0
        self.paused = False  # the server has requested a wait, until the timer `pace` fires
        self._held = 0  # ms for which the rate has held publishes back; a pause counts as a second
        self.slowed = 0  # publishes that the server's rate delayed by a second or more

    # ---------------------------------------------------------------- queries

    def __len__(self) -> int:
        """Number of messages without an outcome."""
        return self._queued[0] + self._flying[0]

    @property
    def survives_drop(self) -> bool:
        """Whether publishes remain if the current connection is lost."""
        peer = self._context.peer
        resends = peer is not None and peer.resends
        return bool(self._queue) or (resends and bool(self._flight))

    def has_room(self, publish: Publish, held: list[int] | None = None) -> bool:
        """Whether another publish fits; an empty queue accepts a publish of any size."""
        count, size = held or self._queued
        return not count or (
            count + len(publish.messages) <= self._options.send_queue_messages
            and size + publish.size <= self._options.send_queue_bytes
        )

    def in_flight(self, ref: str | None) -> PublishState | None:
        """The publish in flight with this `ref`."""
        return self._flight.get(ref or "")

    # ---------------------------------------------------------------- from the program

    def publish(self, event: Publish) -> None:
        """Queue a publish, or settle it by its policy; then send what is allowed."""
        count = len(event.messages)
        peer = self._context.peer
        self._number += 1
        if event.policy == "drop_oldest":
            self._make_room(event)
        entry = PublishState(self._number, event, f"p{event.ref}", [None] * count, self._held)
        replaced: PublishState | None = None
        if event.key is not None:
            same = self._keys.setdefault(event.key, [])
            if same and not same[-1].sent:
                replaced = same[-1]
            same.append(entry)
        if (
            not self._queue
            and peer is not None
            and not self.paused
            and peer.burst * 1000 - self._spent >= count * 1000
            and (not self._flight or self.has_room(event, self._flying))
        ):
            self._credit.clear()
            self._send(entry, peer)
            self._pace(peer)
            return
        held = [*self._queued]
        if replaced is not None:
            _count_in(held, replaced.publish, -1)
        if event.policy != "block" and not self.has_room(event, held):
            messages, size = self._queued
            message = f"Messages that wait to be sent: {messages}, with {size} bytes in all."
            self._settle(entry, Rejected(code="queue_full", message=message))
            return
        if replaced is not None:
            # At the end of the queue, a key that changes faster than the queue moves would never be
            # sent.
            entry.number = replaced.number
        self._enqueue(entry)
        if replaced is not None:
            self._settle(replaced, _SUPERSEDED)
        self.flush()

    def expire(self, refs: Iterable[int]) -> None:
        """Give up publishes: their deadlines have passed. None takes the place of another."""
        late = Rejected(code="timeout", message="It could not be sent in time.")
        waiting = {entry.publish.ref: entry for entry in self._queue.values()}
        self._abandoned += self._flying[0]
        for ref in refs:
            entry = self._flight.get(f"p{ref}") or waiting.get(ref)
            if entry is not None:
                self._settle(entry, Unknown() if entry.sent else late)
        self._abandoned -= self._flying[0]
        self.flush()

    # ---------------------------------------------------------------- from the connection

    def connected(self) -> None:
        """A connection is open: send what waits."""
        self._settle_doubted()
        self.flush()

    def lost(self) -> None:
        """The connection is lost: publishes in flight are sent again later."""
        self.paused = False
        self._spent = 0
        for entry in reversed(list(self._flight.values())):
            entry.doubted = True
            self._requeue(entry)
        self._settle_doubted()

    def paced(self) -> None:
        """The timer `pace` fired: the server allows more."""
        interval = self._options.pace_interval
        self._held += PAUSE if self.paused else interval
        self.paused = False
        peer = cast("Peer", self._context.peer)
        # The server counts publishes when it reads them: after a stall, all at once.
        uncounted = self._flying[0] + self._abandoned
        self._silence = self._silence + interval if uncounted else 0
        least = uncounted * 1000 if self._silence > STALL else 0
        # A renewed token may have a lower rate.
        spent = min(self._spent, peer.rate * 1000)
        self._spent = max(least, spent - peer.rate * interval)

    def take_turn(self) -> bool:
        """Whether an update of presence may be sent now: it takes turns with waiting publishes.

        If it may, it counts against the rate.
        """
        peer = cast("Peer", self._context.peer)
        left = peer.burst * 1000 - self._spent
        theirs = not self._sent_last and left <= self._queued[0] * 1000
        if self.paused or theirs or left < 1000:
            return False
        self._spent += 1000 if peer.rate else 0
        self._sent_last = False
        self._pace(peer)
        return True

    def heard(self) -> None:
        """The server sent a frame that is not a message: it reads what was sent."""
        self._silence = self._abandoned = 0

    def published(self, frame: PublishedFrame) -> bool:
        """The server answered; False if the `ref` is unknown."""
        entry = self._flight.get(frame.ref or "")
        if entry is None:
            return False
        publish = entry.publish
        if len(publish.messages) == 1 and frame.results is None:
            # Fast path: nearly every answer is to one message.
            self._settle(entry, Acked((result_of(frame, publish.messages[0].id),)))
            if self._queue:
                self.flush()
            return True
        results = [result_of(frame, None)] if frame.results is None else frame.results
        answers = chain(results, repeat(_UNANSWERED))
        self.take(entry, {slot: next(answers) for slot in entry.unanswered()})
        return True

    def rejected(self, frame: ErrorFrame) -> None:
        """The server rejected what is in flight with the `ref`, if anything."""
        entry = self._flight.get(frame.ref or "")
        if entry is None:
            return
        if frame.code == RATE_LIMITED:
            self.take(entry, {})
        else:
            self._settle(entry, rejection(frame))
            self.flush()

    def pause(self, milliseconds: int | None) -> None:
        """Pause sending for this long after `rate_limited`."""
        self.paused = True
        # With the reserved tenth: otherwise the server stays at its limit.
        self._spent = cast("Peer", self._context.peer).rate * 1000
        self._timers.start("pace", min(MAX_PAUSE, milliseconds or PAUSE))

    def flush(self) -> None:
        """Send what is allowed."""
        peer = self._context.peer
        if peer is None or self.paused:
            return
        while self._queue and (left := peer.burst * 1000 - self._spent) >= 1000:
            # Within the budget, the order of calls counts; lanes take turns beyond it.
            entry = next(iter(self._queue.values()))
            credit: dict[Lane, int] = {}
            if left < self._queued[0] * 1000:
                # With the policy `block`, the queue has no bound, and a search takes its time.
                nearest = islice(self._queue.values(), self._options.send_queue_messages)
                entry, credit = _next_turn(nearest, self._credit)
            publish = entry.publish
            count = len(publish.messages)
            if left < min(count, peer.burst) * 1000 or not self.has_room(publish, self._flying):
                break
            self._credit = credit
            self._drop(entry)
            self._send(entry, peer)
        self._pace(peer)

    def settle_all(self, unsent: Rejected | None = None) -> None:
        """Settle sent publishes as unknown, and unsent ones with a rejection, if given."""
        for entry in list(self._queue.values()):
            outcome = Unknown() if entry.sent else unsent
            if outcome is not None:
                self._settle(entry, outcome)

    # ---------------------------------------------------------------- inside

    def _make_room(self, publish: Publish) -> None:
        """Drop the oldest unsent publishes until another one fits."""
        while not self.has_room(publish):
            oldest = next((each for each in self._queue.values() if not each.sent), None)
            if oldest is None:
                return
            message = "A newer publish needed its place in the queue."
            self._settle(oldest, Rejected(code="dropped", message=message))

    def _send(self, entry: PublishState, peer: Peer) -> None:
        publish = entry.publish
        count = len(publish.messages)
        if self._held - entry.since >= SLOW:
            self.slowed += 1
            entry.since = math.inf
        # A batch beyond the budget is granted in part, which uses up the budget.
        self._spent = min(self._spent + count * 1000, peer.rate * 1000)
        entry.sent = self._sent_last = True
        # Mark it as in flight before sending: a dialect reads its open messages.
        if peer.acks:
            self._flight[entry.ref] = entry
            self._flying[0] += count
            self._flying[1] += publish.size
        if not publish.batch:
            fields = {
                "type": "publish",
                "message": publish.messages[0],
                **_ABSENT,
                "ref": entry.ref,
            }
            self._ports.send(trusted(PublishFrame, fields, _ONE))
        else:
            left = [publish.messages[n] for n in entry.unanswered()]
            self._ports.send(PublishFrame(messages=left, ref=entry.ref))
        if not peer.acks:
            results = tuple(PublishResult(id=message.id) for message in publish.messages)
            self._settle(entry, Acked(results))

    def _pace(self, peer: Peer) -> None:
        """Refill the budget after a while, unless that is scheduled."""
        if peer.rate and self._spent and "pace" not in self._timers:
            self._timers.start("pace", self._options.pace_interval)

    def take(
        self, entry: PublishState, answers: Mapping[int, PublishResult], *, more: bool = False
    ) -> None:
        """Take results by slot; `more`: the server will answer other messages of the publish."""
        pause = 0
        for slot, result in answers.items():
            error = result.error
            if error is not None and error.code == RATE_LIMITED:
                pause = max(pause, error.retry_after_ms or PAUSE)
            elif error is None and result.id is None:
                sent = entry.publish.messages[slot]
                entry.results[slot] = result.model_copy(update={"id": sent.id})
            else:
                entry.results[slot] = result
        if pause:
            self.pause(pause)
        if more:
            return
        if left := entry.unanswered():
            entry.sent = entry.doubted or len(left) < len(entry.results)
            newest = self._keys.get(entry.publish.key, [entry])[-1]
            newer = entry.newer if newest is entry else newest
            if newer is None or len(left) < len(entry.results):
                self._requeue(entry)
            else:
                self._settle(entry, Unknown() if entry.sent else _SUPERSEDED)
        else:
            results = cast("list[PublishResult]", entry.results)  # each slot is answered
            self._settle(entry, Acked(tuple(results)))
        self.flush()

    def _settle_doubted(self) -> None:
        """Sent publishes become unknown if the peer could publish them twice."""
        peer = self._context.peer
        if peer is not None and not peer.resends:
            self.settle_all()

    def _enqueue(self, entry: PublishState) -> None:
        """Add a publish to the queue in the order of the numbers, or in the place of its number."""
        queue, number = self._queue, entry.number
        newest = next(reversed(queue.values()), entry).number
        replaced = queue.get(number)
        queue[number] = entry
        _count_in(self._queued, entry.publish, +1)
        if replaced is not None:
            _count_in(self._queued, replaced.publish, -1)
        elif number < newest:
            # Its place is usually near the head, because it was sent before those that wait.
            earlier = [*takewhile(lambda each: each.number < number, queue.values())]
            for each in (entry, *reversed(earlier)):
                queue.move_to_end(each.number, last=False)

    def _requeue(self, entry: PublishState) -> None:
        """Return a publish from those in flight to its place in the queue."""
        entry.since = max(entry.since, self._held)
        self._drop(entry)
        self._enqueue(entry)

    def _drop(self, entry: PublishState) -> None:
        """Remove a publish from the queue, or from those in flight."""
        publish = entry.publish
        if self._queue.get(entry.number) is entry:
            del self._queue[entry.number]
            _count_in(self._queued, publish, -1)
        elif self._flight.pop(entry.ref, None) is not None:
            _count_in(self._flying, publish, -1)

    def _settle(self, entry: PublishState, outcome: Outcome) -> None:
        self._drop(entry)
        same = self._keys.get(entry.publish.key)
        if same is not None:
            if not isinstance(outcome, Rejected):
                for older in takewhile(lambda each: each is not entry, same):
                    older.newer = entry
            same.remove(entry)
            if not same:
                del self._keys[entry.publish.key]
        self._ports.settle(entry.publish.ref, outcome)
