"""Delivers messages: encodes once, joins, and writes once per connection and loop turn.

Consecutive messages to the same route form a run: their bytes are joined once for all of its
connections. Nothing is written before the loop turn ends, so a burst of publishes reaches a
connection in one system call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from time import perf_counter, time
from typing import TYPE_CHECKING, Final

from pubsub_server.hub.routing import NOWHERE
from pubsub_server.shared.connection import AWAITING, REPLAYING, about

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.hub.routing import Route
    from pubsub_server.interfaces import Stats
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.turns import Turns

logger = logging.getLogger(__name__)

RUN_BYTES: Final = 262_144
"""Bytes at which a run is closed. This limits what a connection copies or waits for at once."""
JOIN_BYTES: Final = 65_536
"""Bytes for one connection above which the pieces are written separately: pieces are shared between
connections, joined bytes are not.
"""
HELD_PIECES: Final = 100_000
BACKLOGS: Final = 10_000
CROWDED: Final = 32
"""Maximum replays that wait for one connection before the server stops reading from it."""


class _Nothing(list[bytes]):
    """Discards the bytes of a closed connection, for runs that still contain it."""

    def append(self, data: bytes, /) -> None:
        pass


_GONE: Final = _Nothing()


class Delivery:
    """Owns the bytes between the hub and the sinks.

    Args:
        call_soon: Calls back at the end of this loop turn.
        queue_bytes: Maximum bytes that wait for a stalled connection.
        slow: Called with a connection that exceeds it.
        stats: Counters.
        turns: Turns of the loop, which replays share.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        queue_bytes: int,
        slow: Callable[[Connection], None],
        stats: Stats,
        turns: Turns,
    ) -> None:
        self._call_soon = call_soon
        self._queue_bytes = queue_bytes
        self._slow = slow
        self._stats = stats
        self._turns = turns
        # Connections whose replay waits for its turn.
        self._queued: set[Connection] = set()
        self._dirty: list[Connection] = []
        self._too_slow: list[Connection] = []
        self._scheduled = False
        self._began = 0.0
        self._oldest = 0
        self._route: Route = NOWHERE
        self._but: Connection | None = None
        self._run_bytes = 0

    # ------------------------------------------------------------ messages

    def message(self, route: Route, entry: Entry, but: Connection | None = None) -> None:
        """Send a message along its route at the end of this loop turn.

        Args:
            route: Of its topic.
            entry: The message.
            but: A connection of the route to skip.
        """
        if route is not self._route or but is not self._but:
            if self._route is not NOWHERE:
                self.close_run()
            self._route = route
            self._but = but
        for group in route.groups.values():
            data = group.encoder.message(entry)
            group.pieces.append(data)
            self._run_bytes += len(data)
        if self._run_bytes > RUN_BYTES:
            self.close_run()
        if not self._oldest:
            self._oldest = entry.timestamp
        if not self._scheduled:
            self._schedule()

    def close_run(self) -> None:
        """Close the run: queue its bytes for the connections.

        Call it before a subscription changes, because the change invalidates the route of the run.
        """
        for connections, data in self._end_run():
            for connection in connections:
                self._give(connection, data)

    def _end_run(self) -> Sequence[tuple[Iterable[Connection], bytes]]:
        """The bytes of the run, and their connections."""
        route, self._route = self._route, NOWHERE
        but, self._but = self._but, None
        self._run_bytes = 0
        found: list[tuple[Iterable[Connection], bytes]] = []
        for group in route.groups.values():
            pieces = group.pieces
            if not pieces:
                continue
            # A connection that is cut during this loop also settles, and finds an empty run.
            group.pieces = []
            connections = group.connections
            if but is not None and but in connections:
                connections = dict(connections)
                del connections[but]
            self._stats.delivered += len(pieces) * len(connections)
            found.append((connections, pieces[0] if len(pieces) == 1 else b"".join(pieces)))
        return found

    def _give(self, connection: Connection, data: bytes) -> None:
        pending = connection.pending
        if pending is None:
            connection.pending = [data]
            self._dirty.append(connection)
        else:
            pending.append(data)
            if connection.stalled:
                self._hold(connection, len(data))

    def _write_run(self) -> None:
        """Close the run at the end of a turn: connections without waiting bytes get it directly."""
        stats = self._stats
        for connections, data in self._end_run():
            writes = 0
            # Iterate over a copy: a failed write removes its connection from the route.
            for connection in list(connections):
                if connection.pending is not None or connection.stalled:
                    self._give(connection, data)
                    continue
                writes += 1
                try:
                    connection.sink.write(data)
                except Exception as error:
                    _cut(connection, error)
            stats.writes += writes
            stats.bytes_out += writes * len(data)

    # ------------------------------------------------------------ one connection

    def send(self, connection: Connection, data: bytes) -> None:
        """Send bytes to one connection at the end of this loop turn."""
        if connection.closed:
            return
        if connection.pending is None and not self._scheduled:
            self._schedule()
        self._give(connection, data)

    def send_now(self, connection: Connection, data: bytes) -> None:
        """Send bytes to one connection before this turn ends, if nothing waits for it.

        For sending to thousands of idle connections in one turn: it costs half as much as `send`.
        """
        if connection.closed or connection.pending is not None or connection.stalled:
            self.send(connection, data)
            return
        try:
            self._write(connection, data)
        except Exception as error:
            _cut(connection, error)

    def await_replay(self, connection: Connection) -> None:
        """Its replay follows: write earlier messages, and hold later ones."""
        self._write_pending(connection)
        connection.stalled |= REPLAYING

    def replay(self, connection: Connection, frames: Iterator[bytes]) -> None:
        """Send frames, created one by one as room permits, then the held messages."""
        if connection.closed or connection.pending is _GONE:
            return
        if connection.backlog is None:
            self._write_pending(connection)
            connection.backlog = deque()
        connection.backlog.append(frames)
        connection.stalled |= REPLAYING
        if len(connection.backlog) > BACKLOGS:
            self.give_up(connection)
        else:
            self._pump(connection)

    def crowded(self, connection: Connection) -> bool:
        """Whether so many replays wait that the client must read some before it requests more."""
        return connection.backlog is not None and len(connection.backlog) >= CROWDED

    async def room(self, connection: Connection) -> None:
        """Wait until its replays are sent, or it is closed."""
        if self.crowded(connection):
            connection.room = asyncio.get_running_loop().create_future()
            await connection.room

    def stall(self, connection: Connection, why: int) -> None:
        """Pause writing to it for this reason."""
        connection.stalled |= why

    def release(self, connection: Connection, why: int) -> None:
        """Remove this reason to pause, and write waiting bytes if it was the last one."""
        if not connection.stalled & why:
            return
        connection.stalled &= ~why
        if connection.backlog is not None:
            self._pump(connection)
        elif not connection.stalled:
            self._write_pending(connection)

    def finish(self, connection: Connection) -> None:
        """Write waiting bytes before the connection is closed."""
        connection.stalled = 0
        connection.backlog = None
        self._write_pending(connection)

    def drop(self, connection: Connection) -> None:
        """Discard waiting bytes, and write again."""
        connection.pending = None
        connection.backlog = None
        connection.held = connection.stalled = 0
        _has_room(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is closed: discard its bytes, now and later."""
        self.drop(connection)
        connection.pending = _GONE

    def discards(self, connection: Connection) -> bool:
        """Whether nothing is sent to it any more: it is closed, or its client no longer reads."""
        return connection.pending is _GONE

    def flush(self) -> None:
        """Write waiting bytes; runs automatically at the end of each loop turn with messages."""
        self._scheduled = False
        self._write_run()
        dirty, self._dirty = self._dirty, []
        stats = self._stats
        for connection in dirty:
            pending = connection.pending
            if not pending:
                continue
            if connection.stalled:
                connection.held = 0
                self._hold(connection, sum(map(len, pending)))
                continue
            try:
                self._write_pending(connection)
            except Exception as error:
                _cut(connection, error)
        stats.writing.observe(perf_counter() - self._began)
        if self._oldest:
            stats.publish_to_write.observe(max(0.0, time() - self._oldest / 1000))
            self._oldest = 0
        while self._too_slow:
            connection = self._too_slow.pop()
            if not connection.closed:
                self.drop(connection)
                self._slow(connection)

    def give_up(self, connection: Connection) -> None:
        """End a connection whose queue is full.

        It ends after this loop turn, so that a loop over a route can continue.
        """
        self.forget(connection)
        self._too_slow.append(connection)
        if not self._scheduled:
            self._schedule()

    # ------------------------------------------------------------ inside

    def _schedule(self) -> None:
        self._scheduled = True
        self._began = perf_counter()
        self._call_soon(self.flush)

    def _write_pending(self, connection: Connection) -> None:
        if connection.stalled or connection.pending is _GONE:
            return
        pending = connection.pending
        connection.pending = None
        connection.held = 0
        if not pending:
            return
        size = sum(map(len, pending))
        if size <= JOIN_BYTES:
            self._write(connection, pending[0] if len(pending) == 1 else b"".join(pending))
            return
        for index, data in enumerate(pending):
            if not self._write(connection, data):
                rest = pending[index + 1 :]
                if rest and not connection.closed:
                    connection.pending = rest
                    self._hold(connection, sum(map(len, rest)))
                return

    def _write(self, connection: Connection, data: bytes) -> bool:
        """Write, and return whether more may follow immediately."""
        self._stats.writes += 1
        self._stats.bytes_out += len(data)
        connection.sink.write(data)
        return not connection.closed and not connection.stalled & ~AWAITING

    def _hold(self, connection: Connection, size: int) -> None:
        connection.held += size
        pending = connection.pending
        limit = max(self._queue_bytes, connection.encoder.queue_bytes)
        if connection.held > limit or (pending and len(pending) > HELD_PIECES):
            self.give_up(connection)

    def _pump(self, connection: Connection) -> None:
        backlog = connection.backlog
        while backlog and not connection.closed and not connection.stalled & ~AWAITING:
            if self._turns.over:
                self._pump_later(connection)
                return
            frame = next(backlog[0], None)
            if frame is None:
                backlog.popleft()
                continue
            if not self._write(connection, frame):
                break
        if not backlog and not connection.closed:
            connection.backlog = None
            connection.stalled &= ~REPLAYING
            self._write_pending(connection)
            _has_room(connection)

    def _pump_later(self, connection: Connection) -> None:
        if connection not in self._queued:
            self._queued.add(connection)
            self._turns.enqueue(partial(self._pump_again, connection))

    def _pump_again(self, connection: Connection) -> None:
        self._queued.discard(connection)
        if connection.backlog is not None:
            self._pump(connection)


def _cut(connection: Connection, error: Exception) -> None:
    """Close a connection whose write failed. The others continue."""
    detail = "cannot write; closing the connection"
    logger.error(detail, exc_info=error, extra=about(connection))
    connection.sink.abort()


def _has_room(connection: Connection) -> None:
    room, connection.room = connection.room, None
    if room is not None and not room.done():
        room.set_result(None)
