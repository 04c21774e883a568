"""Limits on unauthenticated connections per address, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from pubsub_server.listeners.pre_auth import PreAuthLimiter, pre_auth_limiter
from pubsub_server.settings.config import Settings
from pubsub_server.testing import running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pubsub_server.testing import RunningServer

BOUND = 60.0


@contextlib.asynccontextmanager
async def connected(
    server: RunningServer, data: bytes = b""
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = server.http.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def request(server: RunningServer, **headers: str) -> bytes:
    lines = {"Host": "x", "Authorization": f"Bearer {server.token('alice')}", **headers}
    return b"GET /v1/session HTTP/1.1\r\n%s\r\n" % b"".join(
        f"{name.replace('_', '-')}: {value}\r\n".encode() for name, value in lines.items()
    )


async def head(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(BOUND):
        with contextlib.suppress(ConnectionError):
            return await reader.readline()
    return b""


def slots(server: RunningServer) -> PreAuthLimiter:
    listener = server.server._http_listener
    assert listener is not None
    return listener.connections.pre_auth


async def entered(server: RunningServer, count: int) -> None:
    async with asyncio.timeout(BOUND):
        while len(slots(server)) != count:  # noqa: ASYNC110
            await asyncio.sleep(0)


def test_each_address_has_slots_and_bytes_of_its_own() -> None:
    limiter = PreAuthLimiter(2, 100)
    one, two = limiter.enter("192.0.2.1"), limiter.enter("192.0.2.1")
    assert one is not None
    assert two is not None
    assert limiter.enter("192.0.2.1") is None
    other = limiter.enter("192.0.2.2")
    assert other is not None
    assert one.hold(60)
    assert other.hold(60)
    assert not two.hold(60)
    # A smaller amount than before is never rejected.
    assert two.hold(50)
    one.leave()
    assert two.hold(100)
    assert (len(limiter), limiter.held, limiter.refused) == (2, 160, 2)
    for slot in (one, two, other, other):
        slot.leave()
    assert (len(limiter), limiter.held, limiter._addresses) == (0, 0, {})


def test_an_ipv6_network_of_64_bits_counts_as_one_address() -> None:
    limiter = PreAuthLimiter(1, 100)
    assert limiter.enter("2001:db8::1") is not None
    assert limiter.enter("2001:db8::ffff:2%eth0") is None
    assert limiter.enter("2001:db8:0:1::1") is not None


def test_connections_without_an_address_have_no_limits() -> None:
    limiter = PreAuthLimiter(1, 100)
    slots = [limiter.enter(None) for _ in range(3)]
    for slot in slots:
        assert slot is not None
        assert slot.hold(1_000)
        slot.leave()
    assert (len(limiter), limiter.held) == (0, 0)


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, 1_000),
        ({"behind_tls_proxy": True}, None),
        ({"behind_tls_proxy": True, "trusted_proxies": ["10.0.0.1"]}, 1_000),
        ({"behind_tls_proxy": True, "unauthenticated_per_address": 7}, 7),
    ],
)
def test_the_address_of_a_proxy_that_is_not_trusted_has_no_limit_of_connections(
    settings: dict[str, object], limit: int | None
) -> None:
    assert pre_auth_limiter(Settings.model_validate(settings))._connections == limit


async def test_http_connections_before_authentication_are_bounded_for_each_address() -> None:
    async with running_server(unauthenticated_per_address=1) as server:
        async with connected(server, request(server)) as (known, writer):
            assert (await head(known)).startswith(b"HTTP/1.1 200 ")
            await entered(server, 0)
            async with connected(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") as (first, _):
                assert (await head(first)).startswith(b"HTTP/1.1 200 ")
                await entered(server, 1)
                async with connected(server) as (second, _):
                    assert (await head(second)).startswith(b"HTTP/1.1 429 ")
                    assert await head(second) == b"Retry-After: 1\r\n"
                # An authenticated connection continues.
                writer.write(request(server))
                async with asyncio.timeout(BOUND):
                    await known.readuntil(b"HTTP/1.1 200 ")
        await entered(server, 0)


async def test_heads_and_bodies_before_authentication_are_bounded_for_each_address() -> None:
    async with running_server(unauthenticated_bytes=50_000) as server:
        part = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 30_000
        async with connected(server, part):
            async with asyncio.timeout(BOUND):
                while slots(server).held < 30_000:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            async with connected(server, part) as (second, _):
                assert (await head(second)).startswith(b"HTTP/1.1 429 ")
            async with connected(server, request(server)) as (third, _):
                assert (await head(third)).startswith(b"HTTP/1.1 200 ")
        await entered(server, 0)
        assert slots(server).held == 0


async def test_a_body_of_a_known_client_may_be_larger_than_the_limit() -> None:
    async with (
        running_server(unauthenticated_bytes=5_000) as server,
        http_client(base_url=server.http) as client,
    ):
        headers = {"Authorization": f"Bearer {server.token('alice')}"}
        assert (await client.get("/v1/session", headers=headers)).status_code == 200
        answer = await client.post(
            "/v1/topics/demo.a/messages", headers=headers, json={"data": "x" * 200_000}
        )
        assert answer.status_code == 201


async def test_requests_of_a_trusted_proxy_count_for_their_clients() -> None:
    async with running_server(
        trusted_proxies="127.0.0.1", unauthenticated_per_address=1, faults=True
    ) as server:
        gate = asyncio.Event()
        core = server.hub.core
        inner = core.authenticator

        class Slow:
            async def authenticate(self, token: str) -> object:
                await gate.wait()
                return await inner.authenticate(token)

        core.authenticator = Slow()  # type: ignore[assignment]
        async with connected(server, request(server, X_Forwarded_For="192.0.2.1")) as (first, _):
            await entered(server, 1)
            async with connected(server, request(server, X_Forwarded_For="192.0.2.1")) as (
                again,
                _,
            ):
                assert (await head(again)).startswith(b"HTTP/1.1 429 ")
            async with connected(server, request(server, X_Forwarded_For="192.0.2.2")) as (
                other,
                _,
            ):
                await entered(server, 2)
                gate.set()
                assert (await head(other)).startswith(b"HTTP/1.1 200 ")
            assert (await head(first)).startswith(b"HTTP/1.1 200 ")
        await entered(server, 0)
