"""A raw reader that subscribes to names and patterns of the same topics, and ends subscriptions.

Each topic that it covers has its own subscription in the history. If the reader requests a topic
again `after` its last position, or without a position `since` the time of its answer, this
subscription continues; otherwise, a new one begins. Unlike the other readers, it accepts no skipped
position.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.checker import matches
from tests.chaos.plan import MIXED
from tests.chaos.readers import Reconnecting, talk
from tests.chaos.records import Gap, Message, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.chaos.readers import Talk
    from tests.chaos.records import History

Json = dict[str, Any]
CHANGES_WITHIN: Final = 0.15
"""Maximum seconds between two changes."""
PATTERNS: Final = ("team.blue.*", "team.**")
RETAINED: Final = (0, 3, 50)
"""Numbers of past messages that it requests."""


@dataclass(slots=True)
class _Request:
    """A request that is not answered yet.

    Attributes:
        ref: Its reference.
        at: Time in seconds of the run.
        fresh: Topics that no other subscription of this connection covers.
        after: Requested positions.
        since: Topics without a position that are requested by time.
        past: Whether past messages are requested.
        begun: Whether the first part of the answer has arrived.
        answered: Set by the answer.
        retry_after: Seconds that the server asks to wait.
    """

    ref: str
    at: float = 0.0
    fresh: Sequence[str] = ()
    after: Mapping[str, int] = field(default_factory=dict[str, int])
    since: Sequence[str] = ()
    past: bool = False
    begun: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    retry_after: float = 0.0


class Roamer(Reconnecting):
    """See above.

    Args:
        rests: What it subscribes to when it is no longer restless.
        readable: Patterns that it may read.
        topics: All topics of the run.
        history: Records the events.
        *given: See `Reconnecting`.
    """

    transport = "websocket"

    def __init__(
        self,
        rests: Sequence[str],
        readable: tuple[str, ...],
        topics: Sequence[str],
        history: History,
        *given: Any,
    ) -> None:
        super().__init__(*given)
        self._rests = rests
        self._readable = readable
        self._topics = topics
        self._history = history
        self._client_id: str | None = None
        self._held: list[str] = []
        # What it requested when it left at the answer.
        self._again: Sequence[str] = ()
        self._request = _Request("")
        self._requests = 0
        # By topic: its latest subscription, the current one, and the last position, if it has one.
        self._former: dict[str, Subscription] = {}
        self._current: dict[str, Subscription] = {}
        self._last: dict[str, int] = {}
        # By topic: the time of the answer that covers it, Unix ms.
        self._answers: dict[str, int] = {}
        self._members: dict[str, dict[str, str]] = {}

    @property
    def rests(self) -> bool:
        """Whether it has the subscriptions of the end."""
        return set(self._held) == set(self._rests)

    def look(self) -> None:
        """Record the members of each topic, as the last snapshot and later changes show them."""
        for topic, subscription in self._current.items():
            others = dict(self._members.get(topic, {}))
            # A client does not receive its own join.
            others.pop(self._client_id or "", None)
            own = [self.client.name] if topic in self._held else []
            subscription.members = {topic: [*others.values(), *own]}

    async def _attend(self) -> None:
        async with talk(self._port) as socket:
            known = None if self._whims.one_in(4) else self._client_id
            self._client_id = await socket.auth(self._token, known)
            roaming = asyncio.ensure_future(self._roam(socket))
            try:
                while True:
                    self._frame(await socket.next())
            finally:
                roaming.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await roaming
                self._held.clear()
                self._end(list(self._current))

    # ------------------------------------------------------------ requests

    async def _roam(self, socket: Talk) -> None:
        if self._again and self._whims.restless:
            again, self._again = self._again, ()
            await self._subscribe(socket, again, "after")
        while self._whims.restless:
            await asyncio.sleep(self._whims.seconds(0, CHANGES_WITHIN))
            if self._held and self._whims.one_in(3):
                await self._unsubscribe(socket, self._whims.some(self._held, 1))
                continue
            options = PATTERNS if self._whims.one_in(2) else (*MIXED, *MIXED, *self._topics)
            wanted = [each for each in self._whims.some(options, 3) if each not in self._held]
            if wanted:
                how = self._whims.some(("after", "after", "history", "nothing"), 1)[0]
                await self._subscribe(socket, wanted, how)
        while not self.rests:
            if more := [each for each in self._held if each not in self._rests]:
                await self._unsubscribe(socket, more)
            else:
                missing = [each for each in self._rests if each not in self._held]
                await self._subscribe(socket, missing, "after")

    async def _subscribe(self, socket: Talk, wanted: Sequence[str], how: str) -> None:
        requested = [topic for topic in self._topics if _any_matches(wanted, topic)]
        fresh = [topic for topic in requested if not _any_matches(self._held, topic)]
        frame: Json = {"type": "subscribe", "topics": wanted}
        request = self._ask(fresh)
        if how == "after":
            known = {topic: self._last[topic] for topic in requested if topic in self._last}
            frame["after"] = request.after = known
            request.since = [t for t in fresh if t not in known and t in self._answers]
            if request.since:
                request.past = True
                frame["since"] = min(self._answers[topic] for topic in request.since)
        elif how == "history":
            frame["history"] = RETAINED[self._requests % len(RETAINED)]
            request.past = True
        for topic in fresh:
            self._members.pop(topic, None)
        await self._send(socket, frame)

    async def _unsubscribe(self, socket: Talk, wanted: Sequence[str]) -> None:
        self._ask(())
        await self._send(socket, {"type": "unsubscribe", "topics": wanted})

    def _ask(self, fresh: Sequence[str]) -> _Request:
        self._requests += 1
        self._request = _Request(f"r{self._requests}", self._now(), fresh)
        return self._request

    async def _send(self, socket: Talk, frame: Json) -> None:
        request = self._request
        await socket.send({**frame, "ref": request.ref})
        await request.answered.wait()
        await asyncio.sleep(request.retry_after)

    # ------------------------------------------------------------ frames

    def _frame(self, frame: Json) -> None:
        ours = frame.get("ref") == self._request.ref
        match frame:
            case {"type": "subscribed"} if ours:
                self._subscribed(frame)
            case {"type": "unsubscribed", "topics": ended} if ours:
                self._held = [each for each in self._held if each not in ended]
                self._end([t for t in self._current if not _any_matches(self._held, t)])
                self._request.answered.set()
            case {"type": "error"} if ours:
                self._request.retry_after = frame.get("retry_after_ms", 100) / 1000
                self._request.answered.set()
            case {"type": "message", "message": envelope}:
                self._take(envelope)
            case {"type": "presence.snapshot", "topic": topic, "members": members}:
                self._members[topic] = {one["client_id"]: one["user_id"] for one in members}
            case _:
                pass

    def _subscribed(self, frame: Json) -> None:
        request = self._request
        if not request.begun:
            request.begun = True
            for topic in request.fresh:
                self._begin(topic, request)
            for reason, topics in (
                ("log_reset", frame.get("reset") or ()),
                ("history_trimmed", frame.get("truncated") or ()),
            ):
                for topic in topics:
                    self._gap(topic, reason)
        for envelope in frame.get("history") or ():
            # The other topics go on as before.
            if envelope["topic"] in request.fresh:
                self._take(envelope)
        if frame.get("more"):
            return
        for topic, position in (frame.get("positions") or {}).items():
            if topic in request.fresh:
                self._last[topic] = max(position, self._last.get(topic, 0))
        for topic in request.fresh:
            if topic not in request.since:
                self._answers[topic] = frame["timestamp"]
        self._held += frame["topics"]
        self.client.state, self.client.found = "connected", self.transport
        request.answered.set()
        self._again = frame["topics"]
        self._whims.leave_at_answer()
        self._again = ()

    def _begin(self, topic: str, request: _Request) -> None:
        former = self._former.get(topic)
        if former is not None and (topic in request.after or topic in request.since):
            former.left = None
            former.past |= request.past
            self._current[topic] = former
            return
        self._last.pop(topic, None)
        now = self._now()
        # The time of the run may have started since the request.
        asked = min(request.at, now)
        found = Subscription(
            self.client.name, (topic,), self._readable, asked, now, past=request.past
        )
        self._history.subscriptions.append(found)
        self._current[topic] = self._former[topic] = found

    def _end(self, topics: Iterable[str]) -> None:
        for topic in topics:
            found = self._current.pop(topic)
            found.left = self._now()
            found.members = {}
            self._members.pop(topic, None)

    def _gap(self, topic: str, reason: str) -> None:
        found = self._current.get(topic)
        if found is not None:
            last = self._last.pop(topic, None)
            first = None if last is None else last + 1
            found.received.append(Gap(self._now(), topic, first, None, None, reason))

    def _take(self, envelope: Mapping[str, Any]) -> None:
        topic, kind = envelope["topic"], str(envelope.get("type", ""))
        if kind.startswith("presence."):
            data, members = envelope["data"], self._members.setdefault(topic, {})
            members.pop(data["client_id"], None)
            if kind != "presence.leave":
                members[data["client_id"]] = data["user_id"]
            return
        found, seq = self._current.get(topic), envelope["seq"]
        if found is not None:
            self._last[topic] = max(seq, self._last.get(topic, 0))
        elif topic in self._request.fresh and not self._request.answered.is_set():
            # Messages before the answer are in the replay, too.
            return
        else:
            found = Subscription(self.client.name, (), self._readable, self._now(), self._now())
            self._history.subscriptions.append(found)
        sender = (envelope.get("sender") or {}).get("id")
        found.received.append(
            Message(self._now(), topic, envelope["id"], seq, sender, envelope.get("data"))
        )


def _any_matches(patterns: Iterable[str], topic: str) -> bool:
    return any(matches(each, topic) for each in patterns)
