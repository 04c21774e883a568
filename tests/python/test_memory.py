"""The in-memory transport."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.generated.wire import PingFrame, PongFrame
from hanzoai.pubsub.testing import VirtualClock
from hanzoai.pubsub.transports import TransportClosed, TransportFailed, memory
from hanzoai.pubsub.wire.codec import Malformed, Unknown
from tests.python.received import open_transport, receive

if TYPE_CHECKING:
    from collections.abc import Callable


class End:
    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ended: list[int | None] = []

    def receive(self, data: bytes) -> None:
        self.got.append(data)

    def closed(self, code: int | None) -> None:
        self.ended.append(code)


class Peer:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.random: Callable[[], float] = lambda: 0.0
        self.end = End()
        self.hold = asyncio.Event()
        self.hold.set()
        self.refuse = False

    async def accept(self, client: memory.MemoryTransport, transport: str) -> End:
        await self.hold.wait()
        if self.refuse:
            raise TransportFailed(4403, "no")
        return self.end

    def http_transport(self) -> Any:
        return None


async def test_frames_go_through_the_codec_both_ways() -> None:
    peer = Peer()
    transport = memory.MemoryTransport(peer)
    await open_transport(transport)
    transport.send(PingFrame())
    assert peer.end.got == [b'{"type":"ping"}']
    transport.arrived(b'{"type":"pong"}')
    transport.arrived(b"not a frame")
    transport.arrived('{"type":"later"}')
    transport.arrived('{"type":"pong"}')
    assert await receive(transport) == [
        PongFrame(),
        Malformed("not JSON: expected ident at line 1 column 2"),
        Unknown("later"),
        PongFrame(),
    ]


async def test_frames_before_the_end_are_received_unless_the_transport_broke() -> None:
    for lose, expected in ((False, 1), (True, 0)):
        transport = memory.MemoryTransport(Peer())
        await open_transport(transport)
        transport.arrived(b'{"type":"pong"}')
        transport.ended(1001, "bye", lose=lose)
        transport.arrived(b'{"type":"pong"}')
        if expected:
            assert len(await receive(transport)) == expected
        for _ in range(2):
            with pytest.raises(TransportClosed, match="bye"):
                await receive(transport)


async def test_a_refusal_and_a_late_acceptance_both_fail() -> None:
    peer = Peer()
    peer.refuse = True
    with pytest.raises(TransportFailed, match="no"):
        await open_transport(memory.MemoryTransport(peer))
    peer = Peer()
    peer.hold.clear()
    transport = memory.MemoryTransport(peer)
    opening = asyncio.create_task(open_transport(transport))
    await peer.clock.settle()
    await transport.close()
    peer.hold.set()
    with pytest.raises(TransportFailed):
        await opening
    assert peer.end.ended == [None]


async def test_closing_tells_the_server_once() -> None:
    peer = Peer()
    transport = memory.MemoryTransport(peer)
    await open_transport(transport)
    await transport.close(4000)
    await transport.close(1000)
    transport.send(PingFrame())
    assert (peer.end.ended, peer.end.got) == ([4000], [])


async def test_every_byte_counts_as_a_heartbeat() -> None:
    peer = Peer()
    transport = memory.MemoryTransport(peer)
    await open_transport(transport)
    await peer.clock.advance(5)
    transport.pinged()
    assert transport.last_received == 5
    await peer.clock.advance(5)
    transport.arrived(b'{"type":"pong"}')
    assert transport.last_received == 10


async def test_peers_are_found_by_name_while_they_exist() -> None:
    peer = Peer()
    url = memory.register("mine", peer)
    assert url == "memory://mine"
    assert memory.find("memory://mine/ws") is peer
    memory.forget("mine")
    with pytest.raises(InvalidOption):
        memory.find(url)
