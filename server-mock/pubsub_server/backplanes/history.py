"""The bounded log of each topic: append, number, trim, de-duplicate, replay.

HIP-56 Message History and Replay; H-100 … H-104. Everything is bounded: messages by count, age, ttl
and bytes, logs and remembered ids by number. There is no clock: the caller passes the time.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import TopicTrie, is_wildcard
from hanzoai.pubsub.wire.ids import message_id
from pubsub_server.backplane import Entry, Page, Published, Replay, TopicReport
from pubsub_server.backplanes.ids import IdMemory, Seen
from pubsub_server.backplanes.replay_bounds import REPLAY_TOPICS, bounded, last_of
from pubsub_server.backplanes.topic_log import TopicLog, behind, read, stand
from pubsub_server.errors import ServiceError
from pubsub_server.shared.envelopes import envelope
from pubsub_server.shared.exact_copy import exact_copy
from pubsub_server.shared.topic_index import Survey, TopicIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pubsub_server.backplane import Standing
    from pubsub_server.backplanes.retention import Keep, Retention
    from pubsub_server.shared.requests import Draft

SEQ_PER_MS: Final = 1000
"""A new log is numbered from the current time, so that its numbers exceed those of a lost log."""
ENTRY_BYTES: Final = 546
"""Measured bytes of an entry and its places in a log, in addition to its body."""


class MemoryStore:
    """All logs of one process.

    Args:
        retention: What each log keeps.
        ids: Ids of messages that have left the logs, or were never stored.
        max_bytes: Maximum bytes retained in total.
        max_topics: Maximum logs; the one written least recently is removed first.
        born: Unix ms; messages acknowledged earlier are not in this store.
        origin: Added to the number that a log begins with. Nodes with separate numbering have
            different origins, so that a position of one node is invalid on another. None if there
            are no such nodes: a position from before the store is then of a lost log.
    """

    def __init__(
        self,
        retention: Retention,
        ids: IdMemory,
        *,
        max_bytes: int,
        max_topics: int,
        born: int = 0,
        origin: int | None = None,
    ) -> None:
        self._retention = retention
        self._max_bytes = max_bytes
        self._max_topics = max_topics
        self._logs: OrderedDict[str, TopicLog] = OrderedDict()
        # Logs with messages, by age of retention, in the order of their newest message: the ones to
        # expire or evict first are in front.
        self._filled: dict[int, OrderedDict[str, TopicLog]] = {
            keep.age: OrderedDict() for keep in retention.keeps
        }
        # The last in both orders: messages of one topic often arrive together.
        self._latest: TopicLog | None = None
        self._index = TopicIndex()
        self._ids = ids
        self._bytes = 0
        self._last_ms = 0
        # The lowest number of any log of this store.
        self._lowest = 0 if origin is None else born * SEQ_PER_MS + origin
        # Exceeds every number of a removed log by more than one, so that the jump is visible.
        self._floor = self._lowest
        self._born = born
        self._origin = origin or 0
        # The first position of each topic that was subscribed to before its first message. Its
        # subscribers know this position, so that a loss of the log is visible as a jump.
        self._starts: OrderedDict[str, int] = OrderedDict()

    @property
    def size(self) -> int:
        """Number of bytes retained."""
        return self._bytes

    def __len__(self) -> int:
        """Number of logs."""
        return len(self._logs)

    # ------------------------------------------------------------ append

    def append(
        self,
        draft: Draft,
        sender: tuple[str, str],
        now: int,
        *,
        stamp: int | None = None,
        given: bool | None = None,
    ) -> Entry | Published | ServiceError:
        """Number and store a message, and create an id if its publisher gave none.

        Args:
            draft: The publication.
            sender: Kind and id of the publisher.
            now: Unix ms.
            stamp: Its timestamp at another node that it was published on. Kept unless it is later
                than now, earlier than that of another message of the topic, or so early that the
                message would have expired: these show that the clock of that node is wrong.
            given: Whether the publisher gave the id of such a message.

        Returns:
            The entry to deliver; or the previous answer, if the id is known; or `conflict`, if this
            sender has used the id for another message.
        """
        if now < self._last_ms:
            now = self._last_ms
        else:
            self._last_ms = now
        topic, id = draft.topic, draft.id
        log = self._logs.get(topic)
        if given is None:
            given = id is not None
        if id is None:
            id = message_id()
        elif (known := self._known(log, draft, id, sender, now)) is not None:
            return known
        keep = self._retention.of(topic) if log is None else log.keep
        ttl = keep.age if draft.ttl is None else min(draft.ttl * 1000, keep.age)
        at = now
        if stamp is not None and (not ttl or now < stamp + ttl):
            at = max(min(stamp, now), 0 if log is None else log.last_at)
        if draft.ttl == 0:
            body = envelope(draft, id, at, None, sender)
            entry = Entry(topic, id, at, None, now, body, given, sender)
            if given or stamp is not None:
                self._remember(entry, now)
            return entry
        if log is None:
            log = self._begin(topic, keep, now)
        seq = log.last + 1
        kept = keep.messages and ttl
        body = envelope(draft, id, at, seq, sender)
        if kept:
            body = exact_copy(body)
        entry = Entry(topic, id, at, seq, at + ttl, body, given, sender, now - at)
        log.last = seq
        log.last_at = at
        if log is not self._latest:
            self._logs.move_to_end(topic)
            self._latest = None
        if kept:
            self._keep(log, entry, now)
        else:
            log.lost_at = now
        return entry

    def _known(
        self, log: TopicLog | None, draft: Draft, id: str, sender: tuple[str, str], now: int
    ) -> Published | ServiceError | None:
        if log is not None and (entry := log.by_id.get((sender, id))) is not None:
            seen: Seen | None = Seen(entry.timestamp, entry.seq or 0, hash(entry.body))
        else:
            seen = self._ids.get(draft.topic, sender, id, now)
        if seen is None:
            return None
        seq = seen.seq or None
        again = envelope(draft, id, seen.timestamp, seq, sender)
        if hash(again) == seen.mark:
            return Published(id, seen.timestamp, seq, True)
        return ServiceError(
            "conflict",
            "you have used this id for another message",
            topic=draft.topic,
            field="id",
        )

    def _begin(self, topic: str, keep: Keep, now: int) -> TopicLog:
        while len(self._logs) >= self._max_topics:
            self._end(*next(iter(self._logs.items())))
        start = self._starts.pop(topic, None) or self._next_start(now)
        log = self._logs[topic] = TopicLog(start, keep)
        self._index.add(topic)
        return log

    def _next_start(self, now: int) -> int:
        return max(now * SEQ_PER_MS + self._origin, self._floor)

    def _start_of(self, topic: str, now: int) -> int:
        start = self._starts.get(topic)
        if start is None:
            start = self._starts[topic] = self._next_start(now)
            if len(self._starts) > self._max_topics:
                self._starts.popitem(last=False)
        return start

    def _keep(self, log: TopicLog, entry: Entry, now: int) -> None:
        entries = log.entries
        entries.append(entry)
        log.by_id[entry.sender, entry.id] = entry
        self._bytes += len(entry.body) + ENTRY_BYTES
        while len(entries) > log.keep.messages or entries[0].expires <= now:
            self._drop_first(log)
        if log is not self._latest:
            filled = self._filled[log.keep.age]
            filled[entry.topic] = log
            filled.move_to_end(entry.topic)
            self._latest = log
        while self._bytes > self._max_bytes:
            fronts = [next(iter(each.items())) for each in self._filled.values() if each]
            topic, coldest = min(fronts, key=_last_at)
            self._drop_first(coldest)
            if not coldest.entries:
                self._clear(topic, coldest)

    def _drop_first(self, log: TopicLog) -> None:
        entry = log.entries.popleft()
        self._bytes -= len(entry.body) + ENTRY_BYTES
        log.lost_at = max(log.lost_at, entry.stored)
        key = (entry.sender, entry.id)
        if log.by_id.get(key) is entry:
            del log.by_id[key]
        if entry.given:
            self._remember(entry, self._last_ms)

    def _remember(self, entry: Entry, now: int) -> None:
        seen = Seen(entry.timestamp, entry.seq or 0, hash(entry.body))
        self._ids.add(entry.topic, entry.sender, entry.id, seen, now)

    def _clear(self, topic: str, log: TopicLog) -> None:
        while log.entries:
            self._drop_first(log)
        self._filled[log.keep.age].pop(topic, None)
        if log is self._latest:
            self._latest = None

    def _end(self, topic: str, log: TopicLog) -> None:
        self._clear(topic, log)
        self._floor = max(self._floor, log.last + 2)
        del self._logs[topic]
        self._index.discard(topic)

    def _is_foreign(self, topic: str, seq: int, now: int) -> bool:
        """Whether there is no log, and no log of this store can have had this position.

        The position is then of another node, or of a clock that was ahead. If it is not below the
        start of a new log, its client would take the messages of that log for known ones.
        """
        if topic in self._logs:
            return False
        start = self._starts.get(topic) or self._next_start(now)
        return seq < self._lowest - 1 or seq >= start

    # ------------------------------------------------------------ forget

    def expire(self, now: int) -> None:
        """Remove expired messages, so that idle topics use no memory."""
        for age, filled in self._filled.items():
            while filled:
                topic, log = next(iter(filled.items()))
                if log.last_at + age > now:
                    break
                self._clear(topic, log)
        self._ids.expire(now)

    def evict(self, topic: str | None = None, *, log_too: bool = False) -> None:
        """Drop retained messages, as when a log is full.

        Args:
            topic: Only of this topic; None for all.
            log_too: Also drop the numbering, as if the store had been lost.
        """
        for name in [topic] if topic is not None else list(self._logs):
            log = self._logs.get(name)
            if log is None:
                continue
            if log_too:
                self._end(name, log)
            else:
                self._clear(name, log)
        if log_too:
            self._ids.clear()
            if topic is None:
                self._starts.clear()
                self._born = self._last_ms
            else:
                self._starts.pop(topic, None)

    def break_off(self, topics: Iterable[str], now: int) -> None:
        """Report a gap to clients that resume these topics, as messages may be missing here.

        Retained messages stay. The numbering jumps, and a position from before the jump counts as a
        position of another log.

        Args:
            topics: Which.
            now: Unix ms.
        """
        for topic in topics:
            log = self._logs.get(topic)
            if log is not None:
                log.last += 2
                log.start = log.last + 1
                log.lost_at = max(now, log.last_at)
            elif (start := self._starts.pop(topic, None)) is not None:
                self._floor = max(self._floor, start + 2)

    # ------------------------------------------------------------ read

    def replay(
        self,
        topics: Iterable[str],
        patterns: Sequence[str],
        now: int,
        *,
        since: int | None = None,
        after: Mapping[str, int] | None = None,
        newest: int | None = None,
        allowed: Callable[[str], bool] = lambda topic: True,
    ) -> Replay:
        """The replay of a subscription.

        A topic in ``after`` resumes after that position, the others with the messages stored after
        ``since``; ``newest`` limits each topic. Without any of them nothing is replayed.

        Args:
            topics: Concrete topics, already allowed.
            patterns: Patterns with wildcards.
            now: Unix ms.
            since: Unix ms.
            after: Positions by topic.
            newest: Maximum messages per topic.
            allowed: Whether a topic that a pattern matches may be read.

        Returns:
            Messages oldest first (in order within each topic), newest positions, and the topics
            whose log does not reach back.
        """
        after = after or {}
        found: dict[str, TopicLog] = {}
        starts: dict[str, int] = {}
        reset = [topic for topic, seq in after.items() if self._is_foreign(topic, seq, now)]
        if reset:
            # Of a topic that the subscriber may not read, even this shows whether it has messages.
            trie: TopicTrie[None] = TopicTrie()
            for each in (*topics, *patterns):
                trie.insert(each, None)
            reset = [topic for topic in reset if trie.match(topic) and allowed(topic)]
        foreign = set(reset)
        for topic in topics:
            log = self._logs.get(topic)
            if log is not None:
                found[topic] = log
            elif topic not in after or topic in foreign:
                starts[topic] = self._start_of(topic, now)
        for topic in self._index.matching([p for p in patterns if is_wildcard(p)]):
            if len(found) >= REPLAY_TOPICS:
                break
            if topic not in found and allowed(topic):
                found[topic] = self._logs[topic]
        logs: list[list[Entry]] = []
        truncated: list[str] = []
        for topic, log in found.items():
            mark = after.get(topic)
            if mark is None and since is None and newest is None:
                continue
            some, short, restarted = read(log, now, mark, since, newest)
            logs.append(some)
            if short:
                truncated.append(topic)
            if restarted:
                reset.append(topic)
        entries, truncated_topics = bounded(logs, truncated)
        positions = {topic: log.last for topic, log in found.items()}
        positions |= {topic: start - 1 for topic, start in starts.items()}
        return Replay(entries, positions, truncated_topics, reset, self._born)

    def survey(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Survey | None:
        """See `backplane.Backplane`."""
        return self._index.survey(patterns, allowed)

    def page(
        self,
        topic: str,
        now: int,
        *,
        since: int | None = None,
        before: str | int | None = None,
        after: int | None = None,
        limit: int,
    ) -> Page:
        """One page, oldest first: the newest, the one before a message, or that after a position.

        Args:
            topic: Which topic.
            now: Unix ms.
            since: Only what was stored later, Unix ms.
            before: Position that the page ends before; or the id of the message, which several
                senders can use: the oldest counts. The page is empty if no message has this id.
            after: Position after which the page begins.
            limit: Maximum messages of the page.
        """
        log = self._logs.get(topic)
        if log is None:
            return Page((), False, None, False, False)
        if after is not None:
            entries, more, short, restarted = behind(log, now, after, limit)
            return Page([entry.body for entry in entries], more, log.last, short, restarted)
        entries = log.alive(now)
        if isinstance(before, int):
            entries = [entry for entry in entries if (entry.seq or 0) < before]
        elif before is not None:
            place = next((i for i, entry in enumerate(entries) if entry.id == before), None)
            entries = [] if place is None else entries[:place]
        if since is not None:
            entries = [entry for entry in entries if entry.stored > since]
        chosen = last_of(entries, limit)
        short = since is not None and log.lost_since(now) > since
        return Page(
            [entry.body for entry in chosen], len(entries) > len(chosen), log.last, short, False
        )

    def named(self, patterns: Sequence[str]) -> list[str]:
        """Topics with a log that match any of the patterns."""
        return self._index.matching(patterns)

    def stand(self, topics: Iterable[str], now: int, at: int | None) -> list[Standing]:
        """Positions of those of the topics that have a log; see `backplane.Standing`."""
        logs = ((topic, self._logs.get(topic)) for topic in topics)
        return [stand(topic, log, now, at) for topic, log in logs if log is not None]

    def reports(self, prefix: str, now: int, limit: int) -> list[TopicReport]:
        """Topics with a log and this prefix, the first by name."""
        names = nsmallest(limit, (topic for topic in self._logs if topic.startswith(prefix)))
        logs = [(name, self._logs[name]) for name in names]
        return [
            TopicReport(name, 0, len(log.alive(now)), log.last, log.last_at or None)
            for name, log in logs
        ]


def _last_at(item: tuple[str, TopicLog]) -> int:
    return item[1].last_at
