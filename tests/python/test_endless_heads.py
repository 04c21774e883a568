"""Endless response headers: the client stops reading at a size limit, on every transport."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import PubSubClient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

LONG = 300
"""Seconds. Timeouts of the client are longer than a test, so only the size limit can end a head."""
BOUND = 30
LINE = b"X-Filler: " + b"y" * 500 + b"\r\n"


@asynccontextmanager
async def endless(status: bytes) -> AsyncGenerator[tuple[int, asyncio.Event]]:
    """Run a server with endless headers; yield its port and whether a client has disconnected."""
    given_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + status + b"\r\n")
        try:
            while not given_up.is_set():
                writer.write(LINE)
                await writer.drain()
        except OSError:
            given_up.set()
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], given_up


async def connect(ps: PubSubClient) -> None:
    await ps.connect(timeout=LONG)


async def read(ps: PubSubClient) -> None:
    async for _ in ps.history("demo.x", timeout=LONG):
        pass


@pytest.mark.parametrize(
    ("status", "transport", "speed", "call"),
    [
        pytest.param(b"101 Switching Protocols", "websocket", "off", connect, id="websockets"),
        pytest.param(b"101 Switching Protocols", "websocket", "on", connect, id="picows"),
        pytest.param(b"200 OK", "sse", "off", connect, id="sse"),
        pytest.param(b"200 OK", "auto", "off", read, id="rest"),
    ],
)
async def test_a_head_that_does_not_end_is_given_up_by_size(
    status: bytes,
    transport: str,
    speed: str,
    call: Callable[[PubSubClient], Coroutine[None, None, None]],
) -> None:
    async with asyncio.timeout(BOUND), endless(status) as (port, given_up):
        ps = PubSubClient(
            f"ws://127.0.0.1:{port}/ws",
            rest_url=f"http://127.0.0.1:{port}",
            token="x",
            transport=transport,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            speed=speed,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            open_timeout=LONG,
        )
        calling = asyncio.create_task(call(ps))
        await given_up.wait()
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling
        await ps.close(timeout=0)
