from __future__ import annotations

import asyncio

import orjson
import pytest
from websockets.frames import Frame, Opcode

from tests.server.websocket_rig import Server, client, raw


@pytest.mark.parametrize("size", [0, 10, 125, 126, 127, 65_000, 65_535, 65_536, 262_000])
async def test_every_length_of_a_frame_passes(server: Server, size: int) -> None:
    async with client(server) as alice:
        await alice.ask("subscribe", topics=["*"], presence=False)
        await alice.say("publish", topic="a", data="x" * size)
        assert (await alice.receive())["message"]["data"] == "x" * size


async def test_fragments_and_binary_frames_are_read(server: Server) -> None:
    async with client(server) as alice:
        await alice.socket.send(['{"type":', '"ping","ref":', '"é1"}'])
        assert (await alice.receive())["ref"] == "é1"
        await alice.socket.send(b'{"type":"ping","ref":"2"}')
        assert (await alice.receive())["ref"] == "2"
        await alice.socket.send([b'{"type":"ping",', b'"ref":"3"}'])
        assert (await alice.receive())["ref"] == "3"


async def test_bytes_may_come_one_by_one_and_frames_many_at_once(server: Server) -> None:
    async with raw(server) as one, raw(server) as two:
        data = Frame(Opcode.TEXT, b'{"type":"auth","token":"alice"}').serialize(mask=True)
        for byte in data:
            one.write(bytes([byte]))
            await asyncio.sleep(0)
            two.frame(b"", Opcode.PING)
        two.write(
            data + Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True) * 50 + data[:9]
        )
        assert b"auth.ok" in (await one.receive())[1]
        frames = [await two.receive() for _ in range(len(data))]
        assert {opcode for opcode, _ in frames} == {Opcode.PONG}
        assert b"auth.ok" in (await two.receive())[1]
        for _ in range(50):
            assert b"pong" in (await two.receive())[1]
        two.write(data[9:])
        assert b"auth.ok" in (await two.receive())[1]


async def test_a_control_frame_may_come_between_fragments(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"au', fin=False)
        peer.frame(b"hello", Opcode.PING)
        assert await peer.receive() == (Opcode.PONG, b"hello")
        peer.frame(b'th","token":"alice"}', Opcode.CONT)
        assert b"auth.ok" in (await peer.receive())[1]


async def test_the_middle_of_a_frame_is_not_taken_for_a_pong(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"auth","token":"alice"}')
        await peer.receive()
        protocol = server.protocol
        text = b'{"type":"ping","ref":"12"}'
        begin = len(text) - 6
        assert begin % 4 == 0
        # With this mask, the last six bytes on the wire are the start of a pong and four bytes.
        mask = bytes((text[begin] ^ 0x8A, text[begin + 1] ^ 0x80, 0, 0))
        wire = bytes(byte ^ mask[place % 4] for place, byte in enumerate(text))
        assert wire[begin:].startswith(b"\x8a\x80")
        protocol.data_received(bytes((0x81, 0x80 | len(text))) + mask + wire[:begin])
        protocol.data_received(wire[begin:])
        assert orjson.loads((await peer.receive())[1])["ref"] == "12"
