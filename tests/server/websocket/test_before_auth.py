"""The resources that a WebSocket may use before it has authenticated."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Opcode

from tests.server.websocket_rig import BOUND, Raw, Server, client, close_code, raw, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

AUTH = b'{"type":"auth","token":"alice"}'
HEAD = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n"
)


async def held(server: Server, at_least: int) -> None:
    """Wait until the server holds this number of bytes for unauthenticated sockets."""
    async with asyncio.timeout(BOUND):
        while server.connections.pre_auth.held < at_least:  # noqa: ASYNC110
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def forwarded(server: Server, address: str) -> AsyncGenerator[tuple[Raw, bytes]]:
    """Open a socket like a proxy for a client; return it with the head of the response."""
    async with raw(server, shake=False) as peer:
        peer.write(HEAD + f"X-Forwarded-For: {address}\r\n\r\n".encode())
        async with asyncio.timeout(BOUND):
            yield peer, await peer.reader.readuntil(b"\r\n\r\n")


async def test_a_socket_is_not_read_while_its_token_is_checked(server: Server) -> None:
    server.people.gate = asyncio.Event()
    async with raw(server) as peer:
        peer.frame(AUTH)
        protocol = server.protocol
        transport: Any = protocol._transport
        async with asyncio.timeout(BOUND):
            while transport.is_reading():  # noqa: ASYNC110
                await asyncio.sleep(0)
        # All of this waits in the network until the sender has authenticated.
        for number in range(5):
            frame = {"type": "publish", "topic": "a", "data": "x" * 200_000, "ref": str(number)}
            peer.frame(orjson.dumps(frame))
        server.people.gate.set()
        answers = [orjson.loads((await peer.receive())[1]) for _ in range(6)]
    assert answers[0]["type"] == "auth.ok"
    assert [answer["ref"] for answer in answers[1:]] == list("01234")
    assert {answer["type"] for answer in answers[1:]} == {"published"}


async def test_a_socket_whose_token_is_refused_gets_the_reason_and_its_slot_is_free(
    server: Server,
) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"auth","token":"bad"}')
        assert orjson.loads((await peer.receive())[1])["code"] == "token_invalid"
        opcode, payload = await peer.receive()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 4401)
    await server.until_gone()
    assert len(server.connections.pre_auth) == 0
    assert server.connections.pre_auth.held == 0


@pytest.mark.parametrize("way", ["half a frame", "fragments", "behind auth", "half a request"])
async def test_bytes_before_authentication_are_bounded_for_each_address(way: str) -> None:
    async with serving(unauthenticated_bytes=200_000) as server:
        server.people.gate = asyncio.Event()

        def send(peer: Raw, size: int) -> None:
            match way:
                case "half a frame":
                    peer.write(b"\x81\xff" + (250_000).to_bytes(8, "big") + b"\0" * (4 + size))
                case "fragments":
                    peer.frame(b"x" * size, fin=False)
                case "behind auth":
                    peer.frame(AUTH)
                    peer.frame(b'"' + b"x" * size + b'"')
                case _:
                    peer.write(HEAD + b"X: " + b"y" * (size // 8))

        whole = way != "half a request"
        async with contextlib.AsyncExitStack() as stack:
            held_bytes, count = (150_000, 1) if whole else (30_000 * 6, 6)
            for _ in range(count):
                first = await stack.enter_async_context(raw(server, shake=whole))
                send(first, 150_000 if whole else 240_000)
            await held(server, held_bytes * 2 // 3)
            second = await stack.enter_async_context(raw(server, shake=whole))
            send(second, 150_000 if whole else 240_000)
            data = await second.rest()
            assert (b"connection_limit" in data) is whole
            assert ((4429).to_bytes(2, "big") in data) is whole
            assert data.startswith(b"HTTP/1.1 429 ") is not whole
            assert server.connections.pre_auth.refused == 1
            # The address may still connect: only this socket waits for its turn.
            server.people.gate.set()
            async with client(server, "bob") as bob:
                assert (await bob.ask("ping"))["type"] == "pong"
        await server.until_gone()
        assert server.connections.pre_auth.held == 0


async def test_sockets_before_authentication_are_bounded_for_each_address() -> None:
    async with serving(unauthenticated_per_address=2) as server:
        async with client(server, None) as one, client(server, None) as two:
            with pytest.raises(InvalidStatus) as caught:
                async with client(server, None):
                    pass
            assert caught.value.response.status_code == 429
            assert caught.value.response.headers["Retry-After"] == "1"
            assert (await one.ask("auth", token="alice"))["type"] == "auth.ok"
            # Its slot is free, and the other socket still has its own.
            async with client(server, "bob"), client(server, "carol"):
                assert (await two.ask("auth", token="dan"))["type"] == "auth.ok"
        await server.until_gone()
        assert len(server.connections.pre_auth) == 0


async def test_behind_a_trusted_proxy_each_client_has_limits_of_its_own() -> None:
    async with (
        serving(trusted_proxies=["127.0.0.1"], unauthenticated_per_address=1) as server,
        forwarded(server, "192.0.2.1") as (_, first),
        forwarded(server, "192.0.2.1") as (_, again),
        forwarded(server, "192.0.2.2") as (_, other),
    ):
        assert first.startswith(b"HTTP/1.1 101 ")
        assert again.startswith(b"HTTP/1.1 429 ")
        assert other.startswith(b"HTTP/1.1 101 ")


async def test_a_subscription_that_follows_auth_at_once_still_holds_the_socket(
    server: Server,
) -> None:
    async with raw(server) as peer:
        peer.frame(AUTH)
        peer.frame(b'{"type":"subscribe","topics":["a"],"ref":"s"}')
        peer.frame(b'{"type":"ping","ref":"p"}')
        assert orjson.loads((await peer.receive())[1])["type"] == "auth.ok"
        answers = [orjson.loads((await peer.receive())[1]) for _ in range(3)]
    assert [answer["ref"] for answer in answers if "ref" in answer] == ["s", "p"]
