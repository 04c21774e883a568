"""Connections whose clients send without a pause take turns, so that the others are not delayed."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from websockets.frames import Frame, Opcode

from pubsub_server.listeners.websocket.protocol import MEDIUM, PIECE, WAITING, SocketProtocol
from pubsub_server.listeners.websocket.text_frames import MOST
from pubsub_server.shared import turns
from tests.cluster.waiting import until
from tests.server.websocket.test_any_bytes import UPGRADE, Wire, plugged
from tests.server.websocket_rig import BOUND, Server, serving

if TYPE_CHECKING:
    from pubsub_server.shared.connection import Connection


def masked(text: bytes) -> bytes:
    return Frame(Opcode.TEXT, text).serialize(mask=True)


AUTH = masked(orjson.dumps({"type": "auth", "token": "alice"}))
SMALL_PING = masked(orjson.dumps({"type": "ping"}))
PING = masked(orjson.dumps({"type": "ping"}).ljust(50_000))
LARGE_READ = 250_000
PINGS = LARGE_READ // len(PING)
"""Complete pings of such a read."""


def read(protocol: SocketProtocol, size: int) -> None:
    """Deliver so many bytes of pings, the last of which is incomplete."""
    protocol.data_received((PING * (size // len(PING) + 1))[:size])


def is_read(wire: Wire) -> bool:
    return wire.reads


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any work uses up the time of a turn."""
    monkeypatch.setattr(turns, "SECONDS", 1e-9)


def make_busy(server: Server) -> None:
    """Let the next read wait."""
    server.connections.turns.enqueue(lambda: None)


async def opened(server: Server, count: int) -> list[tuple[SocketProtocol, Wire]]:
    plugs = [plugged(server) for _ in range(count)]
    for protocol, _ in plugs:
        protocol.data_received(UPGRADE + AUTH)
    # Authentication is a task.
    async with asyncio.timeout(BOUND):
        await until(lambda: all(b"auth.ok" in wire.sent for _, wire in plugs))
    return plugs


def pongs(wire: Wire) -> int:
    return wire.sent.count(b"pong")


async def test_in_each_turn_one_connection_handles_what_it_has_read(server: Server) -> None:
    plugs = await opened(server, 3)
    for protocol, _ in plugs:
        read(protocol, LARGE_READ)
    wires = [wire for _, wire in plugs]
    for turn in range(3):
        server.hub.core.delivery.flush()
        assert [is_read(wire) for wire in wires] == [each <= turn for each in range(3)]
        assert [pongs(wire) for wire in wires] == [
            PINGS if each <= turn else 0 for each in range(3)
        ]
        await asyncio.sleep(0)
    for protocol, _ in plugs:
        protocol.connection_lost(None)


async def test_reads_of_many_small_frames_wait_when_the_time_of_a_turn_is_used_up(
    server: Server,
) -> None:
    plugs = await opened(server, 4)
    many = MEDIUM // len(SMALL_PING) + 1
    *busy, (other, received) = plugs
    for protocol, _ in busy:
        protocol.data_received(SMALL_PING * many)
    other.data_received(SMALL_PING)
    for turn in range(1, 4):
        server.hub.core.delivery.flush()
        assert [pongs(wire) for _, wire in busy] == [many] * turn + [0] * (3 - turn)
        assert [is_read(wire) for _, wire in busy] == [True] * turn + [False] * (3 - turn)
        assert pongs(received) == 1
        await asyncio.sleep(0)
    for protocol, _ in plugs:
        protocol.connection_lost(None)


async def test_a_read_of_tiny_messages_takes_several_turns(server: Server) -> None:
    ((protocol, wire),) = await opened(server, 1)
    protocol.data_received(SMALL_PING * (2 * MOST + 1))
    for done in (MOST, 2 * MOST, 2 * MOST + 1):
        server.hub.core.delivery.flush()
        assert pongs(wire) == done
        assert is_read(wire) is (done > 2 * MOST)
        await asyncio.sleep(0)
    protocol.connection_lost(None)


async def test_a_read_of_control_frames_takes_several_turns(server: Server) -> None:
    ((protocol, wire),) = await opened(server, 1)
    control = Frame(Opcode.PONG, b"x").serialize(mask=True)
    protocol.data_received(control * (2 * PIECE // len(control)) + SMALL_PING)
    for turn in range(3):
        server.hub.core.delivery.flush()
        assert pongs(wire) == (turn == 2)
        assert is_read(wire) is (turn == 2)
        await asyncio.sleep(0)
    protocol.connection_lost(None)


async def test_a_client_that_closes_its_side_behind_a_read_of_several_turns_loses_nothing(
    server: Server,
) -> None:
    ((protocol, wire),) = await opened(server, 1)
    protocol.data_received(SMALL_PING * (3 * MOST))
    protocol.eof_received()
    server.hub.core.delivery.flush()
    assert pongs(wire) == 3 * MOST
    protocol.connection_lost(None)


async def test_a_small_read_does_not_wait_for_large_ones(server: Server) -> None:
    (first, _), (second, _), (other, wire) = await opened(server, 3)
    for protocol in (first, second):
        read(protocol, LARGE_READ)
    other.data_received(SMALL_PING)
    server.hub.core.delivery.flush()
    assert is_read(wire)
    assert pongs(wire) == 1
    for protocol in (first, second, other):
        protocol.connection_lost(None)


async def test_above_the_limit_reads_use_no_more_memory_but_wait(server: Server) -> None:
    ((protocol, wire),) = await opened(server, 1)
    for _ in range(WAITING):
        server.connections.turns.enqueue(lambda: None)
    read(protocol, LARGE_READ)
    server.hub.core.delivery.flush()
    assert pongs(wire) == PINGS
    for _ in range(WAITING):
        assert not is_read(wire)
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert is_read(wire)
    protocol.connection_lost(None)


async def test_a_read_whose_client_has_closed_its_side_does_not_wait(server: Server) -> None:
    plugs = await opened(server, 3)
    for protocol, _ in plugs:
        read(protocol, LARGE_READ)
    protocol, wire = plugs[-1]
    protocol.eof_received()
    server.hub.core.delivery.flush()
    assert pongs(wire) == PINGS
    for protocol, _ in plugs:
        protocol.connection_lost(None)


async def test_a_failure_in_its_turn_ends_the_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((protocol, wire),) = await opened(server, 1)
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(server.hub, "receive", fail)
    make_busy(server)
    read(protocol, LARGE_READ)
    for _ in range(2):
        await asyncio.sleep(0)
    assert wire.is_closing()
    assert len(failures) == 1


async def test_a_held_connection_is_not_read_in_its_turn(server: Server) -> None:
    ((protocol, wire),) = await opened(server, 1)
    make_busy(server)
    read(protocol, LARGE_READ)
    protocol.hold(True)
    for _ in range(2):
        await asyncio.sleep(0)
    assert not is_read(wire)
    protocol.hold(False)
    assert is_read(wire)
    protocol.connection_lost(None)


async def test_a_connection_that_ends_leaves_the_others_their_turns(server: Server) -> None:
    (one, _), (_, wire) = plugs = await opened(server, 2)
    make_busy(server)
    for protocol, _ in plugs:
        read(protocol, LARGE_READ)
    assert not is_read(wire)
    one.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert is_read(wire)
    plugs[1][0].connection_lost(None)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a socket holds fewer bytes")
def test_in_one_turn_of_uvloop_one_read_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvloop  # Windows has none

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_flood(monkeypatch))


async def _flood(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    turn, over = 0, False
    reads: Counter[int] = Counter()
    read = SocketProtocol._read

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if not over:
            loop.call_soon(next_turn)

    def note(self: SocketProtocol, connection: Connection, data: bytes) -> None:
        if len(data) >= MEDIUM:
            reads[turn] += 1
        read(self, connection, data)

    loop.call_soon(next_turn)
    monkeypatch.setattr(SocketProtocol, "_read", note)
    async with asyncio.timeout(BOUND), serving() as server:
        with ExitStack() as stack:
            floods = [stack.enter_context(socket.socket()) for _ in range(3)]
            for flood in floods:
                flood.setblocking(False)
                await loop.sock_connect(flood, ("127.0.0.1", server.port))
                await loop.sock_sendall(flood, UPGRADE + AUTH)
                got = b""
                while b"auth.ok" not in got:
                    got += await loop.sock_recv(flood, 4096)
            stats = server.hub.stats
            expected = stats.frames_in + sum(_fill(flood) // len(PING) for flood in floods)
            await until(lambda: stats.frames_in, expected)
            # The end of a connection reads what is left in one turn.
            assert set(reads.values()) == {1}
        over = True


def _fill(flood: socket.socket) -> int:
    """Send pings until the socket takes no more; return the number of bytes."""
    size = 0
    while True:
        try:
            # Continue where the last call ended within a ping.
            size += flood.send(PING[size % len(PING) :] + PING * 20)
        except BlockingIOError:
            return size
