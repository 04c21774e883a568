"""Servers and proxies with one defect each, for the doctor."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from websockets.asyncio.server import ServerConnection, serve

from hanzoai.pubsub.cli.doctor.examination import Patient, examine
from hanzoai.pubsub.cli.doctor.findings import Finding, Report
from hanzoai.pubsub.settings.urls import endpoints

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Awaitable, Callable

HOST = "127.0.0.1"
PATIENCE = 60.0
SHORT = 2.0
"""Seconds for each check where one of them ends by its timeout, and the others must not."""


def token(*, expires_in: float = 3600, algorithm: str = "HS256") -> str:
    """Return a JWT with an invalid signature."""
    header = {"alg": algorithm, "typ": "JWT"}
    claims = {"sub": "alice", "exp": time.time() + expires_in}
    parts = [json.dumps(part).encode() for part in (header, claims)]
    return ".".join(
        [*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), "c2ln"]
    )


@dataclass
class Fake:
    """A server that is healthy by default."""

    clock: float = 0.0
    refuse: dict[str, Any] | None = None
    close: tuple[int, str] | None = None
    max_payload: int = 262_144
    largest_frame: int = 2**20
    access: dict[str, Any] = field(
        default_factory=lambda: {"subscribe": True, "publish": True, "rule": "x", "reason": "ok"}
    )
    health: int = 200
    second_chunk: bytes | None = None
    stream_outlasts_sockets: bool = False
    stream_status: int = 200
    stream_type: str = "text/event-stream"
    tls: ssl.SSLContext | None = None
    received: list[str] = field(default_factory=list)
    _sockets: list[ServerConnection] = field(default_factory=list)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[tuple[int, int]]:
        """Ports of HTTP and WebSocket."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/v1/subscribe", self._stream)
        app.router.add_get("/v1/access", self._access)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, HOST, 0, ssl_context=self.tls)
        await site.start()
        port: int = runner.addresses[0][1]
        async with serve(
            self._talk, HOST, 0, ssl=self.tls, compression=None, max_size=self.largest_frame
        ) as sockets:
            try:
                yield port, next(iter(sockets.sockets)).getsockname()[1]
            finally:
                await runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"}, status=self.health)

    async def _access(self, request: web.Request) -> web.Response:
        return web.json_response({"topic": request.query["topic"], **self.access})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self.stream_status != 200:
            problem = {"title": "x", "status": self.stream_status, "code": "unavailable"}
            return web.json_response(problem, status=self.stream_status)
        answer = web.StreamResponse(headers={"Content-Type": self.stream_type})
        await answer.prepare(request)
        await answer.write(b'event: subscribed\ndata: {"topics":[]}\n\n')
        if self.stream_outlasts_sockets:
            for socket in self._sockets:
                socket.transport.abort()
                await socket.wait_closed()
        if self.second_chunk is not None:
            await answer.write(self.second_chunk)
        if self.second_chunk != b"":
            # Until the client leaves, which cancels this.
            await asyncio.Event().wait()
        return answer

    async def _talk(self, connection: ServerConnection) -> None:
        self._sockets.append(connection)
        if self.close:
            await connection.close(*self.close)
            return
        async for text in connection:
            self.received.append(str(text))
            frame = json.loads(text)
            if frame["type"] == "ping":
                await connection.send(json.dumps({"type": "pong"}))
            elif self.refuse is not None:
                await connection.send(json.dumps({"type": "auth.error", **self.refuse}))
            else:
                answer = {
                    "type": "auth.ok",
                    "client_id": "cl_1",
                    "user_id": "alice",
                    "version": 1,
                    "server_time": int((time.time() + self.clock) * 1000),
                    "limits": {"max_payload": self.max_payload},
                }
                await connection.send(json.dumps(answer))


@asynccontextmanager
async def listener(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncGenerator[int]:
    """Run a TCP server on a free port; its connections end with the context."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handle(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(accept, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A black hole: reads everything, answers nothing."""
    while await reader.read(65536):
        pass


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes every connection as soon as it receives data."""
    await reader.read(1)


def proxy(
    port: int, *, strip_upgrade: bool = False, buffer: bool = False
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """An HTTP proxy in front of a server on this machine.

    Args:
        port: Port of the server.
        strip_upgrade: Remove the headers of a WebSocket handshake, like a misconfigured proxy.
        buffer: Forward a response only when it is complete.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if strip_upgrade:
            head = re.sub(rb"(?im)^(upgrade|connection): .*\r\n", b"", head)
        if buffer:
            head = re.sub(rb"(?im)^connection: .*\r\n", b"", head)
            head = head[:-2] + b"Connection: close\r\n\r\n"
        inner, outer = await asyncio.open_connection(HOST, port)
        try:
            outer.write(head)
            if buffer:
                writer.write(await inner.read())
                await writer.drain()
                return
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, outer))
                group.create_task(_pump(inner, writer))
        finally:
            outer.close()

    return handle


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()


async def diagnose(
    url: str,
    rest_url: str | None = None,
    *,
    bearer: str | None = None,
    topics: tuple[str, ...] = (),
    patience: float = PATIENCE,
    **more: Any,
) -> Report:
    """Return the findings of the doctor."""
    patient = Patient(
        endpoints=endpoints(url, rest_url),
        token=token() if bearer is None else bearer or None,
        topics=topics,
        patience=patience,
        **more,
    )
    report = Report()
    async with asyncio.timeout(60):
        async for finding in examine(patient):
            report.findings.append(finding)
    return report


def cause(report: Report) -> str:
    """Return the code of the first cause; empty if there is no problem."""
    return report.cause.code if report.cause else ""


def found(report: Report, name: str) -> Finding:
    """Return the finding of one check."""
    return next(finding for finding in report.findings if finding.name == name)
