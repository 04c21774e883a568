"""Positions of logs, for readers by position.

A request can wait until a position changes. A held request costs a future and an entry in two
tables, no task. Its topics stay joined for a while after the answer, because the caller usually
asks again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from pubsub_server.backplane import Standing
from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import PositionList
from pubsub_server.shared.denials import denial

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.hub.core import Core
    from pubsub_server.hub.interests import Interests
    from pubsub_server.interfaces import Identity
    from pubsub_server.shared.requests import PositionsRequest

ANSWER_TOPICS: Final = 10_000
"""Maximum topics of one answer."""
PIECE: Final = 500
"""Maximum topics of one backplane query."""
TOPIC_SECONDS: Final = 3e-6
"""Expected seconds for one topic; see `turns`."""
LINGER: Final = 10.0
"""Seconds for which a topic or pattern stays joined after its last request."""
LINGERING_MAX: Final = 10_000
RETRY_MS: Final = 1_000
"""Retry time for a caller with too many held requests, milliseconds."""


class _Held:
    """A held request."""

    __slots__ = ("after", "allowed", "woken")

    def __init__(self, after: Mapping[str, int], allowed: Callable[[str], bool]) -> None:
        self.after = after
        self.allowed = allowed
        self.woken = asyncio.Event()

    def check(self, topic: str, seq: int) -> None:
        if self.after.get(topic) != seq and not self.woken.is_set() and self.allowed(topic):
            self.woken.set()

    def wake(self, gone: object = None) -> None:
        self.woken.set()


class Positions:
    """Answers requests for positions, and holds them.

    Args:
        core: The parts of the hub.
        interests: Topics and patterns that this node receives.
    """

    def __init__(self, core: Core, interests: Interests) -> None:
        self._core = core
        self._interests = interests
        self._held: dict[_Held, None] = {}
        self._callers: Counter[tuple[str, str]] = Counter()
        self._exact: dict[str, dict[_Held, None]] = {}
        self._patterns: dict[str, dict[_Held, None]] = {}
        self._trie: TopicTrie[str] = TopicTrie()
        # Joined topics without a request, and until when.
        self._lingering: dict[str, float] = {}
        self._ended = False

    def __len__(self) -> int:
        """Number of held requests."""
        return len(self._held)

    async def answer(
        self, identity: Identity, wanted: PositionsRequest, gone: asyncio.Future[None]
    ) -> PositionList:
        """See `interfaces.Service.positions`."""
        self._check(identity, wanted)

        def allowed(topic: str) -> bool:
            return self._core.policy.may_subscribe(identity, topic)

        found = await self._read(wanted, allowed)
        if not wanted.wait or self._ended or _moved(found, wanted.after):
            return found
        seconds = wanted.wait / 1000
        if identity.expires_at is not None:
            # What moves after that is not for this caller.
            seconds = min(seconds, (identity.expires_at - self._core.today()) / 1000)
        held = self._hold(identity, wanted, allowed)
        gone.add_done_callback(held.wake)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while not (self._ended or gone.done()):
                        held.woken.clear()
                        found = await self._read(wanted, allowed, wanted.topics)
                        if _moved(found, wanted.after):
                            break
                        await held.woken.wait()
            return found
        finally:
            gone.remove_done_callback(held.wake)
            self._release(identity, wanted, held)

    def moved(self, entry: Entry) -> None:
        """A message has its position: answer the requests that wait for it."""
        seq = entry.seq
        if seq is None:
            return
        for held in self._exact.get(entry.topic, ()):
            held.check(entry.topic, seq)
        if self._patterns:
            for pattern in self._trie.match(entry.topic):
                for held in self._patterns[pattern]:
                    held.check(entry.topic, seq)

    def expire(self) -> None:
        """Leave topics without a recent request; called periodically."""
        now = self._core.clock()
        while self._lingering:
            pattern, until = next(iter(self._lingering.items()))
            if until > now:
                break
            del self._lingering[pattern]
            self._interests.leave(pattern)

    def end(self) -> None:
        """Answer all held requests, and hold no more."""
        self._ended = True
        for held in self._held:
            held.wake()

    # ------------------------------------------------------------ inside

    def _check(self, identity: Identity, wanted: PositionsRequest) -> None:
        for name in wanted.topics:
            if not self._core.policy.may_subscribe_pattern(identity, name):
                detail = "the access rules do not allow reading this topic or pattern"
                raise denial(self._core.settings, detail, name, field="topics")

    async def _read(
        self,
        wanted: PositionsRequest,
        allowed: Callable[[str], bool],
        joined: Sequence[str] = (),
    ) -> PositionList:
        core = self._core
        exact = [each for each in wanted.topics if not is_wildcard(each)]
        patterns = [each for each in wanted.topics if is_wildcard(each)]
        names = dict.fromkeys(exact)
        if patterns:
            names.update(dict.fromkeys(await self._matching(patterns, allowed)))
        chosen: Collection[str] = names
        if len(names) > ANSWER_TOPICS:
            chosen = nsmallest(ANSWER_TOPICS, names)
        order = list(chosen)
        timestamp: int | None = None
        found = {topic: Standing(topic, 1, 0, None if wanted.at is None else 1) for topic in exact}
        for start in range(0, max(1, len(order)), PIECE):
            some = order[start : start + PIECE]
            if start:
                await core.turns.wait(PIECE * TOPIC_SECONDS)
            now, stands = await core.backplane.logs.positions(some, wanted.at, joined=joined)
            timestamp = now if timestamp is None else timestamp
            found.update((each.topic, each) for each in stands)
        positions = [found[topic] for topic in sorted(chosen) if topic in found]
        return PositionList(positions, timestamp or 0, len(names) > ANSWER_TOPICS)

    async def _matching(
        self, patterns: Sequence[str], allowed: Callable[[str], bool]
    ) -> Collection[str]:
        core = self._core
        survey = core.backplane.logs.survey(patterns, _any)
        if survey is None:
            return await core.backplane.logs.names(patterns, allowed)
        try:
            await survey.run(core.turns.wait)
            survey.keep()
            return [topic for topic in survey.found if allowed(topic)]
        finally:
            survey.end()

    def _hold(
        self, identity: Identity, wanted: PositionsRequest, allowed: Callable[[str], bool]
    ) -> _Held:
        caller = (identity.kind, identity.user_id)
        most = self._core.settings.held_per_user
        if self._callers[caller] >= most:
            raise ServiceError(
                "connection_limit",
                f"{most} requests of {identity.user_id} wait for positions, which is the maximum",
                field="wait_ms",
                retry_after_ms=RETRY_MS,
            )
        self._callers[caller] += 1
        held = _Held(wanted.after, allowed)
        self._held[held] = None
        for name in wanted.topics:
            table = self._patterns if is_wildcard(name) else self._exact
            waiting = table.get(name)
            if waiting is None:
                table[name] = {held: None}
                if is_wildcard(name):
                    self._trie.insert(name, name)
                if self._lingering.pop(name, None) is None:
                    self._interests.join(name)
            else:
                waiting[held] = None
        return held

    def _release(self, identity: Identity, wanted: PositionsRequest, held: _Held) -> None:
        caller = (identity.kind, identity.user_id)
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]
        del self._held[held]
        until = self._core.clock() + LINGER
        for name in wanted.topics:
            table = self._patterns if is_wildcard(name) else self._exact
            waiting = table[name]
            del waiting[held]
            if not waiting:
                del table[name]
                if is_wildcard(name):
                    self._trie.remove(name, name)
                self._lingering[name] = until
        while len(self._lingering) > LINGERING_MAX:
            name = next(iter(self._lingering))
            del self._lingering[name]
            self._interests.leave(name)


def _any(topic: str) -> bool:
    return True


def _moved(found: PositionList, after: Mapping[str, int]) -> bool:
    return any(each.last != after.get(each.topic) for each in found.positions)
