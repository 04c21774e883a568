"""URLs of SP sockets: `tcp`, `ipc`, `abstract`, `tls+tcp`, `ws` and `wss`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.links.connections import check_url, is_host

_NETWORK: Final = {"tcp": None, "tls+tcp": None, "ws": 80, "wss": 443}
"""Default port by scheme; None if the URL must contain a port."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address at which a socket listens, or which it dials.

    Attributes:
        scheme: One of the six schemes.
        host: Name or IP address; empty for Unix sockets.
        port: TCP port; 0 lets the system choose one when listening.
        path: Path of a Unix socket, or its abstract name after a zero byte.
        resource: Path of a WebSocket URL, with its query.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: bytes = b""
    resource: str = "/"

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("tls+tcp", "wss")

    @property
    def websocket(self) -> bool:
        """Whether messages travel in WebSocket messages."""
        return self.scheme in ("ws", "wss")

    def with_port(self, port: int) -> str:
        """The URL that peers dial once the system has chosen a port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}{self.resource if self.websocket else ''}"


def parse_address(url: str) -> Address:
    """Read the URL of a socket.

    Raises:
        InvalidOption: The URL has another scheme, or no host, port or path.
    """
    check_url(url)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in (*_NETWORK, "ipc", "abstract"):
        raise _refused(
            url, "The scheme must be tcp, ipc, abstract, tls+tcp, ws or wss, followed by ://."
        )
    if scheme == "ipc":
        if not rest or "\0" in rest:
            raise _refused(url, "Write a path, as in ipc:///tmp/feed.sock.")
        return Address(scheme, path=rest.encode())
    if scheme == "abstract":
        if not rest:
            raise _refused(url, "The name is missing, as in abstract://feed.")
        return Address(scheme, path=b"\0" + unquote_to_bytes(rest))
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _refused(url, f"{error}.") from None
    if port is None:
        port = _NETWORK[scheme]
    if not host or not is_host(host) or port is None:
        raise _refused(url, f"Host and port are needed, as in {scheme}://127.0.0.1:5555.")
    if parts.fragment:
        raise _refused(url, f"Leave out #{parts.fragment}: it is not sent to the peer.")
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(scheme, "0.0.0.0" if host == "*" else host, port, resource=resource)


def _refused(url: str, remedy: str) -> InvalidOption:
    return InvalidOption(f"{url!r} is not the URL of an SP socket.", field="url", remedy=remedy)
