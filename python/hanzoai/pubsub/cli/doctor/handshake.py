"""The WebSocket: its handshake, the answer to `auth`, and the frame size that passes."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidProxyStatus,
    InvalidStatus,
    ProxyError,
    WebSocketException,
)

from hanzoai.pubsub.cli.doctor.claims import read_claims, span
from hanzoai.pubsub.cli.doctor.findings import Finding, failed, ok, skipped
from hanzoai.pubsub.cli.doctor.network import NO_PROXY, Address, proxy_for, speaks_tls
from hanzoai.pubsub.generated.defaults import CLIENT
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.http.status import remedy_of, why_no_proxy, why_refused
from hanzoai.pubsub.network.dialing import NEXT_AFTER
from hanzoai.pubsub.settings.proxies import system_proxy

if TYPE_CHECKING:
    import ssl

_STRIPPED: Final = frozenset({200, 400, 405, 411, 426, 501, 505})
"""Statuses of servers for a request whose `Upgrade` header was removed by a proxy."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The content of `auth.ok`.

    Attributes:
        user: The user of the token; empty if the server does not report it.
        offset: The server's clock minus this machine's, seconds; None if not reported.
        max_payload: Bytes; None if not reported.
        plain: Whether this server implements only HIP-56.
    """

    user: str
    offset: float | None
    max_payload: int | None
    plain: bool


class Handshake:
    """One WebSocket, from its opening to its end."""

    def __init__(self, url: str, context: ssl.SSLContext, patience: float) -> None:
        self._url, self._context, self._patience = url, context, patience
        self._address = Address.of(url)
        self._socket: ClientConnection | None = None

    async def close(self) -> None:
        """End it."""
        if self._socket is not None:
            await self._socket.close()

    async def check_upgrade(self, *, same_port_as_http: bool) -> Finding:
        """Checks that a WebSocket opens, through all proxies.

        Args:
            same_port_as_http: Whether the health check was answered at this very port.
        """
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._patience):
                self._socket = await connect(
                    self._url,
                    proxy=system_proxy(self._url),
                    happy_eyeballs_delay=NEXT_AFTER,
                    ssl=self._context if self._address.secure else None,
                    compression=None,
                    open_timeout=None,
                    close_timeout=1,
                    max_size=CLIENT.max_frame,
                )
        except TimeoutError:
            return failed(
                "websocket",
                "websocket_silent",
                f"{self._address.text} did not answer the WebSocket handshake within"
                f" {span(self._patience)}.",
                "A proxy delays the upgrade, or the server hangs; SSE may work meanwhile"
                " (--transport sse).",
            )
        except InvalidStatus as error:
            return self._refused(error.response.status_code, same_port=same_port_as_http)
        except ProxyError as error:
            status = error.response.status_code if isinstance(error, InvalidProxyStatus) else None
            why = why_refused(status, self._address.text, proxy_for(self._address))
            remedy = remedy_of(why) or "Allow CONNECT to this host and port."
            return failed("websocket", "proxy_refused", why, f"{remedy} {NO_PROXY}")
        except (InvalidProxy, ImportError) as error:
            why = why_no_proxy(error)
            return failed("websocket", "proxy_refused", why, f"{remedy_of(why)} {NO_PROXY}")
        except (InvalidMessage, OSError, EOFError) as error:
            return await self._not_spoken(error)
        except (InvalidHandshake, WebSocketException) as error:
            return failed(
                "websocket",
                "upgrade_blocked",
                f"The answer to the WebSocket handshake is not valid ({type(error).__name__}): "
                "a proxy changed its headers.",
                _LET_PASS,
            )
        return ok("websocket", f"{self._url} opened", (time.perf_counter() - began) * 1000)

    def _refused(self, status: int, *, same_port: bool) -> Finding:
        if status == 404 and same_port:
            return failed(
                "websocket",
                "wrong_port_http",
                f"{self._address.text} is the HTTP port: it has no WebSocket.",
                "Use the WebSocket port in --url (usually 8057, path /ws).",
            )
        if status == 404:
            return failed(
                "websocket",
                "websocket_not_found",
                f"There is no WebSocket at {self._url} (404).",
                "Check port and path (usually 8057 and /ws).",
            )
        if status in _STRIPPED:
            return failed(
                "websocket",
                "upgrade_blocked",
                f"The WebSocket upgrade was answered with {status}: a proxy in between does not "
                "pass it.",
                _LET_PASS,
            )
        if status in (401, 403, 407):
            return failed(
                "websocket",
                "upgrade_forbidden",
                f"The WebSocket handshake was rejected with {status}, before any token was sent.",
                "A gateway or an origin check in front of the server rejects it; " + _LET_PASS,
            )
        if status == 429:
            return failed(
                "websocket",
                "connection_limit",
                "The server has too many connections (429).",
                CODES["connection_limit"].remedy,
            )
        return failed(
            "websocket",
            "server_unavailable",
            f"The WebSocket handshake was answered with {status}.",
            "Check the server's log; behind a proxy, that the proxy reaches the server.",
        )

    async def _not_spoken(self, error: Exception) -> Finding:
        if not self._address.secure and await speaks_tls(self._address, self._patience):
            return failed(
                "websocket",
                "tls_required",
                f"{self._address.text} uses TLS, but the URL begins with ws://.",
                "Use wss://.",
            )
        return failed(
            "websocket",
            "websocket_cut",
            f"{self._address.text} closed the connection during the WebSocket handshake "
            f"({type(error).__name__}).",
            "The server rejects connections, or another service uses the port. Check the "
            "server's log.",
        )

    async def check_auth(self, token: str) -> tuple[Finding, Welcome | None]:
        """Checks that the server accepts the token."""
        assert self._socket is not None
        frame = {
            "type": "auth",
            "token": f"Bearer {token.strip().removeprefix('Bearer ').strip()}",
            "version": CLIENT.protocol_version,
            "client": {"name": "hanzo-pubsub doctor", "lang": "python"},
        }
        sent = time.time()
        try:
            async with asyncio.timeout(self._patience):
                await self._socket.send(json.dumps(frame))
                answer = await self._receive("auth.ok", "auth.error", "error")
        except TimeoutError:
            return (
                failed(
                    "auth",
                    "auth_silent",
                    f"The server did not answer `auth` within {span(self._patience)}.",
                    "The server hangs (it may not reach the keys of the issuer), or it is "
                    "not a Hanzo"
                    " PubSub server.",
                ),
                None,
            )
        except ConnectionClosed as closed:
            return self._closed(closed), None
        received = time.time()
        if answer["type"] != "auth.ok":
            return _refused_token(answer, token, received), None
        server_time = answer.get("server_time")
        offset = None
        if isinstance(server_time, int) and not isinstance(server_time, bool):
            offset = server_time / 1000 - (sent + received) / 2
        user = str(answer.get("user_id") or "")[:128]
        limits = answer.get("limits")
        most = cast("dict[str, Any]", limits).get("max_payload") if isinstance(limits, dict) else 0
        welcome = Welcome(
            user=user,
            offset=offset,
            max_payload=most if isinstance(most, int) and most > 0 else None,
            plain="version" not in answer,
        )
        known = (
            f"the server accepts this token as {user}" if user else "the server accepts the token"
        )
        return ok("auth", known, (received - sent) * 1000), welcome

    async def check_payload(self, limit: int | None) -> Finding:
        """Checks that a frame of the maximum size passes. It is a `ping`: nothing is published."""
        assert self._socket is not None
        if limit is None:
            return skipped("payload", "this server does not report its limit")
        frame = json.dumps({"type": "ping", "padding": "x" * max(0, limit - 64)})
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._patience):
                await self._socket.send(frame)
                await self._receive("pong", "error")
        except TimeoutError:
            return failed(
                "payload",
                "payload_held",
                f"A frame of {limit:,} bytes was not answered within {span(self._patience)}.",
                "A proxy between this machine and the server blocks large frames.",
            )
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 1006
            return failed(
                "payload",
                "payload_cut",
                f"A frame of {limit:,} bytes, which the server allows, ended the connection "
                f"({code}).",
                "Raise the maximum WebSocket message size of the proxy.",
            )
        took = (time.perf_counter() - began) * 1000
        return ok("payload", f"{limit:,} bytes are accepted", took)

    async def _receive(self, *kinds: str) -> dict[str, Any]:
        """The next frame of one of these types."""
        assert self._socket is not None
        while True:
            text = await self._socket.recv()
            try:
                found: Any = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict) and found.get("type") in kinds:  # pyright: ignore[reportUnknownMemberType]
                return found  # pyright: ignore[reportUnknownVariableType]

    def _closed(self, closed: ConnectionClosed) -> Finding:
        code = closed.rcvd.code if closed.rcvd else 1006
        reason = closed.rcvd.reason[:200] if closed.rcvd else ""
        record = next((r for r in CODES.values() if r.close == code), None)
        if record is None:
            return failed(
                "auth",
                "closed",
                f"The server closed the connection before it answered `auth` ({code}"
                f"{f': {reason}' if reason else ''}).",
                "It rejects connections, or is not a Hanzo PubSub server. Check its log.",
            )
        by_reason = CODES.get(reason) or record
        return failed(
            "auth",
            by_reason.code,
            f"The server closed the connection ({code}"
            f"{f', {reason}' if reason else ''}): {by_reason.meaning}",
            by_reason.remedy,
        )


_LET_PASS: Final = (
    "Let the proxy pass upgrades (nginx: proxy_http_version 1.1; proxy_set_header Upgrade "
    "$http_upgrade; proxy_set_header Connection upgrade). Meanwhile --transport sse may work."
)


def _refused_token(answer: dict[str, Any], token: str, now: float) -> Finding:
    code = str(answer.get("code") or "token_invalid")[:64]
    known = CODES.get(code)
    message = str(answer.get("message") or (known.meaning if known else code))[:500]
    remedy = str(answer.get("remedy") or (known.remedy if known else ""))[:500]
    claims = read_claims(token)
    if claims is not None and claims.expires_at is not None:
        if claims.expires_at <= now:
            message = f"The token expired {span(now - claims.expires_at)} ago."
            remedy = "Get a new token. In programs, pass get_token, so that the client renews it."
            code = "token_expired"
        elif code == "token_expired":
            remedy = (
                "According to this machine's clock, it is valid for another "
                f"{span(claims.expires_at - now)}: "
                "set the clocks of both machines (NTP)."
            )
    return failed("auth", code, f"The server rejected the token: {message}", remedy)
