"""From a message to the writes: encoded once, joined, one write for a connection and loop turn.

Messages that follow one another to the same route form a run: their bytes are joined once for all
of its connections. Nothing is written before the loop turn ends, so what a burst of publishes
brings to a connection leaves in one system call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import perf_counter, time
from typing import TYPE_CHECKING, Final

from pubsub_server.hub.routing import NOWHERE
from pubsub_server.shared.connection import REPLAYING, about

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.hub.routing import Route
    from pubsub_server.interfaces import Stats
    from pubsub_server.shared.connection import Connection

logger = logging.getLogger(__name__)

RUN_BYTES: Final = 262_144
"""A run is closed at this size, so that no connection copies or waits for more in one piece."""
JOIN_BYTES: Final = 65_536
"""More than this for one connection is written piece by piece: the pieces are shared, joined
bytes would be its own."""
HELD_PIECES: Final = 100_000
BACKLOGS: Final = 10_000
CROWDED: Final = 32
"""Replays that wait for one connection before it is asked to read first."""


class _Nothing(list[bytes]):
    """Takes what a connection that is gone is given, for the runs that still name it."""

    def append(self, data: bytes, /) -> None:
        pass


_GONE: Final = _Nothing()


class Delivery:
    """Owns the bytes between the hub and the sinks.

    Args:
        call_soon: Calls back at the end of this loop turn.
        queue_bytes: What a stalled connection may have waiting.
        slow: Gets a connection that exceeds it.
        stats: Counters.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        queue_bytes: int,
        slow: Callable[[Connection], None],
        stats: Stats,
    ) -> None:
        self._call_soon = call_soon
        self._queue_bytes = queue_bytes
        self._slow = slow
        self._stats = stats
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
            but: A connection of the route that does not get it.
        """
        if route is not self._route or but is not self._but:
            self.settle()
            self._route = route
            self._but = but
        for group in route.groups.values():
            data = group.encoder.message(entry)
            group.pieces.append(data)
            self._run_bytes += len(data)
        if self._run_bytes > RUN_BYTES:
            self.settle()
        if not self._oldest:
            self._oldest = entry.timestamp
        if not self._scheduled:
            self._schedule()

    def settle(self) -> None:
        """Close the run: give its bytes to the connections.

        Needed before a subscription changes, as the route of the run holds no longer then.
        """
        for connections, data in self._end_run():
            for connection in connections:
                self._give(connection, data)

    def _end_run(self) -> Sequence[tuple[Iterable[Connection], bytes]]:
        """What the run brings, and to whom."""
        route, self._route = self._route, NOWHERE
        but, self._but = self._but, None
        self._run_bytes = 0
        found: list[tuple[Iterable[Connection], bytes]] = []
        for group in route.groups.values():
            pieces = group.pieces
            if not pieces:
                continue
            # A connection that is cut while it is given these settles too, and finds nothing.
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
        """Close the run when nothing more can come: who has nothing waiting gets it at once."""
        stats = self._stats
        for connections, data in self._end_run():
            writes = 0
            # A copy: a connection that its write cuts leaves the route.
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
        if connection.pending is None:
            connection.pending = [data]
            self._dirty.append(connection)
            if not self._scheduled:
                self._schedule()
        else:
            connection.pending.append(data)
            if connection.stalled:
                self._hold(connection, len(data))

    def send_now(self, connection: Connection, data: bytes) -> None:
        """Send bytes to one connection before this turn ends, if nothing waits for it.

        For what goes to thousands of idle connections in one turn: it costs half of `send`.
        """
        if connection.closed or connection.pending is not None or connection.stalled:
            self.send(connection, data)
            return
        try:
            self._write(connection, data)
        except Exception as error:
            _cut(connection, error)

    def await_replay(self, connection: Connection) -> None:
        """Its replay comes later: write what it had before, and keep what comes meanwhile."""
        self._write_pending(connection)
        connection.stalled |= REPLAYING

    def replay(self, connection: Connection, frames: Iterator[bytes]) -> None:
        """Send frames that are made one by one, when there is room; then what came meanwhile."""
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
        """Whether so many replays wait that it should read some before it asks for more."""
        return connection.backlog is not None and len(connection.backlog) >= CROWDED

    async def room(self, connection: Connection) -> None:
        """Wait until its replays are sent, or it is gone."""
        if self.crowded(connection):
            connection.room = asyncio.get_running_loop().create_future()
            await connection.room

    def stall(self, connection: Connection, why: int) -> None:
        """Write nothing more to it for this reason."""
        connection.stalled |= why

    def release(self, connection: Connection, why: int) -> None:
        """This reason is gone; write what waits if it was the last one."""
        if not connection.stalled & why:
            return
        connection.stalled &= ~why
        if connection.backlog is not None:
            self._pump(connection)
        elif not connection.stalled:
            self._write_pending(connection)

    def finish(self, connection: Connection) -> None:
        """Write what waits before the connection is closed."""
        connection.stalled = 0
        connection.backlog = None
        self._write_pending(connection)

    def drop(self, connection: Connection) -> None:
        """Forget what waits, and write again."""
        connection.pending = None
        connection.backlog = None
        connection.held = connection.stalled = 0
        _has_room(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is gone: nothing waits for it, now or later."""
        self.drop(connection)
        connection.pending = _GONE

    def flush(self) -> None:
        """Write now what waits; called by itself at the end of each loop turn with something."""
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
        """Write, and say whether more may follow at once."""
        self._stats.writes += 1
        self._stats.bytes_out += len(data)
        connection.sink.write(data)
        return not connection.closed and not connection.stalled & ~REPLAYING

    def _hold(self, connection: Connection, size: int) -> None:
        connection.held += size
        pending = connection.pending
        limit = max(self._queue_bytes, connection.encoder.queue_bytes)
        if connection.held > limit or (pending and len(pending) > HELD_PIECES):
            self.give_up(connection)

    def _pump(self, connection: Connection) -> None:
        backlog = connection.backlog
        while backlog and not connection.closed and not connection.stalled & ~REPLAYING:
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


def _cut(connection: Connection, error: Exception) -> None:
    """Close a connection whose write failed. The others continue."""
    said = "cannot write; closing the connection"
    logger.error(said, exc_info=error, extra=about(connection))
    connection.sink.abort()


def _has_room(connection: Connection) -> None:
    room, connection.room = connection.room, None
    if room is not None and not room.done():
        room.set_result(None)
