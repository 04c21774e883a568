"""The meaning of network and HTTP failures for a connection, and their messages."""

from __future__ import annotations

import re
import socket
import ssl
import time
from datetime import UTC
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLOSE_CODES: Final = {
    401: 4401,
    403: 4403,
    413: 4413,
    429: 4429,
    503: 1013,
}
_WAIT_MAX: Final = 3_600.0
_CLOSED: Final = re.compile("disconnected|closed connection|ConnectionTerminated")
"""What httpx says of a peer that ended the connection before the answer was complete."""

_REMEDIES: Final[Mapping[str, str]] = {
    # A proxy says nothing about the server.
    r"(?!The proxy ).* refused the connection: no program uses this port\.": (
        "Start the server, in development with `hanzo-pubsub serve --dev`, or correct the address."
    ),
    r".* the port answers without TLS .*": "Use ws:// or http://, or the port that uses TLS.",
    r".* certificate (is not yet valid|has expired)\.": (
        "Check the clock of this machine; if it is right, the server needs another certificate."
    ),
    r".* requires a client certificate\.": "Load one into `ssl_context`.",
    r".* cannot be resolved on this machine\.": (
        "Write the URL of the proxy with socks5h:// to resolve it there."
    ),
    r".* answered HTTP 407\.": "Check the user name and the password in the URL of the proxy.",
    r"A SOCKS proxy needs more packages\.": (
        'Install them: pip install "httpx[socks]" python-socks.'
    ),
    r"The URL of the proxy is invalid\.": ("Check `proxy`, HTTPS_PROXY, HTTP_PROXY and ALL_PROXY."),
    r".* handshake with HTTP 200\.": (
        "Check the host and the port of the URL: no PubSub server answers there."
    ),
    r".* handshake with HTTP 404\.": (
        "Check the port and the path of the URL, usually 8057 and /ws."
    ),
    r".* handshake with HTTP 426\.": (
        "Let the proxy in front of the server pass the WebSocket upgrade."
    ),
}
"""Remedies for the likely causes of failures, by patterns of the reasons in this module."""


def close_code_for(status: int) -> int | None:
    """The close code for an HTTP status; None if the status is not about identity."""
    return _CLOSE_CODES.get(status)


def wait_of(milliseconds: float) -> float:
    """Convert a wait that a server requests to seconds, 0 to 3,600."""
    return min(max(0.0, milliseconds), _WAIT_MAX * 1000) / 1000


def retry_after_of(value: str | None, wall: float | None = None) -> float | None:
    """Read `Retry-After` (RFC 9110, 10.2.3): seconds or a date.

    Args:
        value: The header, if there was one.
        wall: Current Unix seconds; default: the machine's clock.

    Returns:
        Seconds from now, 0 to 3,600; None for other values.
    """
    if value is None:
        return None
    text = value.strip()
    try:
        seconds = float(text)
    except ValueError:
        # Loaded only for a date.
        from email.utils import parsedate_to_datetime

        try:
            then = parsedate_to_datetime(text)
            # The oldest of the three forms names no zone; each is in GMT.
            seconds = then.replace(tzinfo=then.tzinfo or UTC).timestamp()
        except (ValueError, OverflowError):
            return None
        seconds -= time.time() if wall is None else wall
    if seconds != seconds:
        return None
    return min(max(seconds, 0.0), _WAIT_MAX)


def why_unreachable(
    error: BaseException,
    host: str,
    proxy: str | None = None,
    *,
    port: int | None = None,
    proxy_resolves: bool = True,
) -> str:
    """A sentence with the reason why a host could not be reached.

    Args:
        error: What was raised.
        host: The host.
        proxy: The host of the proxy, if the connection goes through one.
        port: The port in the URL, if it has one.
        proxy_resolves: Whether the proxy looks up the host name; otherwise this machine does.
    """
    name = f"[{host}]" if ":" in host else host
    address = host if port is None else f"{name}:{port}"
    dialed = address if proxy is None else f"The proxy {proxy}"
    either = address if proxy is None else f"{address} or the proxy {proxy}"
    for cause in _chain(error):
        match cause:
            case ssl.SSLCertVerificationError():
                why = getattr(cause, "verify_message", "") or "verification failed"
                return f"TLS: the certificate of {host} is not trusted: {why}."
            case ssl.SSLError():
                why = getattr(cause, "reason", None) or type(cause).__name__
                if wants_certificate(cause):
                    return f"{host} requires a client certificate."
                if why == "WRONG_VERSION_NUMBER":
                    return f"TLS with {address} failed: the port answers without TLS ({why})."
                return f"TLS with {address} failed: {why}."
            case UnicodeError():
                return f"The host name {host} cannot be resolved."
            case socket.gaierror():
                if proxy is not None and not proxy_resolves:
                    return f"The host name {host} cannot be resolved on this machine."
                return f"The host name {proxy or host} cannot be resolved."
            case ConnectionRefusedError():
                return f"{dialed} refused the connection: no program uses this port."
            case ConnectionResetError() | BrokenPipeError():
                return f"{either} reset the connection."
            case TimeoutError():
                return f"{either} did not answer in time."
            case _ if proxy is not None and type(cause).__name__ == "ProxyError":  # of httpx
                status, _, _ = str(cause).partition(" ")
                return why_refused(int(status) if status.isdecimal() else None, host, proxy)
            case _ if type(cause).__name__ == "RemoteProtocolError":  # of httpx
                # The text of the other errors may quote what the peer sent.
                if _CLOSED.search(str(cause)):
                    return f"{either} closed the connection."
                return f"{either} does not answer in HTTP."
            case _:
                continue
    return f"{either} cannot be reached ({type(error).__name__})."


def remedy_of(reason: str) -> str | None:
    """The remedy for the likely cause of a failure; None if the reason names no such cause.

    Args:
        reason: Why the host cannot be reached, in the words of this module.
    """
    found = (remedy for cause, remedy in _REMEDIES.items() if re.fullmatch(cause, reason))
    return next(found, None)


def without_frames(error: Exception) -> Exception:
    """Drop the frames of an error and its causes: sixty lines of HTTP libraries in a traceback."""
    for each in _chain(error):
        each.__traceback__ = None
    return error


def wants_certificate(error: Exception) -> bool:
    """Whether the server reports that it requires a client certificate, as with TLS 1.3."""
    why = getattr(error, "reason", None)
    return isinstance(error, ssl.SSLError) and "CERTIFICATE_REQUIRED" in (why or "")


def why_refused(status: int | None, host: str, proxy: str | None) -> str:
    """A sentence with the reason why a proxy did not connect.

    Args:
        status: The HTTP status that the proxy answered, if any.
        host: The host behind the proxy.
        proxy: The host of the proxy.
    """
    if status is None:
        return f"The proxy {proxy} rejected the connection to {host}."
    if status == 407:
        return f"The proxy {proxy} answered HTTP 407."
    return f"The proxy {proxy} rejected the connection to {host} (HTTP {status})."


def why_no_upgrade(status: int) -> str:
    """A sentence about a WebSocket handshake that was answered with this HTTP status."""
    reason = f"The server answered the WebSocket handshake with HTTP {status}."
    if 300 <= status < 400:
        reason += " The client follows no redirect, which would send the token elsewhere."
    return reason


def why_no_proxy(error: Exception) -> str:
    """A sentence with the reason why a proxy cannot be used, without its URL."""
    if isinstance(error, ImportError):
        return "A SOCKS proxy needs more packages."
    return "The URL of the proxy is invalid."


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo and len(found) < 20:
        cause = todo.pop(0)
        if cause is None or cause in found:
            continue
        found.append(cause)
        if isinstance(cause, BaseExceptionGroup):
            todo.extend(cast("BaseExceptionGroup[BaseException]", cause).exceptions)
        todo += [cause.__cause__, cause.__context__]
    # A timeout is often only the consequence of the real cause.
    return sorted(found, key=lambda cause: isinstance(cause, TimeoutError))
