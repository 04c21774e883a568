"""Checks over HTTP: the health check, the event stream, the access probe."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Self

from hanzoai.pubsub.cli.doctor.claims import span
from hanzoai.pubsub.cli.doctor.findings import Finding, failed, ok, skipped, warning
from hanzoai.pubsub.cli.doctor.network import Address, proxy_for, speaks_tls
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.http.connection import LOST
from hanzoai.pubsub.http.library import httpx
from hanzoai.pubsub.http.status import wants_certificate
from hanzoai.pubsub.settings.urls import is_loopback

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

PUBLIC_TOPIC: Final = "system.announcements"
"""A topic that every authenticated user may read by HIP-56's rules."""
_KEEPALIVE: Final = 20.0
_LET_STREAM: Final = (
    "Disable buffering for this path (nginx: proxy_buffering off; or the header X-Accel-Buffering: "
    "no), compression and response inspection."
)
_DENIED: Final = (
    "Ask for access, use the token of a user who has it, or change the access rules: "
    "https://pubsub.hanzo.ai/docs/operate/access/."
)
_AWAY: Final = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Health:
    """The finding, and the server's clock (Unix seconds) minus this machine's, if it sent one."""

    finding: Finding
    offset: float | None = None


class Web:
    """The HTTP API of one server."""

    def __init__(self, base: str, token: str | None, context: ssl.SSLContext, patience: float):
        self._base, self._patience = base, patience
        self._address = Address.of(base)
        bare = (token or "").strip().removeprefix("Bearer ").strip()
        self._headers = {"Authorization": f"Bearer {bare}"} if bare else {}
        self._http = httpx.AsyncClient(
            verify=context, timeout=patience, trust_env=not is_loopback(self._address.host)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def check_health(self) -> Health:
        """Checks that this is the HTTP port of a running server."""
        began, at = time.perf_counter(), time.time()
        try:
            async with asyncio.timeout(self._patience):
                answer = await self._http.get(f"{self._base}/healthz")
        except (httpx.TimeoutException, TimeoutError):
            return Health(
                failed(
                    "http",
                    "http_silent",
                    f"{self._address.text} accepts connections, but answers no HTTP request "
                    f"within {span(self._patience)}.",
                    "The server hangs, or another program uses this port.",
                )
            )
        except LOST as error:
            return Health(await self._no_http(error))
        finding = self._judge_health(answer, (time.perf_counter() - began) * 1000)
        return Health(finding, _offset(answer, at))

    def _judge_health(self, answer: httpx.Response, milliseconds: float) -> Finding:
        where, status = f"{self._base}/healthz", answer.status_code
        if "html" in answer.headers.get("content-type", ""):
            content = " with a web page"
        else:
            # Caddy, for example, answers 200 to a path that its configuration does not mention.
            content = "" if answer.content else " with an empty body"
        if status == 200 and not content:
            return ok("http", f"{where} answers", milliseconds)
        if status == 426 or (status == 400 and b"pgrade" in answer.content[:2048]):
            return websocket_port(self._address)
        if answer.is_redirect:
            return failed(
                "http",
                "http_redirect",
                f"{where} redirects elsewhere.",
                "Use the address it redirects to; tokens are never sent along a redirect.",
            )
        if status in _AWAY:
            return failed(
                "http",
                "server_unavailable",
                f"{where} answers {status}: the server behind it is down, starting or shutting "
                "down.",
                "Check the server's log; behind a proxy, that the proxy reaches the server.",
            )
        if status in (401, 403, 407):
            return failed(
                "http",
                "http_gateway",
                f"{where} answers {status}: a gateway in front of the server requires a login.",
                "Let the gateway or proxy pass this path.",
            )
        return failed(
            "http",
            "wrong_port_other",
            f"{where} answers {status}{content}: this is not a Hanzo PubSub server.",
            "Check host, port and path of --url and --rest-url.",
        )

    async def _no_http(self, error: Exception) -> Finding:
        if proxy := proxy_for(self._address):
            return failed(
                "http",
                "proxy_failed",
                f"{self._address.text} cannot be reached through the proxy {proxy} "
                f"({type(error).__name__}).",
                "Check the proxy of the environment (HTTPS_PROXY, HTTP_PROXY), or list the host in "
                "NO_PROXY.",
            )
        if not self._address.secure and await speaks_tls(self._address, self._patience):
            return failed(
                "http",
                "tls_required",
                f"{self._address.text} uses TLS, but the URL is unencrypted.",
                "Use wss:// (and https:// for --rest-url).",
            )
        if wants_certificate(error):
            return failed(
                "http",
                "client_certificate_required",
                f"{self._address.text} requires a client certificate, which this command cannot "
                "present.",
                "In a program, load it into `ssl_context`.",
            )
        certificate = " Check whether the server requires a client certificate."
        return failed(
            "http",
            "http_failed",
            f"{self._address.text} does not support HTTP ({type(error).__name__}).",
            "Check the port. If there is a proxy, check that it passes HTTP/1.1."
            f"{certificate if self._address.secure else ''}",
        )

    async def check_stream(self, topic: str | None, *, wait_keepalive: bool) -> Finding:
        """Checks that server-sent events arrive immediately.

        A buffering proxy delays them; then the head or the first event is missing.
        """
        url, began = f"{self._base}/v1/subscribe", time.perf_counter()
        headers = {**self._headers, "Accept": "text/event-stream"}
        timeout = httpx.Timeout(self._patience, read=None)
        head, first = False, None
        try:
            async with (
                asyncio.timeout(self._patience) as limit,
                self._http.stream(
                    "GET",
                    url,
                    params={"topics": topic or PUBLIC_TOPIC},
                    headers=headers,
                    timeout=timeout,
                ) as answer,
            ):
                head = True
                if answer.status_code != 200:
                    return await self._refused_stream(answer, topic)
                if "text/event-stream" not in answer.headers.get("content-type", ""):
                    return failed(
                        "sse",
                        "sse_wrong_type",
                        f"{url} answers with {answer.headers.get('content-type', 'no type')[:80]}, "
                        "not with an event stream.",
                        "A gateway in front of the server answers instead.",
                    )
                chunks = answer.aiter_raw()
                await anext(chunks)
                first = (time.perf_counter() - began) * 1000
                if not wait_keepalive:
                    return ok("sse", "the first event arrived immediately", first)
                limit.reschedule(asyncio.get_running_loop().time() + _KEEPALIVE)
                return await self._keepalive(chunks, first)
        except TimeoutError:
            if first is not None:
                return failed(
                    "sse",
                    "sse_buffered",
                    f"After its first event, the event stream sent no comment within "
                    f"{span(_KEEPALIVE)}: a proxy buffers the response.",
                    _LET_STREAM,
                )
            return failed(
                "sse",
                "sse_buffered",
                f"The event stream {'opened' if head else 'was requested'}, but no event came "
                f"within {span(self._patience)}: a proxy buffers the response.",
                _LET_STREAM,
            )
        except (*LOST, StopAsyncIteration) as error:
            return failed(
                "sse",
                "sse_cut",
                f"The event stream ended before its first event ({type(error).__name__}).",
                "A proxy cuts long responses. Check its timeouts.",
            )

    async def _keepalive(self, chunks: AsyncIterator[bytes], first: float) -> Finding:
        """Waits for a comment. Events of the topic may come before it."""
        began = time.perf_counter()
        try:
            while b"\n:" not in b"\n" + await anext(chunks):
                pass
        except (*LOST, StopAsyncIteration):
            return failed(
                "sse",
                "sse_cut",
                f"The event stream was cut after {span(time.perf_counter() - began)}.",
                "A proxy ends idle responses. Raise its read timeout above 30s.",
            )
        waited = time.perf_counter() - began
        return ok(
            "sse",
            f"the first event arrived immediately, the next comment after {span(waited)}",
            first,
        )

    async def _refused_stream(self, answer: httpx.Response, topic: str | None) -> Finding:
        code, message, remedy = await _problem(answer)
        if code == "forbidden" and topic is None:
            return skipped("sse", f"not checked: no access to {PUBLIC_TOPIC}; pass --topic")
        if code == "forbidden":
            return skipped("sse", f"not checked: no access to {topic}")
        return failed(
            "sse", code, f"The event stream was rejected ({answer.status_code}): {message}", remedy
        )

    async def check_access(self, topic: str) -> Finding:
        """Shows the permissions of this identity on a topic, and the rule that decides."""
        try:
            async with asyncio.timeout(self._patience):
                answer = await self._http.get(
                    f"{self._base}/v1/access", params={"topic": topic}, headers=self._headers
                )
        except (*LOST, TimeoutError) as error:
            return failed(
                "access",
                "access_unanswered",
                f"The access to {topic} could not be checked ({type(error).__name__}).",
                "Check the HTTP API.",
            )
        if answer.status_code in (404, 405, 501):
            return await self._access_by_history(topic)
        if answer.status_code != 200:
            code, message, remedy = await _problem(answer)
            return failed("access", code, f"{topic}: {message}", remedy)
        found = _object(answer)
        rights = [right for right in ("subscribe", "publish") if found.get(right) is True]
        reason = str(found.get("reason") or found.get("rule") or "")[:500]
        if not rights:
            return failed(
                "access",
                "forbidden",
                f"{topic}: neither subscribe nor publish is allowed. {reason}".rstrip(),
                _DENIED,
            )
        allowed = f"{topic}: may {' and '.join(rights)}"
        if "subscribe" not in rights:
            return warning(
                "access",
                "subscribe_forbidden",
                f"{allowed}, not subscribe. {reason}".rstrip(),
                "To read it, ask for access.",
            )
        silent = None if "*" in topic else await self._unread_history(topic)
        return silent or ok("access", f"{allowed}{'' if len(rights) == 2 else ', not publish'}")

    async def _unread_history(self, topic: str) -> Finding | None:
        """The finding if the server cannot read its store: the rules need none of it."""
        try:
            answer = await self._ask_history(topic)
        except (TimeoutError, httpx.TimeoutException):
            code, message = "unavailable", f"the server did not answer in {span(self._patience)}"
        except LOST:
            return None
        else:
            status = answer.status_code
            if status not in _AWAY:
                return None
            code, message, _ = await _problem(answer)
            if "code" not in _object(answer):
                return failed(
                    "access",
                    code,
                    f"{topic}: the history cannot be read: a gateway in front of the server "
                    f"answers {status}.",
                    "Check that the gateway or proxy reaches the server.",
                )
        return failed(
            "access",
            code,
            f"{topic}: the history cannot be read: {message.removesuffix('.')}.",
            "Check the store of the server, such as Redis, and the log of the server.",
        )

    async def _ask_history(self, topic: str) -> httpx.Response:
        async with asyncio.timeout(self._patience):
            return await self._http.get(
                f"{self._base}/v1/topics/{topic}/history",
                params={"limit": 1},
                headers=self._headers,
            )

    async def _access_by_history(self, topic: str) -> Finding:
        """A server that implements only HIP-56 shows it by rejecting the request."""
        if "*" in topic:
            return skipped("access", f"{topic}: this server does not report access to patterns")
        try:
            answer = await self._ask_history(topic)
        except (*LOST, TimeoutError):
            return skipped("access", f"{topic}: this server does not report access")
        if answer.status_code == 403:
            return failed(
                "access",
                "forbidden",
                f"{topic}: subscribe is not allowed.",
                _DENIED,
            )
        return ok(
            "access", f"{topic}: may subscribe; this server does not report publish permissions"
        )


def websocket_port(address: Address, folder: str = "") -> Finding:
    """The finding if the HTTP API was expected at the WebSocket's address.

    Args:
        address: The address.
        folder: The path in front of the last segment of the WebSocket's URL.
    """
    remedy = "Pass the HTTP API's address with --rest-url (usually port 8056)."
    if folder:
        remedy += (
            f" If a proxy serves both ports under {folder}, pass --url"
            f" http{'s' if address.secure else ''}://{address.text}{folder}."
        )
    return failed(
        "http",
        "wrong_port_websocket",
        f"{address.text} is a WebSocket port, not the HTTP API.",
        remedy,
    )


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        found: Any = answer.json()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


async def _problem(answer: httpx.Response) -> tuple[str, str, str]:
    """Code, message and remedy of a refusal (RFC 9457), or of its status."""
    await answer.aread()
    found = _object(answer)
    fallback = {401: "token_invalid", 403: "forbidden", 404: "not_found", 429: "connection_limit"}
    code = str(found.get("code") or fallback.get(answer.status_code, "unavailable"))[:64]
    known = CODES.get(code)
    message = str(found.get("detail") or found.get("title") or (known.meaning if known else code))
    remedy = str(found.get("remedy") or (known.remedy if known else ""))
    return code, message[:500], remedy[:500]


def _offset(answer: httpx.Response, at: float) -> float | None:
    """The clock difference by the `Date` header, to the second."""
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp() - at
    except (KeyError, ValueError):
        return None
