from __future__ import annotations

import asyncio
import contextlib

import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from tests.server.websocket_rig import BOUND, Server, client, raw, serving


async def test_a_plain_http_request_gets_an_explanation(server: Server) -> None:
    async with raw(server, shake=False) as peer:
        peer.write(b"GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await peer.rest()
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b"Upgrade: websocket" in answer
    assert b"WebSocket client" in answer


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /ws HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"400"),
        (b"GET /ws HTTP/1.1\r\n" + b"X: y\r\n" * 6000 + b"\r\n", b"431"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", b"400"),
        # A client that begins TLS on this plaintext port learns it before `auth_deadline`.
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        # So does a client of the event stream protocol.
        (b"\x00\x06status\x00\x00\x00\x00", b"400"),
    ],
)
async def test_a_wrong_request_has_its_status(server: Server, head: bytes, status: bytes) -> None:
    async with raw(server, shake=False) as peer:
        peer.write(head)
        assert (await peer.rest()).startswith(b"HTTP/1.1 " + status)
    await server.until_gone()


async def test_a_page_that_uses_the_wrong_port_may_read_the_answer(server: Server) -> None:
    head = b" /v1/session HTTP/1.1\r\nHost: x\r\nOrigin: https://app.example\r\n"
    asks = (b"Access-Control-Request-Method: GET", b"Access-Control-Request-Headers: authorization")
    async with raw(server, shake=False) as peer:
        peer.write(b"OPTIONS" + head + b"\r\n".join((*asks, b"", b"")))
        preflight = await peer.rest()
    async with raw(server, shake=False) as peer:
        peer.write(b"GET" + head + b"\r\n")
        answer = await peer.rest()
    assert preflight.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nAccess-Control-Allow-Methods: GET\r\n" in preflight
    assert b"\r\nAccess-Control-Allow-Headers: authorization\r\n" in preflight
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"WebSocket endpoint is /ws" in answer
    async with raw(server, shake=False) as peer:
        peer.write(b"POST" + head + b"Content-Length: 2\r\n\r\n{}")
        with_body = await peer.rest()
    assert b"on the HTTP port" in with_body
    for each in (preflight, answer, with_body):
        assert b"\r\nAccess-Control-Allow-Origin: *\r\n" in each


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00\x01\x00", b"\x00" * 100, b"HELO there\r\n\r\n"]
)
async def test_invalid_http_is_harmless(junk: bytes) -> None:
    # A client must come in and authenticate within the deadline, on a busy machine, too.
    async with serving(auth_deadline=500) as server:
        async with raw(server, shake=False) as peer:
            peer.write(junk)
            await peer.rest()
        await server.until_gone()
        async with client(server):
            pass


async def test_a_handshake_that_trickles_is_cut() -> None:
    async with serving(auth_deadline=100) as server:
        async with raw(server, shake=False) as peer:
            for byte in b"GET /ws HTTP/1.1\r\nHost: ":
                peer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert await peer.rest() == b""
        await server.until_gone()


async def test_a_handshake_that_never_ends_is_cut(server: Server) -> None:
    async with raw(server, shake=False) as peer:
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                peer.write(b"GET /ws HTTP/1.1\r\nX: " + b"y" * 1000)
                await peer.writer.drain()
        await peer.rest()
    await server.until_gone()


async def test_a_connection_without_auth_is_closed() -> None:
    # The handshake must end within the deadline, on a busy machine, too.
    async with serving(auth_deadline=500) as server, client(server, None) as stranger:
        assert (await stranger.receive())["code"] == "auth_timeout"
        assert await stranger.ended() == (4401, "auth_timeout")


async def test_only_listed_origins_may_connect_and_the_log_names_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(cors_origins=["https://app.example"]) as server:
        async with client(server, origin="https://app.example"):
            pass
        async with client(server):
            pass
        with pytest.raises(InvalidStatus) as caught:
            async with client(server, origin="https://evil.example"):
                pass
        assert caught.value.response.status_code == 403
        assert b"cors_origins" in caught.value.response.body
    (line,) = [each for each in caplog.messages if "cors_origins" in each]
    assert "'https://evil.example'" in line


async def test_connections_of_the_listener_are_bounded() -> None:
    async with serving(max_connections=2) as server:
        async with client(server, "a"), client(server, "b"):
            with pytest.raises(InvalidStatus) as caught:
                async with client(server, "c"):
                    pass
            assert caught.value.response.status_code == 503
        await server.until_gone()
        async with client(server, "c"):
            pass


async def test_frames_sent_right_after_the_request_are_read(server: Server) -> None:
    async with raw(server, shake=False) as peer:
        frame = Frame(Opcode.TEXT, b'{"type":"auth","token":"alice"}').serialize(mask=True)
        peer.write(
            b"GET /ws?x=y HTTP/1.1\r\nHost: x\r\nUpgrade: WebSocket\r\n"
            b"Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n" + frame
        )
        async with asyncio.timeout(BOUND):
            await peer.reader.readuntil(b"\r\n\r\n")
        assert b"auth.ok" in (await peer.receive())[1]
