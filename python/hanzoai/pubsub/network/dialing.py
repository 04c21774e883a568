"""Connects to the first address of a host that answers (RFC 8305, Happy Eyeballs).

An event loop tries one address after the other. The time to open a connection ends before it gives
up the first one, for example where IPv6 packets are lost.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.network.receiving import BufferedReads

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence

NEXT_AFTER: Final = 0.25
"""Seconds until the next address is tried, too, which RFC 8305 recommends."""


async def open_socket(host: str, port: int) -> socket.socket:
    """Connect to one of the addresses of a host, which may itself be an address.

    Raises:
        OSError: The host has no address, or no address accepts.
        UnicodeError: The host cannot exist.
    """
    addresses = await _addresses(host, port)
    if len(addresses) == 1:
        return await _connect(*addresses[0])
    return await _first(_in_turn(addresses))


async def open_stream(
    host: str, port: int, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to one of the addresses of a host, and shake hands if it uses TLS.

    Raises:
        OSError: See `open_socket`; also a failure of TLS.
        UnicodeError: The host cannot exist.
    """
    connected = await open_socket(host, port)
    name = None if tls is None else host
    connect = asyncio.get_running_loop().create_connection
    return await _opened(connect, sock=connected, ssl=tls, server_hostname=name)


async def open_unix_stream(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a Unix socket.

    Raises:
        OSError: Nothing listens there.
    """
    return await _opened(asyncio.get_running_loop().create_unix_connection, path=path)


class _Stream(BufferedReads, asyncio.StreamReaderProtocol):
    """The protocol of a stream."""


async def _opened(
    connect: Callable[..., Awaitable[tuple[asyncio.Transport, _Stream]]], **options: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return what `asyncio.open_connection` does, with another protocol."""
    reader = asyncio.StreamReader()
    transport, protocol = await connect(lambda: _Stream(reader), **options)
    loop = asyncio.get_running_loop()
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    try:
        # A lookup would ask a thread, which takes longer.
        version = ipaddress.ip_address(host).version
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    return [(socket.AF_INET if version == 4 else socket.AF_INET6, (host, port))]


def _in_turn(addresses: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """The addresses, with the families taking turns, first that of the first address."""
    first = [one for one in addresses if one[0] == addresses[0][0]]
    other = [one for one in addresses if one[0] != addresses[0][0]]
    pairs = zip_longest(first, other)
    return [one for one in chain.from_iterable(pairs) if one is not None]


async def _first(addresses: list[tuple[int, Any]]) -> socket.socket:
    failures: list[BaseException] = []
    attempts: set[asyncio.Task[socket.socket]] = set()
    try:
        while addresses or attempts:
            if addresses:
                attempts.add(asyncio.create_task(_connect(*addresses.pop(0))))
            done, _ = await asyncio.wait(
                attempts,
                timeout=NEXT_AFTER if addresses else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                attempts.discard(attempt)
                failure = attempt.exception()
                if failure is None:
                    attempts |= done - {attempt}
                    return attempt.result()
                failures.append(failure)
        # An answer of the host says more than a missing route.
        raise next((each for each in failures if isinstance(each, ConnectionError)), failures[0])
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_drop)
            attempt.cancel()


async def _connect(family: int, address: Any) -> socket.socket:
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        # Otherwise a small message waits until the peer has acknowledged the one before. The event
        # loop sets it only for sockets that it creates.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connected, address)
    except BaseException:
        connected.close()
        raise
    return connected


def _drop(attempt: asyncio.Task[socket.socket]) -> None:
    """Close what connected too late."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
