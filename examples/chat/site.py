"""The backend of the chat: its page, its token endpoint, and the process that answers."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

from examples.chat import local_site
from examples.chat.server import end
from examples.chat.topics import ROOM, SCRIBE
from hanzoai.pubsub import PubSubClient, PubSubError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from examples.chat.server import Server

PAGE: Final = Path(__file__).parent / "page" / "main.tsx"
WRITER: Final = Path(__file__).with_name("writer.py")
LIFE: Final = 600.0
"""Lifetime of the token of a page, in seconds; the client renews it."""
PAUSE: Final = 1.5
"""Seconds until a new process replaces one that ended."""
_NAME: Final = re.compile(r"[a-z0-9-]{1,20}")


@dataclass(slots=True)
class Writer:
    """Keeps a writer process running.

    Attributes:
        server: The server that the process publishes to.
        rate: Words per second.
        started: Number of processes started so far.
    """

    server: Server
    rate: float | None = None
    started: int = 0
    _process: asyncio.subprocess.Process | None = None
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def ready(self) -> int:
        """Wait until a process is ready; returns its process id."""
        await self._ready.wait()
        assert self._process is not None
        return self._process.pid

    async def keep(self) -> None:
        """Start the process, and restart it whenever it ends. Cancel this to end it."""
        token = self.server.token("backstage", service=True)
        async with PubSubClient(self.server.ws, token, rest_url=self.server.http) as ps:
            while True:
                self._process = process = await self._start()
                try:
                    assert process.stdout is not None
                    if await process.stdout.readline():
                        self.started += 1
                        self._ready.set()
                        if self.started > 1:
                            await _note(ps, "writer.started", process.pid)
                    await process.wait()
                    self._ready.clear()
                    await _note(ps, "writer.died", process.pid)
                finally:
                    await end(process)
                await asyncio.sleep(PAUSE)

    def kill(self) -> int | None:
        """Send SIGKILL to the process; returns its id, None where there is none."""
        process = self._process
        if process is None or process.returncode is not None or not self._ready.is_set():
            return None
        process.kill()
        return process.pid

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            str(WRITER),
            stdin=asyncio.subprocess.PIPE,  # closed when this process ends, which ends the writer
            stdout=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "HANZO_PUBSUB_URL": self.server.ws,
                "HANZO_PUBSUB_REST_URL": self.server.http,
                "HANZO_PUBSUB_TOKEN": self.server.token(SCRIBE, service=True, ttl=86_400),
                **({"CHAT_RATE": str(self.rate)} if self.rate else {}),
            },
        )


async def _note(ps: PubSubClient, type: str, pid: int) -> None:
    try:
        await ps.publish(ROOM, {"type": type, "data": {"pid": pid}})
    except PubSubError as error:
        print(f"not noted in the room: {error}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Site:
    """The running chat.

    Attributes:
        url: URL of the page.
        writer: The process that answers.
        opened: Set when a browser has opened the page.
    """

    server: Server
    writer: Writer
    url: str = ""
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def routes(self) -> list[web.RouteDef]:
        """The routes of the site in addition to its files."""
        return [
            web.get("/config", self._config),
            web.post("/token", self._token),
            web.post("/kill", self._kill),
        ]

    async def _config(self, _request: web.Request) -> web.Response:
        self.opened.set()
        return web.json_response(
            {"ws": self.server.ws, "http": self.server.http, "room": ROOM, "scribe": SCRIBE}
        )

    async def _token(self, request: web.Request) -> web.Response:
        # A real backend knows the user by its session, and issues tokens for no other user.
        user = request.query.get("user", "")
        if not _NAME.fullmatch(user):
            raise web.HTTPBadRequest(text="user: 1 to 20 of a-z, 0-9 and -")
        token = self.server.token(user, ttl=LIFE)
        expires_at = round((time.time() + LIFE) * 1000)
        return web.json_response({"value": token, "expiresAt": expires_at})

    async def _kill(self, _request: web.Request) -> web.Response:
        return web.json_response({"pid": self.writer.kill()})


@asynccontextmanager
async def serve(server: Server, *, rate: float | None = None) -> AsyncGenerator[Site]:
    """Serve the page and keep the writer running until the block ends.

    Args:
        server: Where messages go.
        rate: Words per second of the answers; default 35.

    Raises:
        PageFailed: The page cannot be bundled.
    """
    site = Site(server, Writer(server, rate))
    keeping = asyncio.create_task(site.writer.keep())
    try:
        async with local_site.serve(PAGE, site.routes()) as site.url:
            yield site
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
