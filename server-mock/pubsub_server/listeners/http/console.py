"""The console page at `/`: its files, its start values, and the sites that may embed it."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from pubsub_server.listeners.http.dev_sign_in import DevSignIn
    from pubsub_server.settings.config import Settings

FILES: Final = Path(__file__).parents[2] / "generated" / "console"
PREFIX: Final = "/console/"

TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

_HOST: Final = re.compile(r"([a-zA-Z0-9.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\])(:\d{1,5})?", re.ASCII)

_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class File:
    """One file, ready to send.

    Attributes:
        body: Its content.
        content_type: Without a charset.
        etag: Hash of its content.
    """

    body: bytes
    content_type: str
    etag: str

    @cached_property
    def packed(self) -> bytes:
        """Its content as gzip; compressed at first use, to keep the start of the server short."""
        return gzip.compress(self.body, compresslevel=9, mtime=0)


class Console:
    """Serves the page.

    Args:
        settings: Addresses of the listeners.
        version: Version of this server.
        sign_in: Signs in without a token, in development.

    Attributes:
        ws_port: Port of the WebSocket listener, once it is open.
        sign_in: As given.
    """

    def __init__(self, settings: Settings, version: str, sign_in: DevSignIn | None) -> None:
        self.ws_port = settings.ws_port
        self.sign_in = sign_in
        self._settings = settings
        self._version = version
        self._files = {
            path.name: _load(path) for path in sorted(FILES.glob("*")) if path.suffix in TYPES
        }

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Adds the routes of the page."""
        router.add_get("/", self.page)
        router.add_get(PREFIX + "config.json", self.config)
        router.add_get(PREFIX + "{name}", self.file)
        if self.sign_in is not None:
            router.add_post(PREFIX + "token", self.sign_in.token)

    async def page(self, request: web.Request) -> web.Response:
        """`GET /`."""
        return self._send(request, "index.html")

    async def file(self, request: web.Request) -> web.Response:
        """`GET /console/{name}`."""
        name = request.match_info["name"]
        if name not in self._files or name == "index.html":
            raise ServiceError("not_found", "the console has no such file")
        return self._send(request, name)

    async def config(self, request: web.Request) -> web.Response:
        """`GET /console/config.json`: settings for the page."""
        body = {
            "ws": self.socket_url(request),
            "version": self._version,
            "dev_sign_in": self.sign_in is not None,
        }
        return web.Response(
            body=orjson.dumps(body), content_type="application/json", headers=_HEADERS
        )

    def socket_url(self, request: web.BaseRequest) -> str:
        """The WebSocket address for this browser: as set, or derived from the page's."""
        settings = self._settings
        if settings.ws_url is not None:
            return settings.ws_url
        match = _HOST.fullmatch(request.headers.get("Host", ""))
        name = match[1] if match else settings.host
        if not match and ":" in name:
            name = f"[{name}]"
        if settings.behind_tls_proxy and not settings.tls:
            return f"wss://{name}{(match and match[2]) or ''}/ws"
        return f"{'wss' if settings.tls else 'ws'}://{name}:{self.ws_port}/ws"

    def _send(self, request: web.Request, name: str) -> web.Response:
        file = self._files.get(name)
        if file is None:
            raise ServiceError("not_found", "this server was built without its console")
        packs = "gzip" in request.headers.get("Accept-Encoding", "")
        etag = f'"{file.etag}-gzip"' if packs else f'"{file.etag}"'
        headers = {**_HEADERS, "ETag": etag, "Vary": "Accept-Encoding"}
        if name == "index.html":
            headers["Content-Security-Policy"] = self._policy(request)
        if etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        if packs:
            headers["Content-Encoding"] = "gzip"
        return web.Response(
            body=file.packed if packs else file.body,
            content_type=file.content_type,
            charset="utf-8",
            headers=headers,
        )

    def _policy(self, request: web.Request) -> str:
        """Content Security Policy Level 3: allows this page and its socket, and no other origin."""
        socket = self.socket_url(request)
        return (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            f"connect-src 'self' {socket}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        )


def is_console(path: str) -> bool:
    """Whether an address belongs to the page, which other origins must not read."""
    return path == "/" or path.startswith(PREFIX)


def _load(path: Path) -> File:
    body = path.read_bytes()
    return File(
        body=body,
        content_type=TYPES[path.suffix],
        etag=hashlib.sha256(body).hexdigest()[:32],
    )
