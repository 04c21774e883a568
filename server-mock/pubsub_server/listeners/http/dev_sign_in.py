"""Signs the console in without a token: in development, on this machine, for its own page only."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import time
from typing import TYPE_CHECKING, Final, cast

import orjson
from aiohttp import web

from pubsub_server.auth import dev_tokens
from pubsub_server.auth.identity import KINDS
from pubsub_server.auth.loopback_peer import owner_of_peer
from pubsub_server.errors import ServiceError
from pubsub_server.listeners.http import requests
from pubsub_server.settings.config import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_server.auth.identity import Kind
    from pubsub_server.settings.config import Settings

TTL: Final = 300
"""Lifetime of a token in seconds; the page requests the next one before it expires."""

MAX_BODY: Final = 4_096

_FORWARDED: Final = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip")
_LOCAL_HOST: Final = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(?::(\d{1,5}))?", re.ASCII)
_USER: Final = re.compile(r"[a-zA-Z0-9_.@-]{1,64}", re.ASCII)


class DevSignIn:
    """`POST /console/token`.

    Only the page of this server, opened by the user who runs the server, gets a token:

    - the connection comes from this machine and was not forwarded;
    - `Host` is a name of this machine with the port of this listener, so a foreign name that
    resolves to it (DNS rebinding) is rejected;
    - `Origin` is the same origin, and `Sec-Fetch-Site`, if present, is `same-origin`, so pages of
    other sites are rejected;
    - if the system reports the owner of the connection, it is the user of this process or
      root: only these two can read the development key.

    Args:
        settings: Settings with `dev`.
        key: Signs development tokens.
        owner: Returns the user id of the process at the other end; None if unknown.
    """

    def __init__(
        self,
        settings: Settings,
        key: bytes,
        owner: Callable[[tuple[str, int], tuple[str, int]], int | None] = owner_of_peer,
    ) -> None:
        self._settings = settings
        self._key = key
        self._owner = owner

    async def token(self, request: web.Request) -> web.Response:
        """A short-lived token for the page.

        Raises:
            ServiceError: `forbidden` for any other client, `invalid_option` for a wrong field.
        """
        refused = self._refused(request) or await self._stranger(request)
        if refused is not None:
            raise ServiceError(
                "forbidden",
                f"the console signs in on this machine only: {refused}; elsewhere use a token of "
                "`hanzo-pubsub token`",
            )
        seconds = self._settings.body_timeout / 1000
        body = await requests.json_object(request, MAX_BODY, seconds)
        user = body.get("user")
        if not isinstance(user, str) or not _USER.fullmatch(user):
            raise ServiceError(
                "invalid_option",
                "`user` has 1 to 64 letters, digits, `_`, `.`, `@` and `-`",
                field="user",
            )
        kind = _kind(body.get("kind", "user"))
        now = time.time()
        token = dev_tokens.mint(self._key, user, kind=kind, ttl=TTL, now=now)
        return web.Response(
            body=orjson.dumps({"token": token, "expires_at": round((now + TTL) * 1000)}),
            content_type="application/json",
            headers={"Cache-Control": "no-store"},
        )

    def _refused(self, request: web.Request) -> str | None:
        """The reason to reject the request; None if it is allowed."""
        headers = request.headers
        here, there = _ends(request)
        if here is None or there is None or not _is_loopback(there[0]):
            return "the connection comes from another machine"
        if any(name in headers for name in _FORWARDED):
            return "the request was forwarded by a proxy"
        host = headers.getall("Host", [])
        match = _LOCAL_HOST.fullmatch(host[0].lower()) if len(host) == 1 else None
        secure = self._settings.tls
        if match is None or int(match[2] or (443 if secure else 80)) != here[1]:
            names = ", ".join(sorted(LOOPBACK))
            return f"the header Host is not one of {names} with port {here[1]}"
        if headers.getall("Origin", []) != [f"http{'s' if secure else ''}://{match[0]}"]:
            return "the header Origin is not that of this page"
        if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return "the request comes from another site"
        return None

    async def _stranger(self, request: web.Request) -> str | None:
        here, there = _ends(request)
        if here is None or there is None or not hasattr(os, "geteuid"):
            return None
        owner = await asyncio.to_thread(self._owner, there, here)
        if owner in {None, 0, os.geteuid()}:
            return None
        return "the connection belongs to another user of this machine"


def _ends(request: web.Request) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """Address and port of this side and of the other one."""
    transport = request.transport
    if transport is None:
        return None, None
    return _end(transport.get_extra_info("sockname")), _end(transport.get_extra_info("peername"))


def _end(name: object) -> tuple[str, int] | None:
    if not isinstance(name, tuple):
        return None
    host, port, *_ = cast("tuple[object, ...]", name)
    return (host, port) if isinstance(host, str) and isinstance(port, int) else None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _kind(value: object) -> Kind:
    for kind in KINDS:
        if value == kind:
            return kind
    raise ServiceError("invalid_option", f"`kind` is one of {', '.join(KINDS)}", field="kind")
