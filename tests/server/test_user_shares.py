"""Limits on what one user occupies of the HTTP port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import trustme
from aiohttp import web

from pubsub_server.auth.identity import Identity
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.http.connection import HttpConnection
from pubsub_server.listeners.http.user_shares import UserShares
from pubsub_server.testing import running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pubsub_server.backplane import Page
    from pubsub_server.listeners.http.listener import HttpListener
    from pubsub_server.testing import RunningServer

BOUND = 60.0

ALICE = Identity("alice")
BOB = Identity("bob")


def head(server: RunningServer, *lines: str, user: str = "alice") -> bytes:
    whole = [*lines, "Host: x", f"Authorization: Bearer {server.token(user)}", "", ""]
    return "\r\n".join(whole).encode()


@contextlib.asynccontextmanager
async def sent(
    server: RunningServer, *lines: str, user: str = "alice", trust: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that has sent the head of a request."""
    url = urlsplit(server.http)
    reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=trust)
    try:
        writer.write(head(server, *lines, user=user))
        yield reader, writer
    finally:
        writer.transport.abort()


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(BOUND):
        return int((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1])


def listener(server: RunningServer) -> HttpListener:
    found = server.server._http_listener
    assert found is not None
    return found


async def settled(server: RunningServer, connections: int, size: int | None = None) -> None:
    shares = listener(server).connections.users
    async with asyncio.timeout(BOUND):
        while len(shares) != connections or (  # noqa: ASYNC110
            size is not None and sum(each.size for each in shares._users.values()) != size
        ):
            await asyncio.sleep(0.001)


def test_each_user_has_connections_and_bytes_of_its_own() -> None:
    shares = UserShares(2, 100)
    one, two, other = shares.enter(ALICE), shares.enter(ALICE), shares.enter(BOB)
    with pytest.raises(ServiceError, match="has 2 HTTP connections"):
        shares.enter(ALICE)
    # The only body of a user may be larger.
    assert one.hold(300)
    assert other.hold(100)
    assert not two.hold(1)
    assert one.hold(99)
    assert two.hold(1)
    assert not two.hold(2)
    for share in (one, two, other):
        share.leave()
    assert (len(shares), shares._users) == (0, {})


async def test_open_http_connections_of_one_user_are_bounded() -> None:
    async with running_server(connections_per_user=1, held_per_user=1) as server:
        async with contextlib.AsyncExitStack() as stack:
            request = "GET /v1/session HTTP/1.1"
            open_ones = [await stack.enter_async_context(sent(server, request)) for _ in range(11)]
            assert [await status(each) for each, _ in open_ones] == [200] * 11
            async with sent(server, "GET /v1/session HTTP/1.1") as (refused, _):
                assert await status(refused) == 429
                async with asyncio.timeout(BOUND):
                    assert b"connection_limit" in await refused.read()
            async with sent(server, "GET /v1/session HTTP/1.1", user="bob") as (other, _):
                assert await status(other) == 200
            # A connection with a share continues.
            reader, writer = open_ones[0]
            await reader.read(65_536)
            writer.write(head(server, "GET /v1/session HTTP/1.1"))
            assert await status(reader) == 200
        await settled(server, 0)


async def test_a_connection_counts_for_the_user_of_its_last_token() -> None:
    async with (
        running_server() as server,
        sent(server, "GET /v1/session HTTP/1.1") as (reader, writer),
    ):
        assert await status(reader) == 200
        assert list(listener(server).connections.users._users) == [("user", "alice")]
        await reader.read(65_536)
        writer.write(head(server, "GET /v1/session HTTP/1.1", user="bob"))
        assert await status(reader) == 200
        assert list(listener(server).connections.users._users) == [("user", "bob")]


@pytest.mark.parametrize("settings", [{"behind_tls_proxy": True}, {"trusted_proxies": "127.0.0.1"}])
async def test_idle_connections_of_a_proxy_count_for_no_user(settings: dict[str, object]) -> None:
    async with (
        running_server(**settings) as server,
        sent(server, "GET /v1/session HTTP/1.1") as (reader, _),
    ):
        assert await status(reader) == 200
        await settled(server, 0)


async def test_an_event_stream_takes_no_share() -> None:
    async with (
        running_server() as server,
        sent(server, "GET /v1/subscribe?topics=demo.a HTTP/1.1") as (reader, _),
    ):
        assert await status(reader) == 200
        await settled(server, 0)


async def test_bodies_that_one_user_is_sending_are_bounded_together() -> None:
    lines = (
        "POST /v1/messages:batch HTTP/1.1",
        "Content-Type: application/json",
        "Content-Length: 10000",
    )
    part = b" " * 9_000
    async with running_server(max_batch_bytes=10_000, max_payload=10_000) as server:
        async with contextlib.AsyncExitStack() as stack:
            for count in range(1, 36):
                _, writer = await stack.enter_async_context(sent(server, *lines))
                await settled(server, count)
                writer.write(part)
                await settled(server, count, count * len(part))
            reader, writer = await stack.enter_async_context(sent(server, *lines))
            await settled(server, 36)
            writer.write(part)
            assert await status(reader) == 429
            async with http_client(base_url=server.http) as client:
                headers = {"Authorization": f"Bearer {server.token('bob')}"}
                answer = await client.post(
                    "/v1/topics/demo.a/messages", headers=headers, json={"data": "x" * 9_000}
                )
                assert answer.status_code == 201
        await settled(server, 0)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_responses_that_one_user_does_not_read_are_bounded_together(
    encrypted: bool, tmp_path: Path
) -> None:
    trust, files = None, {}
    if encrypted:
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        files = {"tls_cert": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem")}
        certificate.cert_chain_pems[0].write_to_path(files["tls_cert"])
        certificate.private_key_pem.write_to_path(files["tls_key"])
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
    limits = {"max_batch_bytes": 100_000, "max_payload": 100_000, "publish_rate_user": 1e6}
    pages = {"history_max_messages": 1_000, "history_page_max": 1_000}
    async with running_server(**limits, **pages, **files) as server:
        batch = [{"topic": "demo.a", "data": "x" * 9_000}] * 10
        async with http_client(base_url=server.http, verify=trust or True) as client:
            headers = {"Authorization": f"Bearer {server.token('bob')}"}
            for _ in range(100):
                answer = await client.post(
                    "/v1/messages:batch", headers=headers, json={"messages": batch}
                )
                assert answer.status_code == 200
        await settled(server, 0)
        request = "GET /v1/topics/demo.a/history?limit=1000 HTTP/1.1"
        async with sent(server, request, trust=trust) as (first, _):
            assert await status(first) == 200
            async with sent(server, request, trust=trust) as (second, writer):
                assert await status(second) == 429
                async with asyncio.timeout(BOUND):
                    assert b"connection_limit" in await second.read(65_536)
                # A publish has happened, so it is answered.
                body = json.dumps({"messages": [{"topic": "demo.b", "data": 1}] * 1_000})
                lines = ["POST /v1/messages:batch HTTP/1.1", "Content-Type: application/json"]
                writer.write(head(server, *lines, f"Content-Length: {len(body)}"))
                writer.write(body.encode())
                assert await status(second) == 200
            await settled(server, 1)
        await settled(server, 0)


async def test_an_idle_connection_keeps_nothing_of_its_last_response() -> None:
    sizes: list[int] = []
    responses: list[weakref.ref[web.Response]] = []

    async with running_server(publish_rate_user=1e6) as server:
        sending = HttpConnection.sending

        def noted(self: HttpConnection, method: str, response: web.StreamResponse) -> None:
            if method == "GET" and isinstance(response, web.Response):
                assert isinstance(response.body, bytes)
                sizes.append(len(response.body))
                responses.append(weakref.ref(response))
            sending(self, method, response)

        async with http_client(base_url=server.http) as client:
            headers = {"Authorization": f"Bearer {server.token('alice')}"}
            address = "/v1/topics/demo.a/messages"
            await client.post(address, headers=headers, json={"data": "x" * 100_000})
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(HttpConnection, "sending", noted)
                answer = await client.get("/v1/topics/demo.a/history", headers=headers)
            assert (answer.status_code, sizes) == (200, [len(answer.content)])
            await settled(server, 1, 0)
            kept = [response.body for each in responses if (response := each()) is not None]
            assert kept in ([], [None])


async def test_a_large_response_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_server() as server:
        pages: list[str] = []
        history = server.hub.history

        async def noted(identity: Identity, topic: str, **options: Any) -> Page:
            pages.append(topic)
            return await history(identity, topic, **options)

        monkeypatch.setattr(server.hub, "history", noted)
        share = listener(server).connections.users.enter(ALICE)
        share.hold(10**9)
        async with http_client(base_url=server.http) as client:
            for user, status_code in (("alice", 429), ("bob", 200)):
                headers = {"Authorization": f"Bearer {server.token(user)}"}
                answer = await client.get(f"/v1/topics/demo.{user}/history", headers=headers)
                assert answer.status_code == status_code
        assert pages == ["demo.bob"]
        share.leave()


@pytest.mark.parametrize("end", ["cut", "cut at the end", "left"])
async def test_a_connection_that_ends_while_its_token_is_checked_is_no_failure_and_keeps_no_share(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    lines = (
        "POST /v1/messages:batch HTTP/1.1",
        "Content-Type: application/json",
        "Content-Length: 100000",
    )
    async with running_server(unauthenticated_bytes=5_000) as server:
        core, found = server.hub.core, listener(server)
        checking, ended, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
        inner, metrics = core.authenticator, found._metrics

        class Slow:
            async def authenticate(self, token: str) -> object:
                checking.set()
                await ended.wait()
                identity = await inner.authenticate(token)
                if end == "cut at the end":
                    manager = found._runner.server
                    assert manager is not None
                    (connection,) = manager.connections
                    connection.data_received(b" " * 50_000)
                return identity

        class Counting:
            def request(self, *args: object) -> None:
                answered.set()

        core.authenticator = Slow()  # type: ignore[assignment]
        found._metrics = Counting()  # type: ignore[assignment]
        logger = logging.getLogger("pubsub_server")
        logger.addHandler(caplog.handler)
        try:
            async with asyncio.timeout(BOUND), sent(server, *lines) as (reader, writer):
                await checking.wait()
                if end == "left":
                    writer.transport.abort()
                    while found.connections.open:  # noqa: ASYNC110
                        await asyncio.sleep(0)
                elif end == "cut":
                    writer.write(b" " * 50_000)
                    with contextlib.suppress(ConnectionError):
                        assert (await reader.readline()).startswith(b"HTTP/1.1 429 ")
                ended.set()
                await answered.wait()
                while found.connections.open:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            assert len(found.connections.users) == 0
        finally:
            logger.removeHandler(caplog.handler)
            found._metrics = metrics
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []
