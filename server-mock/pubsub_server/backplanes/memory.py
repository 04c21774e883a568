"""A single node: everything is in this process, and each call answers immediately."""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING

from pubsub_server.backplane import Entry, Page, Published, Replay, TopicReport
from pubsub_server.backplanes.history import MemoryStore
from pubsub_server.backplanes.ids import IdMemory
from pubsub_server.backplanes.retention import retention
from pubsub_server.instruments import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pubsub_server.backplane import Origin, Standing
    from pubsub_server.errors import ServiceError
    from pubsub_server.instruments import Instrument
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.requests import Draft
    from pubsub_server.shared.topic_index import Survey


class MemoryLogs:
    """See `backplane.Logs`: those of this process.

    Args:
        store: The logs.
        wall: Unix ms.
    """

    def __init__(self, store: MemoryStore, wall: Callable[[], int]) -> None:
        self.store = store
        self._wall = wall

    def survey(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Survey | None:
        """See `backplane.Logs`."""
        return self.store.survey(patterns, allowed)

    async def names(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Sequence[str]:
        """See `backplane.Logs`."""
        return [topic for topic in self.store.named(patterns) if allowed(topic)]

    async def positions(
        self, topics: Sequence[str], at: int | None, *, joined: Sequence[str]
    ) -> tuple[int, Sequence[Standing]]:
        """See `backplane.Logs`; there is nothing to join."""
        now = self._wall()
        return now, self.store.stand(topics, now, at)

    async def page(
        self,
        topic: str,
        *,
        since: int | None,
        before: str | int | None,
        after: int | None,
        limit: int,
    ) -> Page:
        """See `backplane.Logs`."""
        return self.store.page(
            topic, self._wall(), since=since, before=before, after=after, limit=limit
        )

    async def reports(self, prefix: str, limit: int) -> list[TopicReport]:
        """See `backplane.Logs`."""
        return self.store.reports(prefix, self._wall(), limit)

    def expire(self) -> None:
        """See `backplane.Logs`."""
        self.store.expire(self._wall())

    def evict(self, topic: str | None, *, log_too: bool) -> None:
        """See `backplane.Logs`."""
        self.store.evict(topic, log_too=log_too)


class MemoryBackplane:
    """See `backplane.Backplane`.

    Args:
        store: The logs.
        wall: Unix ms.
    """

    lasting = False

    def __init__(self, store: MemoryStore, wall: Callable[[], int]) -> None:
        self.store = store
        self.logs = MemoryLogs(store, wall)
        self._wall = wall
        self._deliver: Callable[[Entry], None] | None = None

    @property
    def node(self) -> str | None:
        """See `backplane.Backplane`; there is no other node."""
        return None

    def start(
        self, deliver: Callable[[Entry], None], on_gap: Callable[[str], None] | None = None
    ) -> None:
        """See `backplane.Backplane`."""
        self._deliver = deliver

    def join(self, pattern: str) -> None:
        """No interest to announce: there is no other node."""

    def leave(self, pattern: str) -> None:
        """No interest to withdraw: there is no other node."""

    def publish(
        self,
        drafts: Sequence[Draft],
        sender: tuple[str, str],
        done: Callable[[list[Published | ServiceError]], None],
        origin: Origin | None = None,
    ) -> None:
        """See `backplane.Backplane`; calls ``done`` immediately."""
        done(self.append(drafts, sender))

    def append(
        self, drafts: Sequence[Draft], sender: tuple[str, str]
    ) -> list[Published | ServiceError]:
        """Number, store and deliver."""
        now = self._wall()
        results: list[Published | ServiceError] = []
        for draft in drafts:
            entry = self.store.append(draft, sender, now)
            if isinstance(entry, Entry):
                if self._deliver is not None:
                    self._deliver(entry)
                results.append(Published(entry.id, entry.timestamp, entry.seq, False))
            else:
                results.append(entry)
        return results

    @property
    def receiving(self) -> bool:
        """See `backplane.Backplane`."""
        return True

    def receives(self, pattern: str) -> bool:
        """See `backplane.Backplane`."""
        return True

    def settled(self) -> int:
        """See `backplane.Backplane`; a message is delivered when it gets its time."""
        return maxsize

    def watch(self, changed: Callable[[], None]) -> None:
        """See `backplane.Backplane`."""

    def replay(
        self,
        topics: Sequence[str],
        patterns: Sequence[str],
        *,
        since: int | None,
        after: Mapping[str, int],
        newest: int | None,
        allowed: Callable[[str], bool],
    ) -> Replay:
        """See `backplane.Backplane`."""
        return self.store.replay(
            topics,
            patterns,
            self._wall(),
            since=since,
            after=after,
            newest=newest,
            allowed=allowed,
        )

    def instruments(self) -> Sequence[Instrument]:
        """See `backplane.Backplane`."""
        store = self.store
        return (
            Reading(
                "history_topics",
                "Topics with history in this process; not on Redis.",
                lambda: len(store),
            ),
            Reading("history_bytes", "Bytes of the history in this process.", lambda: store.size),
        )

    async def finish_writing(self) -> None:
        """Nothing waits."""

    async def deliver_rest(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        """No connection to close."""


def open_memory(
    settings: Settings, wall: Callable[[], int], origin: int | None = None
) -> MemoryBackplane:
    """Logs in this process, empty, bounded by the settings.

    Args:
        settings: Limits.
        wall: Unix ms.
        origin: See `history.MemoryStore`.
    """
    store = MemoryStore(
        retention(settings),
        IdMemory(settings.ids_max, settings.ids_max_age * 1000),
        max_bytes=settings.history_max_bytes,
        max_topics=settings.topics_max,
        born=wall(),
        origin=origin,
    )
    return MemoryBackplane(store, wall)
