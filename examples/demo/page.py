"""The show in a browser: a page built on the TypeScript client, served on a free port."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from examples.demo.server import Server
    from examples.demo.stage import Stage

ROOT: Final = Path(__file__).parent.parent.parent
SOURCES: Final = Path(__file__).with_name("browser")
ICON: Final = ROOT / "server-mock" / "console" / "icon.svg"
BUILD_TIME: Final = 60.0
"""Seconds that bundling may take."""
TABS: Final = 100
"""Tabs that may take part."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src *; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class PageFailed(Exception):
    """There is no page; the text says why."""


@dataclass(slots=True)
class Page:
    """A page that is served.

    Attributes:
        server: Of the show.
        stage: The show.
        life: Seconds that the token of a tab lives.
        notice: Seconds before its end at which the server asks for another.
        stays: Whether all is there after the end.
        url: Where the page is.
        opened: Set when someone has opened it.
    """

    server: Server
    stage: Stage
    life: float
    notice: float
    stays: bool
    url: str = ""
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    _users: dict[str, None] = field(default_factory=dict[str, None])
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def cut(self) -> None:
        """Cut the connections of every tab."""
        for user in self._users:
            await self.server.fault("drop", user=user)

    def routes(self, folder: Path) -> list[web.RouteDef | web.StaticDef]:
        """What the site answers."""

        async def index(_request: web.Request) -> web.FileResponse:
            return web.FileResponse(folder / "index.html")

        return [
            web.get("/", index),
            web.get("/show", self._show),
            web.get("/progress", self._progress),
            web.post("/token", self._token),
            web.post("/cut", self._disturb("drop")),
            web.post("/renew", self._disturb("expire", ms=round(self.notice * 1000))),
            web.static("/", folder),
        ]

    @web.middleware
    async def guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer this page alone: no name that leads here, no page of others gets a token."""
        if request.headers.get("Host") != self.url.removeprefix("http://").rstrip("/"):
            raise web.HTTPMisdirectedRequest
        if request.method == "POST" and request.headers.get("Origin") != self.url.rstrip("/"):
            raise web.HTTPForbidden
        answer = await handler(request)
        answer.headers["Content-Security-Policy"] = POLICY
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _known(self, request: web.Request) -> str:
        user = request.query.get("user", "")
        if user not in self._users:
            raise web.HTTPNotFound
        return user

    async def _show(self, request: web.Request) -> web.Response:
        user = request.query.get("user", "")
        if user not in self._users:
            if len(self._users) >= TABS:
                raise web.HTTPServiceUnavailable
            user = f"browser-{next(self._numbers)}"
            self._users[user] = None
        self.opened.set()
        return web.json_response(
            {
                "ws": self.server.ws,
                "http": self.server.http,
                "topic": self.stage.topic,
                "total": self.stage.total,
                "user": user,
                "stays": self.stays,
            }
        )

    async def _progress(self, _request: web.Request) -> web.Response:
        published = len(self.stage.ledger.index_of)
        return web.json_response({"published": published, "done": published == self.stage.total})

    async def _token(self, request: web.Request) -> web.Response:
        token = self.server.token(self._known(request), ttl=self.life)
        expires_at = round((time.time() + self.life) * 1000)
        return web.json_response({"value": token, "expiresAt": expires_at})

    def _disturb(
        self, fault: str, **parameters: int
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def perform(request: web.Request) -> web.Response:
            await self.server.fault(fault, user=self._known(request), **parameters)
            return web.json_response({})

        return perform


@asynccontextmanager
async def serve(
    server: Server, stage: Stage, *, life: float, notice: float, stays: bool
) -> AsyncGenerator[Page]:
    """Bundle the page and serve it until the block ends.

    Args:
        server: Of the show.
        stage: The show.
        life: Seconds that the token of a tab lives.
        notice: Seconds before its end at which the server asks for another.
        stays: Whether all is there after the end.

    Raises:
        PageFailed: It could not be bundled.
    """
    page = Page(server, stage, life, notice, stays)
    with tempfile.TemporaryDirectory(prefix="hanzo-pubsub-page-") as folder:
        await _bundle(Path(folder))
        app = web.Application(middlewares=[page.guard])
        app.add_routes(page.routes(Path(folder)))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            _, port = runner.addresses[0]
            page.url = f"http://127.0.0.1:{port}/"
            yield page
        finally:
            await runner.cleanup()


async def _bundle(folder: Path) -> None:
    esbuild = ROOT / "node_modules" / ".bin" / "esbuild"
    if not esbuild.exists():
        raise PageFailed("no page for browsers: `make packages` installs what bundles it")
    process = await asyncio.create_subprocess_exec(
        str(esbuild),
        f"page={SOURCES / 'main.ts'}",
        f"style={SOURCES / 'page.css'}",
        f"--outdir={folder}",
        f"--alias:@hanzoai/pubsub={ROOT / 'js' / 'src' / 'index.ts'}",
        *("--bundle", "--splitting", "--format=esm", "--target=es2022", "--log-level=warning"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(BUILD_TIME):
            _, said = await process.communicate()
    except TimeoutError:
        raise PageFailed("no page for browsers: bundling took too long") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise PageFailed(f"no page for browsers: {said.decode(errors='replace').strip()[:2000]}")
    for file in (SOURCES / "index.html", ICON):
        shutil.copy(file, folder)
