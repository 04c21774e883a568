from __future__ import annotations

import asyncio
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from pubsub_server.listeners.websocket.protocol import SocketProtocol
from tests.server.websocket_rig import Server


class Wire:
    """A transport without a network."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.closed = False
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def get_extra_info(self, name: str) -> None:
        """Return no information about the peer."""

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0


UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


def plugged(server: Server) -> tuple[SocketProtocol, Wire]:
    wire: Any = Wire()
    protocol = SocketProtocol(server.connections)
    protocol.connection_made(wire)
    return protocol, wire


def received(wire: Wire) -> list[Frame]:
    """Return the frames that the server has sent since the handshake."""
    parser = Protocol(CLIENT, max_size=None)
    parser.receive_data(bytes(wire.sent).partition(b"\r\n\r\n")[2])
    return [event for event in parser.events_received() if isinstance(event, Frame)]


@settings(deadline=None, max_examples=25)
@given(st.data())
async def test_connections_whose_bytes_come_interleaved_share_parsers_without_mixing(
    data: st.DataObject,
) -> None:
    server = Server({})
    count = data.draw(st.integers(2, 4))
    plugs = [plugged(server) for _ in range(count)]
    streams: list[bytes] = []
    expected: list[list[str]] = []
    for number in range(count):
        stream, refs = UPGRADE, []
        for step in range(data.draw(st.integers(1, 6))):
            ref = f"{number}.{step}"
            text = orjson.dumps({"type": "ping", "ref": ref})
            padding = data.draw(st.sampled_from([0, 1, 100, 130, 70_000]))
            text += b" " * padding
            cut = data.draw(st.integers(0, len(text)))
            if data.draw(st.booleans()):
                stream += Frame(Opcode.TEXT, text).serialize(mask=True)
            else:
                stream += Frame(Opcode.TEXT, text[:cut], False).serialize(mask=True)
                stream += Frame(Opcode.PING, b"p").serialize(mask=True)
                stream += Frame(Opcode.CONT, text[cut:]).serialize(mask=True)
            refs.append(ref)
        streams.append(stream)
        expected.append(refs)
    while any(streams):
        number = data.draw(st.sampled_from([n for n in range(count) if streams[n]]))
        size = data.draw(st.integers(1, len(streams[number])))
        piece, streams[number] = streams[number][:size], streams[number][size:]
        protocol, wire = plugs[number]
        protocol.data_received(piece)
        while not wire.reads:  # noqa: ASYNC110
            await asyncio.sleep(0)
    server.hub.core.delivery.flush()
    for (protocol, wire), refs in zip(plugs, expected, strict=True):
        answers = [orjson.loads(bytes(f.data)) for f in received(wire) if f.opcode is Opcode.TEXT]
        assert [(a["code"], a["ref"]) for a in answers] == [("unauthenticated", r) for r in refs]
        assert protocol._parser is None
        protocol.connection_lost(None)
    server.hub.core.wheel.stop()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.binary(max_size=50) | st.just(UPGRADE), max_size=8), st.booleans())
async def test_any_bytes_are_survived(chunks: list[bytes], opened: bool) -> None:
    server = Server({})
    protocol, wire = plugged(server)
    for chunk in [UPGRADE, *chunks] if opened else chunks:
        protocol.data_received(chunk)
    server.hub.core.delivery.flush()
    protocol.connection_lost(None)
    assert not server.hub._open
    assert not server.connections.open
    server.hub.core.wheel.stop()
    del wire
