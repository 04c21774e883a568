"""Each fault of a network has the effect of its name, and can be undone."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.chaos.networks import HOST, Network

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

BOUND = 60
SOON = 0.2
"""Seconds in which held data must not arrive."""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


class Line:
    """One connection through a network to an echo."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def says(self, text: bytes) -> bytes:
        """Send a text, and return the echo."""
        self.writer.write(text)
        return await self.reader.readexactly(len(text))


@asynccontextmanager
async def network() -> AsyncGenerator[Network]:
    server = await asyncio.start_server(echo, HOST, 0)
    port: int = server.sockets[0].getsockname()[1]
    made = Network(port)
    await made.start()
    try:
        async with asyncio.timeout(BOUND):
            yield made
    finally:
        await made.end()
        server.close()


@asynccontextmanager
async def line(made: Network) -> AsyncGenerator[Line]:
    reader, writer = await asyncio.open_connection(HOST, made.ports[0])
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def suffering(made: Network, kind: str) -> AsyncGenerator[None]:
    undone = asyncio.Event()
    task = asyncio.create_task(made.suffer(kind, undone.wait))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        undone.set()
        await task


async def silent(one: Line) -> bool:
    try:
        async with asyncio.timeout(SOON):
            await one.reader.readexactly(1)
    except TimeoutError:
        return True
    return False


async def test_without_a_fault_bytes_pass_and_the_network_is_used() -> None:
    async with network() as made, line(made) as one:
        assert await one.says(b"hello") == b"hello"
        assert made.wires[0].used


async def test_a_cut_is_an_end_and_a_reset_is_an_error() -> None:
    async with network() as made, line(made) as cut:
        assert await cut.says(b"a") == b"a"
        async with suffering(made, "cut"):
            assert await cut.reader.read() == b""
        async with line(made) as broken:
            assert await broken.says(b"b") == b"b"
            async with suffering(made, "reset"):
                with pytest.raises(ConnectionResetError):
                    await broken.reader.readexactly(1)
        async with line(made) as again:
            assert await again.says(b"c") == b"c"


async def test_a_network_that_flaps_resets_each_connection_until_it_is_over() -> None:
    async with network() as made:
        async with suffering(made, "flap"):
            for _ in range(3):
                async with line(made) as one:
                    with pytest.raises(ConnectionResetError):
                        await one.reader.readexactly(1)
        async with line(made) as after:
            assert await after.says(b"a") == b"a"


async def test_a_network_that_refuses_takes_connections_again_afterwards() -> None:
    async with network() as made, line(made) as before:
        assert await before.says(b"a") == b"a"
        async with suffering(made, "refuse"):
            with pytest.raises(ConnectionResetError):
                await before.reader.readexactly(1)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(HOST, made.ports[0])
        async with line(made) as after:
            assert await after.says(b"b") == b"b"


@pytest.mark.parametrize("turns", range(6))
async def test_a_network_that_begins_to_refuse_resets_what_it_is_just_accepting(turns: int) -> None:
    async with network() as made:
        with socket.create_connection((HOST, made.ports[0])) as client:
            client.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            async with suffering(made, "refuse"):
                with pytest.raises(ConnectionResetError):
                    await asyncio.get_running_loop().sock_recv(client, 1)


async def test_connections_in_a_blackhole_stay_dead_without_notice() -> None:
    async with network() as made, line(made) as before:
        assert await before.says(b"a") == b"a"
        async with suffering(made, "blackhole"), line(made) as meanwhile:
            for one in (before, meanwhile):
                one.writer.write(b"b")
                assert await silent(one)
            assert not made.wires[0].used
        assert await silent(before)
        async with line(made) as after:
            assert await after.says(b"c") == b"c"


@pytest.mark.parametrize("kind", ["stall", "one_way"])
async def test_what_is_held_comes_afterwards(kind: str) -> None:
    async with network() as made, line(made) as one:
        assert await one.says(b"a") == b"a"
        async with suffering(made, kind):
            one.writer.write(b"bc")
            assert await silent(one)
        assert await one.reader.readexactly(2) == b"bc"


async def test_a_trickle_passes_everything_in_the_end() -> None:
    async with network() as made, line(made) as one, suffering(made, "trickle"):
        assert await one.says(b"x" * 500) == b"x" * 500


async def test_lag_delays_data_and_passes_everything_in_the_end() -> None:
    async with network() as made, line(made) as one, suffering(made, "lag"):
        for _ in range(10):
            assert await one.says(b"x" * 500) == b"x" * 500


async def test_a_blackhole_of_the_feed_discards_only_what_listens() -> None:
    async with network() as made, line(made) as listening, line(made) as other:
        assert await listening.says(b"SSUBSCRIBE") == b"SSUBSCRIBE"
        assert await other.says(b"a") == b"a"
        async with suffering(made, "blackhole_feed"), line(made) as meanwhile:
            for one in (listening, meanwhile):
                one.writer.write(b"SSUBSCRIBE")
                assert await silent(one)
            assert await other.says(b"b") == b"b"
        async with line(made) as after:
            assert await after.says(b"SSUBSCRIBE") == b"SSUBSCRIBE"


async def test_a_flap_of_calls_resets_only_what_does_not_listen() -> None:
    async with network() as made, line(made) as listening, line(made) as other:
        assert await listening.says(b"SSUBSCRIBE") == b"SSUBSCRIBE"
        assert await other.says(b"a") == b"a"
        async with suffering(made, "flap_calls"):
            with pytest.raises(ConnectionResetError):
                await other.reader.read()
            assert await listening.says(b"b") == b"b"


async def test_faults_that_overlap_are_undone_one_by_one() -> None:
    async with network() as made, line(made) as one:
        assert await one.says(b"a") == b"a"
        async with suffering(made, "stall"):
            async with suffering(made, "stall"):
                one.writer.write(b"b")
            assert await silent(one)
        assert await one.reader.readexactly(1) == b"b"


async def test_a_network_that_moves_leads_elsewhere() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"elsewhere")
        writer.close()

    other = await asyncio.start_server(answer, HOST, 0)
    async with other, network() as made, line(made) as before:
        assert await before.says(b"a") == b"a"
        made.move([other.sockets[0].getsockname()[1]])
        assert await before.reader.read() == b""
        async with line(made) as after:
            assert await after.reader.read() == b"elsewhere"


async def test_an_unknown_fault_is_an_error() -> None:
    async with network() as made:
        with pytest.raises(ValueError, match="there is no fault flood"):
            await made.suffer("flood", asyncio.Event().wait)
