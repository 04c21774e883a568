"""The `httpx` client of REST and event streams: proxies, TLS, headers."""

from __future__ import annotations

import ssl
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hanzoai.pubsub.http.inflate import ACCEPTED, inflated
from hanzoai.pubsub.http.library import httpx
from hanzoai.pubsub.settings.checks import bare_token
from hanzoai.pubsub.settings.urls import is_loopback
from hanzoai.pubsub.version import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hanzoai.pubsub.settings.options import ClientOptions


LOST: Final = (httpx.HTTPError, ssl.SSLError)
"""What is raised without an answer. httpx does not convert TLS errors after the handshake."""


def make_client(
    options: ClientOptions, transport: httpx.AsyncBaseTransport | None = None
) -> httpx.AsyncClient:
    """Build a client for `options.http_url`.

    It does not follow redirects, which would send the token elsewhere, and uses no proxy for this
    machine. The caller limits the time of an answer: a server may hold it.

    Args:
        options: `http_url`, `proxy`, `ssl_context` and `operation_timeout` are used.
        transport: Transport of the requests, instead of the network.

    Raises:
        ImportError: The proxy needs more packages.
        ValueError: The URL of the proxy is not valid.
        UnicodeError: The host cannot exist.
        httpx.InvalidURL: One of both, see its context.
    """
    url = urlsplit(options.http_url)
    _ = httpx.URL(options.http_url).host  # raises now, not with each request
    local = is_loopback(url.hostname or "")
    verify: ssl.SSLContext | bool = False
    if url.scheme == "https" and transport is None:
        verify = options.ssl_context or ssl.create_default_context()
    return httpx.AsyncClient(
        base_url=options.http_url,
        headers={
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": ACCEPTED,
            **_without_idle_connections(),
        },
        timeout=httpx.Timeout(options.operation_timeout, read=None),
        verify=verify,
        trust_env=options.proxy is True and not local,
        proxy=options.proxy if isinstance(options.proxy, str) and not local else None,
        transport=transport,
        follow_redirects=False,
    )


def _without_idle_connections() -> dict[str, str]:
    """A header that makes the client close each connection, if gevent has patched `select`.

    The client polls an idle connection before it uses it again. With gevent, other green threads
    run meanwhile, and would find the running event loop: see `runtime.threads`.
    """
    gevent = sys.modules.get("gevent.monkey")
    patched = gevent is not None and gevent.is_module_patched("select")
    return {"Connection": "close"} if patched else {}


async def body_of(response: httpx.Response) -> AsyncGenerator[bytes]:
    """The unread body of an answer, decompressed in portions of limited size.

    Raises:
        ProtocolError: Its compression was not requested or is not valid.
    """
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    async with aclosing(inflated(stream, response.headers.get("Content-Encoding"))) as portions:
        async for portion in portions:
            yield portion


def authorization(token: str) -> dict[str, str]:
    """The header for a token, which may already contain `Bearer `."""
    return {"Authorization": f"Bearer {bare_token(token)}"}
