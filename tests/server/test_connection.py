"""The bytes of a connection: joined, shared, bounded."""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING, Any, cast

from pubsub_server.backplane import Entry
from pubsub_server.hub import delivery as module
from pubsub_server.hub.delivery import Delivery
from pubsub_server.hub.routing import Route
from pubsub_server.interfaces import Stats
from pubsub_server.listeners.http.encoder import StreamEncoder
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.shared.connection import PAUSED, Connection
from pubsub_server.shared.turns import Turns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    import pytest

    from pubsub_server.shared.encoder import Encoder

STREAM = StreamEncoder(lambda: maxsize)


class _Keeper:
    def check(self, connection: Connection, now: float) -> float | None:
        return None


class Sink:
    """Accepts bytes until `room` is used up, and then pauses."""

    def __init__(self, lab: Lab, room: int = 10**9) -> None:
        self.lab = lab
        self.room = room
        self.writes: list[bytes] = []
        self.connection: Connection | None = None

    caller = None

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.room -= len(data)
        if self.room < 0 and self.connection is not None:
            self.lab.delivery.stall(self.connection, PAUSED)

    def drain(self, room: int) -> None:
        assert self.connection is not None
        self.room = room
        self.lab.delivery.release(self.connection, PAUSED)

    def buffered(self) -> int:
        return 0

    def close(self, code: int, reason: str) -> None: ...

    def hold(self, on: bool) -> None: ...

    def abort(self) -> None: ...


class _Loop:
    """Runs nothing on its own, like a lab."""

    def __init__(self, turn: list[Callable[[], None]]) -> None:
        self.call_soon = turn.append


class Lab:
    def __init__(self, queue: int = 1000) -> None:
        self.turn: list[Callable[[], None]] = []
        self.slow: list[Connection] = []
        self.stats = Stats()
        self.turns = Turns(cast("asyncio.AbstractEventLoop", _Loop(self.turn)))
        self.delivery = Delivery(self.turn.append, queue, self.cut, self.stats, self.turns)

    def cut(self, connection: Connection) -> None:
        self.slow.append(connection)
        connection.closed = True
        self.delivery.forget(connection)

    def end_turn(self) -> None:
        while self.turn:
            self.turn.pop(0)()

    def connection(self, room: int = 10**9, encoder: Encoder = SOCKET) -> Any:
        sink = Sink(self, room)
        connection = sink.connection = Connection(sink, encoder, _Keeper(), 0)
        return connection


def entry(number: int, size: int = 10) -> Entry:
    return Entry("t", f"m{number}", number, number, 0, b'"%0*d"' % (size, number))


def text(number: int, size: int = 10) -> bytes:
    return SOCKET.message(entry(number, size))


def test_an_idle_connection_owns_no_buffer_and_no_queue() -> None:
    lab = Lab()
    a = lab.connection()
    lab.delivery.message(Route([a]), entry(1))
    lab.end_turn()
    assert a.pending is None
    assert a.backlog is None
    assert a.verdicts is None
    assert not hasattr(a, "__dict__")


def test_messages_of_one_loop_turn_are_sent_in_one_write() -> None:
    lab = Lab()
    a, b = lab.connection(), lab.connection()
    both = Route([a, b])
    for number in range(5):
        lab.delivery.message(both, entry(number))
    lab.delivery.send(a, b"answer")
    assert a.sink.writes == []
    assert len(lab.turn) == 1
    lab.end_turn()
    joined = b"".join(text(number) for number in range(5))
    assert sorted(a.sink.writes[0].split(b"answer")) == sorted([joined, b""])
    assert b.sink.writes == [joined]
    assert len(a.sink.writes) == 1


def test_the_joined_bytes_are_shared_by_all_connections() -> None:
    lab = Lab()
    connections = [lab.connection() for _ in range(3)]
    for number in range(3):
        lab.delivery.message(Route(connections), entry(number)) if number == 0 else None
    route = Route(connections)
    for number in range(3):
        lab.delivery.message(route, entry(number))
    lab.delivery.close_run()
    first = connections[0].pending[-1]
    assert all(connection.pending[-1] is first for connection in connections)


def test_order_is_kept_over_several_routes() -> None:
    lab = Lab()
    a, b = lab.connection(), lab.connection()
    one, two = Route([a]), Route([a, b])
    for number in range(6):
        lab.delivery.message((one, two)[number % 2], entry(number))
    lab.end_turn()
    assert a.sink.writes == [b"".join(text(number) for number in range(6))]
    assert b.sink.writes == [b"".join(text(number) for number in (1, 3, 5))]


def test_each_wire_form_has_its_own_bytes() -> None:
    lab = Lab()
    a, s = lab.connection(), lab.connection(encoder=STREAM)
    lab.delivery.message(Route([a, s]), entry(1))
    lab.end_turn()
    assert a.sink.writes == [text(1)]
    assert s.sink.writes == [STREAM.message(entry(1))]


def test_a_paused_connection_is_written_to_when_it_has_room_again() -> None:
    lab = Lab()
    a = lab.connection(room=0)
    route = Route([a])
    for number in range(4):
        lab.delivery.message(route, entry(number))
        lab.end_turn()
    assert a.sink.writes == [text(0)]
    a.sink.drain(1000)
    assert b"".join(a.sink.writes) == b"".join(text(number) for number in range(4))
    assert a.pending is None
    assert a.held == 0


def test_a_slow_consumer_costs_at_most_its_queue_and_is_cut() -> None:
    lab = Lab(queue=500)
    slow, quick = lab.connection(room=0), lab.connection()
    route = Route([slow, quick])
    for number in range(100):
        lab.delivery.message(route, entry(number))
        lab.end_turn()
        assert sum(map(len, slow.pending or ())) <= 500
    assert lab.slow == [slow]
    assert not slow.pending
    assert b"".join(quick.sink.writes) == b"".join(text(number) for number in range(100))


def test_cutting_a_client_during_a_run_costs_the_others_nothing() -> None:
    lab = Lab(queue=20)
    slow, quick = lab.connection(room=0), lab.connection()
    stream = lab.connection(encoder=STREAM)
    route = Route([slow, quick, stream])
    lab.delivery.send(slow, b"x")
    lab.end_turn()
    lab.delivery.send(slow, b"y")
    lab.end_turn()

    def cut(connection: Connection) -> None:
        lab.cut(connection)
        lab.delivery.close_run()

    lab.delivery._slow = cut
    lab.delivery.message(route, entry(1))
    lab.end_turn()
    assert lab.slow == [slow]
    assert quick.sink.writes == [text(1)]
    assert len(stream.sink.writes) == 1


def test_held_bytes_are_counted_once_for_every_source() -> None:
    lab = Lab(queue=10_000)
    a = lab.connection(room=0)
    lab.delivery.send(a, b"x")
    lab.end_turn()
    lab.delivery.send(a, b"y" * 100)
    lab.delivery.send(a, b"y" * 100)
    lab.end_turn()
    lab.delivery.send(a, b"y" * 100)
    lab.delivery.message(Route([a]), entry(1))
    lab.end_turn()
    assert a.held == 300 + len(text(1))


def test_too_many_small_pieces_make_a_slow_consumer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_PIECES", 10)
    lab = Lab(queue=10**9)
    a = lab.connection(room=0)
    for _ in range(20):
        lab.delivery.send(a, b"x")
        lab.end_turn()
    assert lab.slow == [a]


def test_much_for_one_connection_is_written_in_pieces_until_it_pauses() -> None:
    lab = Lab(queue=10**9)
    a = lab.connection(room=100_000)
    route = Route([a])
    for number in range(4):
        lab.delivery.message(route, entry(number, 200_000))
    lab.end_turn()
    assert sum(map(len, a.sink.writes)) < 4 * 200_000
    a.sink.drain(10**9)
    assert b"".join(a.sink.writes) == b"".join(text(number, 200_000) for number in range(4))


def test_a_replay_goes_out_as_there_is_room_and_live_messages_follow_it() -> None:
    lab = Lab(queue=10**6)
    a = lab.connection(room=250)
    made: list[int] = []

    def frames() -> Any:
        for number in range(10):
            made.append(number)
            yield b"%d" % number * 100

    lab.delivery.send(a, b"before")
    lab.delivery.replay(a, frames())
    lab.delivery.message(Route([a]), entry(7))
    lab.end_turn()
    assert len(made) < 5
    while len(made) < 10:
        before = len(made)
        a.sink.drain(250)
        lab.delivery.message(Route([a]), entry(7))
        lab.end_turn()
        assert len(made) > before
    a.sink.drain(10**6)
    sent = b"".join(a.sink.writes)
    replayed = b"".join(b"%d" % number * 100 for number in range(10))
    assert sent.startswith(b"before" + replayed + text(7))
    assert a.backlog is None
    assert a.stalled == 0


def test_two_replays_follow_each_other() -> None:
    lab = Lab()
    a = lab.connection(room=0)
    lab.delivery.replay(a, iter([b"1", b"2"]))
    lab.delivery.replay(a, iter([b"3", b"4"]))
    a.sink.drain(100)
    assert b"".join(a.sink.writes) == b"1234"


def test_a_bomb_of_replays_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOGS", 10)
    lab = Lab()
    a = lab.connection(room=0)
    for _ in range(20):
        lab.delivery.replay(a, iter([b"x"] * 5))
    lab.end_turn()
    assert lab.slow == [a]


def test_nothing_goes_to_a_connection_that_is_gone() -> None:
    lab = Lab()
    a = lab.connection()
    lab.delivery.send(a, b"x")
    a.closed = True
    lab.delivery.forget(a)
    lab.end_turn()
    lab.delivery.send(a, b"y")
    lab.end_turn()
    assert a.sink.writes == []
