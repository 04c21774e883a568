"""Logs in this process, and messages of other nodes over the mesh."""

from __future__ import annotations

import functools
from sys import maxsize
from typing import TYPE_CHECKING

import orjson

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.payload_bytes import to_json
from hanzoai.pubsub.topics import is_wildcard, validate_topic
from hanzoai.pubsub.wire.ids import message_id
from pubsub_server.backplane import Entry, Published
from pubsub_server.backplanes.mesh.codec import Record
from pubsub_server.errors import ServiceError
from pubsub_server.instruments import Reading
from pubsub_server.shared.publications import check_fields
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from pubsub_server.backplane import Origin, Replay
    from pubsub_server.backplanes.memory import MemoryBackplane
    from pubsub_server.backplanes.mesh.mesh import Mesh
    from pubsub_server.instruments import Instrument

PLAIN_SENDER = ("service", "mesh")
"""Sender of messages of peers that name none."""


class MeshBackplane:
    """See `backplane.Backplane`. Positions are those of this node alone.

    A message from another node gets its position here when it arrives, and is stored like a local
    one. If messages may be missing, the numbering jumps, so that subscribers report a gap.

    Args:
        memory: The logs.
        wall: Unix ms.
    """

    lasting = False

    def __init__(self, memory: MemoryBackplane, wall: Callable[[], int]) -> None:
        self._memory = memory
        self.logs = memory.logs
        self._store = memory.store
        self._wall = wall
        self._deliver: Callable[[Entry], None] | None = None
        self._on_gap: Callable[[str], None] | None = None
        self._mesh: Mesh | None = None

    @property
    def mesh(self) -> Mesh:
        """The connections with other nodes; set once, before `start`."""
        assert self._mesh is not None
        return self._mesh

    @mesh.setter
    def mesh(self, mesh: Mesh) -> None:
        self._mesh = mesh

    @property
    def node(self) -> str | None:
        """See `backplane.Backplane`."""
        return self.mesh.terms.node

    def start(
        self, deliver: Callable[[Entry], None], on_gap: Callable[[str], None] | None = None
    ) -> None:
        """See `backplane.Backplane`."""
        self._deliver = deliver
        self._on_gap = on_gap or self._on_gap
        self._memory.start(deliver)

    @property
    def receiving(self) -> bool:
        """See `backplane.Backplane`; a node without peers serves its own clients."""
        return True

    def receives(self, pattern: str) -> bool:
        """See `backplane.Backplane`."""
        return True

    def settled(self) -> int:
        """See `backplane.Backplane`; a message that arrives late is stored, and delivered, late."""
        return maxsize

    def watch(self, changed: Callable[[], None]) -> None:
        """See `backplane.Backplane`."""

    def join(self, pattern: str) -> None:
        """See `backplane.Backplane`."""
        if self.mesh.had_peers:
            # This node has not received what others have published there in the meantime.
            topics = self._store.named([pattern]) if is_wildcard(pattern) else [pattern]
            missed = [each for each in topics if not self.mesh.wanted.covers(each)]
            self._store.break_off(missed, self._wall())
        self.mesh.join(pattern)

    def leave(self, pattern: str) -> None:
        """See `backplane.Backplane`."""
        self.mesh.leave(pattern)

    def publish(
        self,
        drafts: Sequence[Draft],
        sender: tuple[str, str],
        done: Callable[[list[Published | ServiceError]], None],
        origin: Origin | None = None,
    ) -> None:
        """See `backplane.Backplane`."""
        results = self._memory.append(drafts, sender)
        mesh = self.mesh
        for draft, result in zip(drafts, results, strict=True):
            if isinstance(result, Published) and not result.duplicate:
                mesh.published = True
                wanting = mesh.wanting(draft.topic)
                if wanting:
                    record = functools.partial(_record, draft, result, sender)
                    mesh.forward(wanting, draft.topic, record, draft.data)
        done(results)

    def replay(
        self,
        topics: Sequence[str],
        patterns: Sequence[str],
        *,
        since: int | None,
        after: Mapping[str, int],
        newest: int | None,
        allowed: Callable[[str], bool],
    ) -> Replay | Awaitable[Replay]:
        """See `backplane.Backplane`; answered when the peers have acknowledged the interest."""
        found = self._memory.replay(
            topics, patterns, since=since, after=after, newest=newest, allowed=allowed
        )
        settled = self.mesh.announce()
        return found if settled is None else _after(settled, found)

    def instruments(self) -> Sequence[Instrument]:
        """See `backplane.Backplane`."""
        mesh = self.mesh
        counts = mesh.counts

        def counter(name: str, help: str, read: Callable[[], float]) -> Reading:
            return Reading(f"mesh_{name}", help, read, "counter")

        return (
            *self._memory.instruments(),
            Reading("mesh_peers", "Nodes of the mesh with a connection.", lambda: mesh.peers),
            Reading("mesh_members", "Known addresses of nodes.", lambda: mesh.members),
            Reading(
                "mesh_interests",
                "Topics and patterns that other nodes subscribe to, summed over the nodes.",
                lambda: mesh.interests,
            ),
            counter("forwarded", "Messages sent to other nodes.", lambda: counts.forwarded),
            counter(
                "forwarded_bytes",
                "Bytes of messages sent to other nodes, with frames.",
                lambda: mesh.forwarded_bytes,
            ),
            counter("received", "Messages received from other nodes.", lambda: counts.received),
            counter(
                "duplicates",
                "Messages received from other nodes a second time, and dropped.",
                lambda: counts.duplicates,
            ),
            counter(
                "unwanted",
                "Messages received from other nodes without a subscriber here, and dropped.",
                lambda: counts.unwanted,
            ),
            counter(
                "refused",
                "Connections and requests of other nodes rejected because they break the protocol.",
                lambda: counts.refused,
            ),
            counter(
                "stalled",
                "Connections to other nodes closed because the node read too slowly.",
                lambda: counts.stalled,
            ),
            counter(
                "lost",
                "Connections to other nodes that ended unexpectedly.",
                lambda: counts.lost,
            ),
        )

    async def finish_writing(self) -> None:
        """See `backplane.Backplane`."""

    async def deliver_rest(self) -> None:
        """See `backplane.Backplane`."""

    async def close(self) -> None:
        """See `backplane.Backplane`."""
        await self.mesh.close()

    # ------------------------------------------------------------ see mesh.Receiver

    def forwarded(self, record: Record) -> bool:
        """See `mesh.Receiver`."""
        if not _is_valid(record):
            self.mesh.counts.refused += 1
            return True
        draft = Draft(record.topic, record.type, record.data, record.ttl, record.id, record.meta)
        sender = (record.kind, record.user)
        return self._append_and_deliver(draft, sender, record.timestamp, given=record.given)

    def raw(self, topic: bytes, data: bytes) -> None:
        """See `mesh.Receiver`."""
        try:
            name = validate_topic(topic.decode())
        except (InvalidTopic, UnicodeDecodeError):
            self.mesh.counts.refused += 1
            return
        draft = Draft(name, "message", to_json(data), None, message_id(), None)
        self._append_and_deliver(draft, PLAIN_SENDER, self._wall(), given=False)

    def interrupted(self, names: Iterable[str]) -> None:
        """See `mesh.Receiver`."""
        topics: list[str] = []
        patterns: list[str] = []
        for name in names:
            (patterns if is_wildcard(name) else topics).append(name)
        found = self._store.named(patterns) if patterns else []
        self._store.break_off(dict.fromkeys((*topics, *found)), self._wall())
        if self._on_gap is not None:
            for topic in found:
                self._on_gap(topic)

    # ------------------------------------------------------------ inside

    def _append_and_deliver(
        self, draft: Draft, sender: tuple[str, str], timestamp: int, *, given: bool
    ) -> bool:
        entry = self._store.append(draft, sender, self._wall(), stamp=timestamp, given=given)
        if not isinstance(entry, Entry):
            return False
        if self._deliver is not None:
            self._deliver(entry)
        return True


def _is_valid(record: Record) -> bool:
    """Whether a message of another node has the form that clients may publish."""
    try:
        validate_topic(record.topic)
        meta = None if record.meta is None else _read_json(record.meta)
        _read_json(record.data)
    except (InvalidTopic, ValueError):
        return False
    try:
        check_fields(record.type, record.ttl, record.id, meta)
    except ServiceError:
        return False
    return True


def _read_json(text: bytes) -> object:
    """Read JSON that clients can read, too: on one line, and not nested too deeply.

    Raises:
        ValueError: It is not.
    """
    if b"\n" in text or b"\r" in text:
        raise ValueError
    value: object = orjson.loads(text)
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise ValueError from None
    return value


def _record(draft: Draft, done: Published, sender: tuple[str, str]) -> Record:
    return Record(
        draft.topic,
        done.id,
        draft.id is not None,
        draft.type,
        draft.data,
        *sender,
        done.timestamp,
        draft.ttl,
        draft.meta,
    )


async def _after(settled: Awaitable[None], found: Replay) -> Replay:
    await settled
    return found
