"""Limits on unfinished TLS handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import sys
import weakref
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from pubsub_server.listeners import tls_server
from pubsub_server.listeners.pre_auth import pre_auth_limiter
from pubsub_server.settings.config import Settings
from pubsub_server.testing import running_server
from tests.server.protocols.peers import BOUND, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from pubsub_server.testing import RunningServer

LISTENERS = ("http", "ws", "event_stream")
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Node:
    """A server with TLS on three listeners.

    Attributes:
        inner: The server itself.
    """

    def __init__(self, server: RunningServer, trusting: ssl.SSLContext) -> None:
        self._trusting = trusting
        self._writers: list[asyncio.StreamWriter] = []
        inner: Any = server.server
        self.inner = inner
        self._listeners = {
            "http": inner._http_listener,
            "ws": inner._ws_listener,
            "event_stream": inner._byte_listeners[0],
        }

    def handshakes(self, listener: str) -> int:
        return len(self._listeners[listener].connections.handshakes)

    async def connect(self, listener: str, address: str = "127.0.0.1") -> Pair:
        """Connect from an address, without a handshake."""
        return await self._open(listener, local_addr=(address, 0))

    async def shake_hands(self, listener: str) -> Pair:
        """Connect, and do the handshake."""
        return await self._open(listener, ssl=self._trusting)

    async def close(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _open(self, listener: str, **options: Any) -> Pair:
        port = int(self._listeners[listener]._server.sockets[0].getsockname()[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
        self._writers.append(writer)
        return reader, writer


@contextlib.asynccontextmanager
async def node(folder: Path, **settings: Any) -> AsyncGenerator[Node]:
    authority, pem = trustme.CA(), folder / "both.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with running_server(
        tls_cert=pem, tls_key=pem, event_stream="127.0.0.1:0", **settings
    ) as server:
        each = Node(server, trusting)
        try:
            yield each
        finally:
            await each.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What the server sends until it closes."""
    async with asyncio.timeout(BOUND):
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
    return b""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only 127.0.0.1 is assigned")
@pytest.mark.parametrize("listener", LISTENERS)
async def test_half_handshakes_of_one_address_leave_room_for_other_addresses(
    listener: str, tmp_path: Path
) -> None:
    async with node(tmp_path, unauthenticated_per_address=2) as each:
        held = [(await each.connect(listener, "127.0.0.2"))[1] for _ in range(2)]
        await until(lambda: each.handshakes(listener) == 2)
        refused, _ = await each.connect(listener, "127.0.0.2")
        assert await rest(refused) == b""
        await each.shake_hands(listener)
        for writer in held:
            writer.close()
        await until(lambda: each.handshakes(listener) == 0)
        assert sum(limiter.refused for limiter in each.inner._limiters()) == 1


@pytest.mark.parametrize("listener", LISTENERS)
async def test_a_handshake_that_takes_too_long_is_cut_and_releases_its_slot(
    listener: str, tmp_path: Path
) -> None:
    async with node(tmp_path, header_timeout=100, auth_deadline=100) as each:
        reader, writer = await each.connect(listener)
        # The beginning of a TLS record.
        writer.write(b"\x16\x03\x01\x02\x00")
        assert await rest(reader) == b""
        await until(lambda: each.handshakes(listener) == 0)


@pytest.mark.parametrize("listener", LISTENERS)
async def test_half_handshakes_count_among_the_connections_of_a_listener(
    listener: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "ANSWERED", 0)
    async with node(tmp_path, max_connections=1) as each:
        await each.connect(listener)
        await until(lambda: each.handshakes(listener) == 1)
        refused, _ = await each.connect(listener)
        assert await rest(refused) == b""


async def test_a_client_above_max_connections_is_told_so_after_its_handshake(
    tmp_path: Path,
) -> None:
    async with node(tmp_path, max_connections=1) as each:
        await each.shake_hands("http")
        second, _ = await each.shake_hands("http")
        assert (await rest(second)).startswith(b"HTTP/1.1 503 ")


async def test_a_server_that_stops_cuts_half_handshakes(tmp_path: Path) -> None:
    async with node(tmp_path) as each:
        readers = [(await each.connect(listener))[0] for listener in LISTENERS]
        for listener in LISTENERS:
            await until(lambda listener=listener: each.handshakes(listener) == 1)
        await each.inner.stop()
        assert [await rest(reader) for reader in readers] == [b""] * len(LISTENERS)


def _scoped_address() -> str | None:
    """A link-local address of this machine, with its interface."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, _, scope, _, interface = line.split()
            if scope == "20":
                return f"{IPv6Address(int(digits, 16))}%{interface}"
    return None


@contextlib.asynccontextmanager
async def listening(
    host: str, session: Callable[[], asyncio.Protocol] = asyncio.Protocol
) -> AsyncGenerator[tls_server.TlsServer]:
    """Run a server with TLS, without the rest of a node."""
    settings = Settings()
    server = tls_server.TlsServer(
        session,
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        settings,
        pre_auth_limiter(settings),
        lambda: 0,
        seconds=BOUND,
    )
    await server.listen(host, 0)
    try:
        yield server
    finally:
        server.close()


async def listen(host: str) -> list[Any]:
    """The addresses on which a server with TLS listens for a host."""
    async with listening(host) as server:
        return [each.getsockname() for each in server.sockets]


async def test_a_handshake_that_fails_is_released_without_the_garbage_collector() -> None:
    begun, left = 0, weakref.WeakSet[asyncio.Protocol]()

    class Session(asyncio.Protocol):
        def __init__(self) -> None:
            nonlocal begun
            begun += 1
            left.add(self)

    gc.disable()
    try:
        async with listening("127.0.0.1", Session) as server:
            for data in (b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n"):
                with socket.create_connection(server.sockets[0].getsockname()) as client:
                    client.sendall(data)
            await until(lambda: begun == 3 and not left)
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists addresses in /proc")
async def test_a_server_with_tls_listens_on_the_address_of_one_interface() -> None:
    address = _scoped_address()
    assert address is not None, "enable IPv6: no interface has a link-local address"
    [listening] = await listen(address)
    assert listening[3] == socket.if_nametoindex(address.partition("%")[2])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the family may exist")
async def test_a_server_with_tls_skips_addresses_of_a_family_that_the_kernel_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = [(socket.AF_IPX, socket.SOCK_STREAM, 0, "", ("::1", 0, 0, 0))]

    def resolve(*_: object, **__: object) -> list[Any]:
        return found

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(OSError, match="not supported"):
        await listen("localhost")
    found.append((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0)))
    [listening] = await listen("localhost")
    assert listening[0] == "127.0.0.1"
