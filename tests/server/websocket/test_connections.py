from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
import trustme
from websockets.asyncio.client import connect
from websockets.frames import Close, Opcode

from tests.server.websocket_rig import BOUND, Server, client, close_code, raw, serving


async def test_the_life_of_a_connection_as_hip_56_draws_it(server: Server) -> None:
    async with client(server, None) as alice:
        ok = await alice.ask("auth", token="Bearer alice")
        assert ok["client_id"]
        answer = await alice.ask("subscribe", topics=["chat.session.*"])
        assert (answer["topics"], answer["history"]) == (["chat.session.*"], [])
        await alice.say("publish", topic="chat.session.a", data={"content": "Hello"})
        frame = await alice.receive()
        assert frame["type"] == "message"
        assert frame["message"]["data"] == {"content": "Hello"}
        await alice.say("unsubscribe", topics=["chat.session.*"])
        assert (await alice.ask("ping"))["type"] == "pong"
        await alice.socket.close()
    await server.until_gone()


async def test_an_idle_connection_has_no_parser_of_its_own(server: Server) -> None:
    async with client(server) as alice:
        await alice.ask("ping")
        protocol = server.protocol
        assert protocol._parser is None
        assert protocol._head is None
        assert protocol._fragments is None
        (connection,) = server.hub._open
        assert (connection.pending, connection.waiting, connection.backlog) == (None, None, None)


async def test_a_client_that_answers_pings_stays_connected() -> None:
    async with (
        # Half of the timeout is what a busy machine may take for one answer.
        serving(server_ping_interval=100, presence_timeout=8_000) as server,
        raw(server) as peer,
    ):
        peer.frame(b'{"type":"auth","token":"alice"}')
        await peer.receive()
        for _ in range(3):  # a ping arrives every half of the timeout
            assert await peer.receive() == (Opcode.PING, b"")
            peer.frame(b"", Opcode.PONG)


async def test_a_half_open_connection_is_given_up() -> None:
    async with serving(server_ping_interval=50, presence_timeout=500) as server:
        async with raw(server) as peer, client(server, "bob") as bob:
            peer.frame(b'{"type":"auth","token":"alice"}')
            peer.frame(b'{"type":"subscribe","topics":["a"]}')
            await bob.say("subscribe", topics=["*"])
            async with asyncio.timeout(BOUND):
                while (await bob.receive_kind("message"))["message"]["type"] != "presence.leave":
                    pass
            data = await peer.rest()
        assert b"idle_timeout" in data
        assert (4408).to_bytes(2, "big") in data


async def test_a_client_that_closes_is_answered_and_forgotten(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(Close(1000, "bye").serialize(), Opcode.CLOSE)
        opcode, payload = await peer.receive()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 1000)
        assert await peer.rest() == b""
    await server.until_gone()


async def test_a_client_that_vanishes_is_forgotten(server: Server) -> None:
    async with raw(server) as peer:
        peer.frame(b'{"type":"auth","token":"alice"}')
        await peer.receive()
        transport: Any = peer.writer.transport
        transport.abort()
    await server.until_gone()


async def test_tls_is_served() -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with serving(tls) as server, client(server, ssl=trusting) as alice:
        await alice.ask("subscribe", topics=["*"], presence=False)
        await alice.say("publish", topic="a", data="x" * 200_000)
        assert (await alice.receive())["message"]["data"] == "x" * 200_000


async def test_a_stopped_listener_sends_close_frames() -> None:
    async with serving() as server:
        async with client(server) as alice, client(server, None) as stranger:
            stop = asyncio.create_task(server.stop())
            assert await alice.ended() == (1001, "going_away")
            assert await stranger.ended() == (1001, "going_away")
            await stop
        assert not server.connections.open
        with pytest.raises(ConnectionRefusedError):
            await connect(server.url)


async def test_a_client_that_never_answers_a_close_is_cut() -> None:
    # The time to authenticate must not be what cuts it.
    async with serving(auth_deadline=2_000 * BOUND) as server, raw(server) as peer:
        transport: Any = peer.writer.transport
        transport.pause_reading()
        peer.frame(b"\xff")
        await server.until_gone()
