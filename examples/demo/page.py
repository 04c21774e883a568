"""The demonstration in a browser: a page with the TypeScript client, served on a free port."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

from examples.chat import local_site
from examples.demo.cast import ANSWER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from examples.chat.server import Server
    from examples.demo.stage import Stage

MAIN: Final = Path(__file__).parent / "browser" / "main.ts"
TABS: Final = 100
"""Maximum number of tabs that take part."""
LASTING: Final = 3600.0
"""Lifetime in seconds of a tab's token after the end, when no renewal is shown any more."""


@dataclass(slots=True)
class Page:
    """The served page.

    Attributes:
        server: The server.
        stage: The state of the demonstration.
        life: Lifetime of a tab's token in seconds, until the end of the text.
        notice: Seconds left on a tab's token after its user has selected the button to expire it.
        stays: Whether the server keeps running after the end.
        url: Address of the page.
        opened: Set when a browser has opened the page.
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

    def routes(self) -> list[web.RouteDef]:
        """The site's routes besides its files."""
        return [
            web.get("/show", self._show),
            web.get("/progress", self._progress),
            web.post("/token", self._token),
            web.post("/cut", self._disturb("drop")),
            web.post("/renew", self._disturb("expire", ms=round(self.notice * 1000))),
        ]

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
                "stream": ANSWER,
                "total": self.stage.total,
                "user": user,
                "stays": self.stays,
            }
        )

    async def _progress(self, _request: web.Request) -> web.Response:
        published = len(self.stage.ledger.words)
        return web.json_response({"published": published, "done": published == self.stage.total})

    async def _token(self, request: web.Request) -> web.Response:
        life = self.life if self.stage.ended is None else LASTING
        token = self.server.token(self._known(request), ttl=life)
        expires_at = round((time.time() + life) * 1000)
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
    """Bundle the page, and serve it until the end of the block.

    Args:
        server: The server.
        stage: The state of the demonstration.
        life: Lifetime of a tab's token in seconds.
        notice: Seconds left on a tab's token after its user has selected the button to expire it.
        stays: Whether the server keeps running after the end.

    Raises:
        PageFailed: The page could not be bundled.
    """
    page = Page(server, stage, life, notice, stays)
    async with local_site.serve(MAIN, page.routes()) as page.url:
        yield page
