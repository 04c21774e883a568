"""Attaches to requests an id (the client's, if it is valid) and the origin."""

from __future__ import annotations

import re
import secrets
from typing import Final

from aiohttp import web

from pubsub_server.interfaces import Caller

REQUEST_ID: Final = web.RequestKey("request_id", str)
CALLER: Final = web.RequestKey("caller", Caller)

_GOOD: Final = re.compile(r"[a-zA-Z0-9._-]{1,64}", re.ASCII)


def request_id(offered: str | None) -> str:
    """The id of a request with this header `X-Request-Id`; None without one."""
    if offered is not None and _GOOD.fullmatch(offered):
        return offered
    return new_request_id()


def new_request_id() -> str:
    """A new id that identifies a request in its answer and in the log."""
    return "req_" + secrets.token_hex(8)
