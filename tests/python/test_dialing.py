"""A host with several addresses: one that does not answer delays no kind of connection for long."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.cli.doctor.findings import Status
from hanzoai.pubsub.cli.doctor.handshake import Handshake
from hanzoai.pubsub.cli.doctor.network import Address, check_tcp
from hanzoai.pubsub.links.connections import Link, Target
from hanzoai.pubsub.network.dialing import open_socket, open_stream
from hanzoai.pubsub.sp import SubSocket
from pubsub_server.testing import running_server
from tests.python.fake_dns import SILENT, SilentAddresses, resolve_to

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

BOUND = 60
HOST = "ps.invalid"


@pytest.fixture
async def silent_first(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[list[str]]:
    """Let the first address of `HOST` not answer; yields the addresses that were given up."""
    network = SilentAddresses(monkeypatch, 1)
    yield network.given_up
    assert network.given_up == [SILENT[0]]


@pytest.fixture
async def accepted() -> AsyncGenerator[tuple[int, asyncio.Event]]:
    """The port of a server, and an event that is set when it accepts a connection."""
    came = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        with suppress(OSError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], came


async def test_a_client_of_a_byte_protocol_tries_the_next_address(
    accepted: tuple[int, asyncio.Event], silent_first: list[str]
) -> None:
    port, came = accepted
    async with asyncio.timeout(BOUND):
        link = await Link.open(Target(HOST, port), None, BOUND)
        await came.wait()
        await link.close()


async def test_a_socket_of_sp_tries_the_next_address(
    accepted: tuple[int, asyncio.Event], silent_first: list[str]
) -> None:
    port, came = accepted
    async with asyncio.timeout(BOUND), SubSocket() as sub:
        await sub.dial(f"tcp://{HOST}:{port}")
        await came.wait()


async def test_the_doctor_tries_the_next_address_when_it_checks_a_port(
    accepted: tuple[int, asyncio.Event], silent_first: list[str]
) -> None:
    port, _ = accepted
    async with asyncio.timeout(BOUND):
        finding = await check_tcp([Address("ws", HOST, port)], BOUND)
    assert finding.status is Status.OK


async def test_the_doctor_tries_the_next_address_for_a_websocket(
    silent_first: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", HOST)
    async with asyncio.timeout(BOUND), running_server() as server:
        handshake = Handshake(
            server.ws.replace("127.0.0.1", HOST), ssl.create_default_context(), BOUND
        )
        finding = await handshake.check_upgrade(same_port_as_http=False)
        await handshake.close()
    assert finding.status is Status.OK


async def test_a_stream_to_an_address_is_opened_without_a_lookup(
    accepted: tuple[int, asyncio.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, came = accepted
    looked_up = resolve_to(monkeypatch, *SILENT)
    # That of gevent lets other green threads run, which would find the running loop.
    monkeypatch.delattr(socket, "getaddrinfo")
    async with asyncio.timeout(BOUND):
        _, writer = await open_stream("127.0.0.1", port)
        await came.wait()
        writer.close()
        await writer.wait_closed()
    assert not looked_up


@pytest.mark.parametrize("host", ["127.0.0.1", HOST])
async def test_small_messages_are_sent_without_waiting_for_an_acknowledgement(
    accepted: tuple[int, asyncio.Event], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    port, _ = accepted
    resolve_to(monkeypatch, "127.0.0.1")
    async with asyncio.timeout(BOUND):
        with await open_socket(host, port) as connected:
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
