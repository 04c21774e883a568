"""Reads the logs: replays, pages, reports. Each answer is a consistent snapshot of its shard."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from heapq import nsmallest
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pubsub_server.backplane import Entry, Page, Replay, TopicReport
from pubsub_server.backplanes import replay_bounds
from pubsub_server.backplanes.ids import created_ms
from pubsub_server.backplanes.redis.layout import Log, read_log
from pubsub_server.backplanes.redis.topic_search import matching
from pubsub_server.backplanes.replay_bounds import REPLAY_MESSAGES, bounded, first_of, last_of
from pubsub_server.tasks import run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pubsub_server.backplanes.redis.layout import Layout
    from pubsub_server.backplanes.redis.link import Argument, Link

CLOCKS_MS: Final = 60_000
"""Milliseconds by which the clocks of two Redis servers may differ."""
READ_TOPICS: Final = 100
"""Maximum topics of one call."""
LEAP: Final = 1_000
"""As in `logs.lua`: the minimum distance between two numberings of a topic."""
NEVER: Final = 1 << 48
"""Unix ms after all messages."""
STARTS: Final = 100_000
"""Maximum topics without a log, on all shards, whose first position is remembered."""

Mode = Literal["after", "before", "since", "newest", "nothing"]


class Part(NamedTuple):
    """The part of a log to read.

    Attributes:
        mode: From which end, and to where; see `read.lua`.
        mark: A position or a time.
        limit: Maximum messages; 0 for all.
        size: Bytes after which no more messages are added; 0 for no limit.
    """

    mode: Mode
    mark: int = 0
    limit: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested start of a subscriber; see `backplane.Backplane.replay`."""

    since: int | None
    after: Mapping[str, int]
    newest: int | None

    def of(self, topic: str) -> Part:
        """What to read of a log."""
        if (mark := self.after.get(topic)) is not None:
            return Part("after", mark, REPLAY_MESSAGES + 1)
        limit = REPLAY_MESSAGES if self.newest is None else min(self.newest, REPLAY_MESSAGES)
        if self.since is not None:
            return Part("since", self.since, limit + 1)
        if self.newest is not None:
            return Part("newest", 0, limit) if limit else Part("nothing")
        return Part("nothing")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The part of a replay for one topic."""

    topic: str
    entries: Sequence[Entry]
    position: int | None
    truncated: bool
    reset: bool


@dataclass(frozen=True, slots=True)
class Sweep:
    """The answer of `sweep.lua` for a shard.

    Attributes:
        now: Redis time, Unix ms.
        unbroken: Unix ms since which the shard has lost no acknowledged message.
        topics: Topics with a message since the requested time.
    """

    now: int
    unbroken: int
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Logs as they were read.

    Attributes:
        now: Redis time, Unix ms.
        ahead: Minimum ms by which the clock of a server is ahead of the loop; infinite if no log
            was read.
        unbroken: By topic, Unix ms since which its shard has lost no acknowledged message.
        logs: By topic, in the requested order; None for a topic without a log.
    """

    now: int
    ahead: float
    unbroken: Mapping[str, int]
    logs: Mapping[str, Log | None]

    def __or__(self, later: Snapshot) -> Snapshot:
        """This snapshot with the topics of a later one."""
        ahead = min(self.ahead, later.ahead)
        return Snapshot(
            later.now, ahead, {**self.unbroken, **later.unbroken}, {**self.logs, **later.logs}
        )


class Reader:
    """Reads the logs.

    Args:
        link: To Redis.
        layout: Names of keys.
    """

    def __init__(self, link: Link, layout: Layout) -> None:
        self._link = link
        self._layout = layout

    async def one(self, topic: str, mode: Mode, mark: int = 0, limit: int = 0) -> Log | None:
        """Read one log."""
        return (await self._read({topic: Part(mode, mark, limit)})).logs[topic]

    async def replay(self, topics: Sequence[str], wanted: Wanted) -> Snapshot:
        """Read the logs with the missing messages.

        A topic without a log has an empty one with its first position, unless the subscriber has a
        position.
        """
        remembered = max(1, STARTS // len(self._layout.bases))
        found = await self._read({topic: wanted.of(topic) for topic in topics}, remembered)
        again: dict[str, Part] = {}
        for topic, mark in wanted.after.items():
            log = found.logs.get(topic)
            if log is None:
                continue
            elsewhere = mark < log.start - 1 or mark > log.last
            if elsewhere or len(log.entries) > REPLAY_MESSAGES:
                again[topic] = Part("newest", 0, REPLAY_MESSAGES)
        return found | await self._read(again) if again else found

    async def topics(
        self, since: int, wanted: Callable[[str], bool], limit: int = sys.maxsize
    ) -> list[str]:
        """Wanted topics with a message since this Unix ms; the first of them, at most `limit`."""
        calls = [
            self._link.topics(self._layout.index(shard), since=since)
            for shard in range(len(self._layout.bases))
        ]
        names = [name.decode() for found in await run_all(calls) for name in found]
        return await matching(names, wanted, limit)

    async def sweep(self, shard: int, since: int, silence: int = 0, least: int = 0) -> Sweep:
        """Topics of a shard that changed; see `sweep.lua`.

        Args:
            shard: Its number.
            since: The Redis time since which they changed, ms; with 0 it does not search.
            silence: Milliseconds for which a silent topic keeps its numbering; with 0 no topic is
                removed from the index.
            least: Earliest Unix ms since which the shard can have lost nothing; 0 if unknown.
        """
        base = self._layout.bases[shard]
        arguments: list[Argument] = [since or "+inf", silence, least]
        now, unbroken, *names = await self._link.call("sweep.lua", [base], arguments)
        return Sweep(int(now), int(unbroken), [name.decode() for name in names])

    async def heads(self, known: Mapping[str, int], silence: int) -> dict[str, int]:
        """Newest position of each topic; see `heads.lua`.

        Args:
            known: Topics with the highest position that is known to be assigned.
            silence: Milliseconds for which a silent topic keeps its numbering.
        """
        found: dict[str, int] = {}
        for base, topics in self._by_shard(known):
            arguments: list[Argument] = [silence]
            for topic in topics:
                arguments += (topic, known[topic])
            answers = await self._link.heads(base, arguments)
            found.update(zip(topics, map(int, answers), strict=True))
        return found

    async def page(
        self,
        topic: str,
        *,
        since: int | None,
        before: str | int | None,
        after: int | None,
        limit: int,
    ) -> Page:
        """See `backplane.Backplane`."""
        if after is not None:
            now, log = await self._page(topic, "after", after, limit)
        elif before is not None:
            place = before if isinstance(before, int) else await self._find(topic, before)
            now, log = await self._page(topic, "before" if place else "nothing", place, limit)
        elif since is not None:
            now, log = await self._page(topic, "since", since, limit)
        else:
            now, log = await self._page(topic, "newest", 0, limit)
        if log is None:
            return Page((), False, None, False, False)
        if after is not None:
            # 0 is before all messages, and not a position of another log.
            if after < log.start - 1 or after > log.last:
                now, first = await self._page(topic, "after", log.start - 1, limit)
                log = first or log
            entries, _, restarted = log.behind(after, now)
            mark = log.start - 1 if restarted else after
            chosen = first_of(entries, limit)
            last = (chosen[-1].seq if chosen else None) or log.last
            return Page(
                [entry.body for entry in chosen],
                len(entries) > len(chosen),
                log.last,
                len(chosen) < last - mark,
                restarted and after != 0,
            )
        entries, short = log.newer(since or 0, now, to_end=before is None)
        chosen = last_of(entries, limit)
        return Page(
            [entry.body for entry in chosen],
            len(entries) > len(chosen),
            log.last,
            since is not None and short,
            False,
        )

    async def _find(self, topic: str, id: str) -> int:
        """The position of the message with this id; 0 if there is none."""
        base = self._layout.bases[self._layout.shard(topic)]
        created = created_ms(id)
        # Without a time, search from the end.
        time = NEVER if created is None else created
        found, rest = 0, [0, 0]
        while rest:
            found, *rest = await self._link.call("find.lua", [base], [topic, id, time, *rest])
        return found

    async def _page(self, topic: str, mode: Mode, mark: int, limit: int) -> tuple[int, Log | None]:
        """Redis time, and a log with more messages than the page has, if there are as many."""
        most = limit + 1
        # A record is at most twice as large as its message.
        size = 2 * replay_bounds.PAGE_BYTES
        while True:
            found = await self._read({topic: Part(mode, mark, most, size)})
            now, log = found.now, found.logs[topic]
            alive = 0 if log is None else sum(each.expires > now for each in log.entries)
            if log is None or len(log.entries) < most or alive > limit:
                return now, log
            # Expired messages are among the others, so read more.
            most *= 4

    async def reports(self, prefix: str, limit: int) -> list[TopicReport]:
        """See `backplane.Backplane`."""
        names = nsmallest(limit, await self.topics(0, lambda topic: topic.startswith(prefix)))
        logs = (await self._read(dict.fromkeys(names, Part("nothing")))).logs
        return [
            TopicReport(name, 0, log.size, log.last, log.latest)
            for name in names
            if (log := logs[name]) is not None
        ]

    async def evict(self, topic: str | None, *, log_too: bool) -> None:
        """See `backplane.Backplane`."""
        names = await self.topics(0, lambda name: topic is None or name == topic)
        for name in names:
            shard = self._layout.shard(name)
            base = self._layout.bases[shard]
            keys = [f"{base}:l:{name}"]
            if log_too:
                keys += [f"{base}:s:{name}", f"{base}:i", f"{base}:j"]
            await self._link.delete(keys)
        if log_too and topic is None:
            for shard in range(len(self._layout.bases)):
                await self._link.delete([self._layout.starts(shard)])

    async def _read(self, wanted: Mapping[str, Part], remembered: int = 0) -> Snapshot:
        logs: dict[str, Log | None] = {}
        unbroken: dict[str, int] = {}
        now, ahead = 0, inf
        loop = asyncio.get_running_loop()
        for base, topics in self._by_shard(wanted):
            arguments: list[Argument] = [remembered]
            for topic in topics:
                arguments += (topic, *wanted[topic])
            answer: list[Any] = await self._link.read(base, arguments)
            now = max(now, int(answer[0]))
            ahead = min(ahead, int(answer[0]) - 1000 * loop.time())
            unbroken |= dict.fromkeys(topics, int(answer[1]))
            for number, topic in enumerate(topics):
                state, size, rows = answer[2 + 3 * number : 5 + 3 * number]
                logs[topic] = read_log(state, size, rows)
        # In the requested order.
        return Snapshot(now, ahead, unbroken, {topic: logs[topic] for topic in wanted})

    def _by_shard(self, topics: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        shards: dict[int, list[str]] = {}
        for topic in topics:
            shards.setdefault(self._layout.shard(topic), []).append(topic)
        for shard, names in shards.items():
            for start in range(0, len(names), READ_TOPICS):
                yield self._layout.bases[shard], names[start : start + READ_TOPICS]


def choose(topic: str, log: Log, wanted: Wanted, now: int, live_after: int | None) -> Chosen:
    """The part of a log that a subscriber gets.

    Args:
        topic: Its topic.
        log: As it was read.
        wanted: The requested start.
        now: Redis time, Unix ms.
        live_after: The node delivers everything after this position to the subscriber; None if it
            does not.
    """
    restarted = short = False
    entries: list[Entry] = []
    position = log.last
    mark = wanted.after.get(topic)
    if mark is not None and live_after is not None and mark <= live_after < log.start - 1:
        # The node has not delivered the start of the new numbering yet. After a message of the
        # former numbering, it will be visible as a jump.
        position = live_after
        entries = [each for each in log.entries if mark < (each.seq or 0) <= live_after]
        missing = live_after - mark - len(entries)
        short = missing > 0
        if missing >= LEAP:
            # The numbering also restarted earlier, so the size of the gap is unknown. The
            # subscriber drops its position: it may be from before the restart.
            restarted = True
            entries = _after_restart(entries, live_after)
    elif mark is not None:
        entries, short, restarted = log.behind(mark, now)
    elif wanted.since is not None:
        entries, short = log.newer(wanted.since, now)
        # A client that resumes counts missing messages by positions, and these jump where the
        # numbering began.
        restarted = any(
            (later.seq or 0) - (earlier.seq or 0) >= LEAP for earlier, later in pairwise(entries)
        )
    elif wanted.newest is not None:
        entries, _ = log.newer(0, now)
    if mark is not None and log.last < mark <= end_of_lost(log.lost) and log.lost > log.latest:
        # The store has lost the end of the log, and the subscriber has everything before it. A
        # higher position is of another service.
        return Chosen(topic, (), log.last, truncated=False, reset=True)
    if wanted.newest is not None and wanted.newest < len(entries):
        entries = entries[len(entries) - wanted.newest :]
        short = short or mark is not None
    if mark is not None and live_after is not None and live_after <= mark < log.start - 1:
        # The subscriber has everything of the former numbering, so the new one begins here. At an
        # older position, it would report the restart twice.
        return Chosen(topic, (), log.start - 1, truncated=False, reset=True)
    if short and mark is not None and live_after is not None and live_after < position:
        # The node may still deliver some of the messages that the log lacks.
        position = live_after if restarted else max(live_after, mark)
        entries = [entry for entry in entries if (entry.seq or 0) <= position]
    return Chosen(topic, entries, position or None, short, restarted)


def choose_without_log(
    topic: str, wanted: Wanted, first: int, live_after: int | None
) -> Chosen | None:
    """The part of a replay for a topic without a log; None for none.

    Args:
        topic: Its name.
        wanted: The requested start.
        first: The lowest position that the next numbering can begin with, unless a node knows a
            higher one.
        live_after: As for `choose`.
    """
    mark = wanted.after.get(topic)
    if mark is None or live_after == mark:
        # The first message of the next numbering reports the missing messages of this one.
        return None
    if live_after is None or live_after < mark:
        # The position is of another service, or of a clock that was ahead. Its client would take
        # the messages of the next numbering for known ones.
        return None if mark < first else Chosen(topic, (), None, truncated=False, reset=True)
    # Messages behind the position were delivered here, and the store has lost them. Where it lost
    # a later numbering, the size of the gap is unknown.
    reset = live_after - mark >= LEAP
    return Chosen(topic, (), live_after, truncated=not reset, reset=reset)


def _after_restart(entries: Sequence[Entry], live_after: int) -> list[Entry]:
    """The entries of the numbering that this position belongs to."""
    kept: list[Entry] = []
    later = live_after
    for entry in reversed(entries):
        seq = entry.seq or 0
        if later - seq >= LEAP:
            break
        kept.append(entry)
        later = seq
    return kept[::-1]


def end_of_lost(unbroken: int) -> int:
    """The position at which lost numberings end at the latest.

    A numbering begins at 1,000 positions per millisecond of Redis time, see `publish.lua`, and
    counts on more slowly.

    Args:
        unbroken: Unix ms since which the shard has lost no acknowledged message.
    """
    return first_of_next(unbroken) - 1


def first_of_next(now: int) -> int:
    """The lowest position that a numbering can begin with at this Redis time, Unix ms."""
    return 1000 * now


def gather(found: Sequence[Chosen], unbroken: int) -> Replay:
    """Join the chosen parts into one replay."""
    entries, truncated = bounded(
        [chosen.entries for chosen in found], [chosen.topic for chosen in found if chosen.truncated]
    )
    positions = {chosen.topic: chosen.position for chosen in found if chosen.position}
    reset = [chosen.topic for chosen in found if chosen.reset]
    return Replay(entries, positions, truncated, reset, unbroken)
