"""A page of an example: bundled from TypeScript, served on a free port of this machine."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

ROOT: Final = Path(__file__).parent.parent.parent
ICON: Final = ROOT / "server-mock" / "console" / "icon.svg"
BUILD_TIME: Final = 60.0
"""Timeout for bundling, in seconds."""
ENTRIES: Final = {"": "index.ts", "/react": "react/index.ts", "/streams": "streams/index.ts"}
"""Source files of the TypeScript package's entries in a checkout."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src *; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class PageFailed(Exception):
    """There is no page; the text gives the reason."""


@asynccontextmanager
async def serve(main: Path, routes: Sequence[web.RouteDef]) -> AsyncGenerator[str]:
    """Bundle a page and serve it until the block ends; gives its URL.

    Args:
        main: The program, which becomes `page.js`. Beside it are `page.css`, which becomes
            `style.css`, and `index.html`, which loads both.
        routes: What the site answers beside its files.

    Raises:
        PageFailed: The page cannot be bundled.
    """
    with tempfile.TemporaryDirectory(prefix="hanzo-pubsub-page-") as folder:
        await _bundle(main, Path(folder))

        async def index(_request: web.Request) -> web.FileResponse:
            return web.FileResponse(Path(folder, "index.html"))

        guard = _Guard()
        app = web.Application(middlewares=[guard.check])
        app.add_routes([*routes, web.get("/", index), web.static("/", folder)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            _, port = runner.addresses[0]
            guard.host = f"127.0.0.1:{port}"
            yield f"http://{guard.host}/"
        finally:
            await runner.cleanup()


class _Guard:
    """Answers this page alone: no other host name, and no POST of another page."""

    host = ""

    @web.middleware
    async def check(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.headers.get("Host") != self.host:
            raise web.HTTPMisdirectedRequest
        if request.method == "POST" and request.headers.get("Origin") != f"http://{self.host}":
            raise web.HTTPForbidden
        answer = await handler(request)
        answer.headers["Content-Security-Policy"] = POLICY
        # A page with `no-store` loads again when the user comes back to it.
        answer.headers["Cache-Control"] = "no-store" if request.method == "POST" else "no-cache"
        return answer


async def _bundle(main: Path, folder: Path) -> None:
    esbuild = ROOT / "node_modules" / ".bin" / "esbuild"
    if not esbuild.exists():
        raise PageFailed("no page for browsers: `make packages` installs what bundles it")
    process = await asyncio.create_subprocess_exec(
        str(esbuild),
        f"page={main}",
        f"style={main.with_name('page.css')}",
        f"--outdir={folder}",
        *(
            f"--alias:@hanzoai/pubsub{name}={ROOT / 'js' / 'src' / file}"
            for name, file in ENTRIES.items()
        ),
        "--define:process.env.NODE_ENV='production'",
        *("--bundle", "--splitting", "--format=esm", "--target=es2022", "--jsx=automatic"),
        "--log-level=warning",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(BUILD_TIME):
            _, printed = await process.communicate()
    except TimeoutError:
        raise PageFailed("no page for browsers: bundling took too long") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = printed.decode(errors="replace").strip()[:2000]
        raise PageFailed(f"no page for browsers: {text}")
    for file in (main.with_name("index.html"), ICON):
        shutil.copy(file, folder)
