from __future__ import annotations

import orjson
import pytest
from websockets.frames import Opcode

from pubsub_server.listeners.websocket.connections import FRAME_EXTRA
from tests.server.websocket_rig import Server, client, close_code, raw, serving, still_serving


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{nope", "invalid_frame"),
        ("[]", "invalid_frame"),
        ('{"type":"levitate"}', "unsupported"),
        ('{"type":"subscribe","topics":"a"}', "invalid_frame"),
        ('{"type":"subscribe","topics":[1]}', "invalid_frame"),
        ('{"type":"publish","topic":"a.*","data":1}', "invalid_topic"),
        ('{"type":"publish","topic":"a","data":' + "[" * 5000, "invalid_frame"),
        ('{"type":"publish","topic":"a","data":"' + "x" * 262_144 + '"}', "payload_too_large"),
    ],
)
async def test_a_wrong_frame_has_its_error_and_the_connection_lives(
    server: Server, text: str, code: str
) -> None:
    async with client(server) as alice:
        await alice.socket.send(text)
        assert (await alice.receive())["code"] == code
        assert (await alice.ask("ping"))["type"] == "pong"


async def test_text_that_is_no_utf_8_ends_the_connection(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"\xff"}')
        opcode, payload = await peer.receive()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 1007)
    await still_serving(server)


async def test_binary_that_is_no_utf_8_is_an_error(server: Server) -> None:
    async with client(server) as alice:
        await alice.socket.send(b'{"type":"\xff"}')
        assert (await alice.receive())["code"] == "invalid_frame"


@pytest.mark.parametrize("length", [100 * 2**20, 2**40, 2**62])
async def test_a_giant_frame_is_refused_by_its_header(server: Server, length: int) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"auth","token":"alice"}')
        await peer.receive()
        peer.write(b"\x81\xff" + length.to_bytes(8, "big") + b"mask" + b"x" * 1000)
        opcode, payload = await peer.receive()
        assert orjson.loads(payload)["code"] == "payload_too_large"
        opcode, payload = await peer.receive()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 4413)
    await server.until_gone()
    await still_serving(server)


async def test_an_unauthenticated_client_may_send_less_than_an_authenticated_one(
    server: Server,
) -> None:
    size = server.settings.max_payload + FRAME_EXTRA
    async with raw(server) as peer:
        peer.frame(b"x" * (size + 1))
        assert orjson.loads((await peer.receive())[1])["code"] == "payload_too_large"
    async with client(server) as alice:
        messages = [{"topic": "a", "data": "x" * 200_000} for _ in range(3)]
        assert len((await alice.ask("publish", ref="1", messages=messages))["results"]) == 3


async def test_fragments_are_bounded_together(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b"x" * 100_000, fin=False)
        for _ in range(5):
            peer.frame(b"x" * 100_000, Opcode.CONT, fin=False)
        assert orjson.loads((await peer.receive())[1])["code"] == "payload_too_large"
    await still_serving(server)


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\x05hello",  # without a mask
        b"\xf1\x80mask",  # reserved bits
        b"\x83\x80mask",  # an opcode that does not exist
        b"\x80\x80mask",  # nothing to continue
        b"\x09\x80mask",  # a ping in fragments
        b"\x89\xfe\x00\x80mask" + b"x" * 128,  # a ping too long
        b"\x01\x80mask\x81\x80mask",  # a second message inside the first
    ],
)
async def test_broken_frames_end_the_connection(server: Server, data: bytes) -> None:
    async with raw(server) as peer:
        peer.write(data)
        opcode, payload = await peer.receive()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 1002)
    await server.until_gone()
    await still_serving(server)


async def test_a_million_subscriptions_are_refused_beyond_the_limit() -> None:
    async with serving(max_subscriptions=100) as server, client(server) as alice:
        for number in range(0, 5_000, 1000):
            topics = [f"t{n}" for n in range(number, number + 1000)]
            answer = await alice.ask("subscribe", topics=topics, ref="1", presence=False)
            assert len(answer["topics"]) == (100 if number == 0 else 0)
            assert {d["code"] for d in answer["denied"]} == {"subscription_limit"}
        topics = ["a"] * 1_000_000
        answer = await alice.ask("subscribe", topics=topics, ref="2")
        assert (answer["code"], answer["ref"]) == ("invalid_frame", "2")
        assert server.hub.stats.subscriptions == 100
        await still_serving(server)
