"""Addresses of a server: the URLs of its socket and of its HTTP API, each derived from the other.

HIP-56 has the socket at `wss://HOST:8057/ws` and HTTP at `https://HOST:8056`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from hanzoai.pubsub.errors import InsecureUrl
from hanzoai.pubsub.settings.checks import invalid

_SOCKET_PORT: Final = 8057
_HTTP_PORT: Final = 8056
_SOCKET_PATH: Final = "/ws"
_TO_HTTP: Final = {"ws": "http", "wss": "https"}
_TO_SOCKET: Final = {"http": "ws", "https": "wss"}
_SECRETS: Final = frozenset({"token", "access_token", "auth", "api_key", "apikey", "key", "jwt"})
_URL_MAX: Final = 2_048
_LOCAL: Final = re.compile(r"(localhost|127\.[.\d]+)(:\d+)?(/ws)?")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Both addresses of one server.

    Attributes:
        socket: URL of the WebSocket, `ws://` or `wss://`.
        http: Base URL of REST and the event stream, `http://` or `https://`, without a slash at
            its end.
    """

    socket: str
    http: str


def endpoints(url: object, rest_url: object = None) -> Endpoints:
    """Read the addresses that a program gave.

    Args:
        url: `ws://`, `wss://`, `http://` or `https://`. A socket URL without a path gets `/ws`, and
            a URL that ends with `/ws` is a socket URL with any scheme. The other address follows:
            ws ↔ http, port 8057 ↔ 8056.
        rest_url: `http://` or `https://`, where the HTTP API is elsewhere.

    Raises:
        InvalidOption: One of them is not such a URL, or holds a user, a password or a token.
    """
    given = _split(url, "url", (*_TO_HTTP, *_TO_SOCKET))
    if given.scheme in _TO_HTTP or given.path.rstrip("/").endswith(_SOCKET_PATH):
        scheme = _TO_SOCKET.get(given.scheme, given.scheme)
        path = given.path if given.path.strip("/") else _SOCKET_PATH
        socket = given._replace(scheme=scheme, path=path)
        http = given._replace(scheme=_TO_HTTP[scheme], path="", query="")
        http = http._replace(netloc=_netloc(given, _SOCKET_PORT, _HTTP_PORT))
    else:
        http = given._replace(path=given.path.rstrip("/"), query="")
        socket = given._replace(
            scheme=_TO_SOCKET[given.scheme],
            netloc=_netloc(given, _HTTP_PORT, _SOCKET_PORT),
            path=given.path.rstrip("/") + _SOCKET_PATH,
        )
    if rest_url is not None:
        apart = _split(rest_url, "rest_url", tuple(_TO_SOCKET))
        http = apart._replace(path=apart.path.rstrip("/"), query="")
    return Endpoints(socket=socket.geturl(), http=http.geturl())


def refuse_plaintext(found: Endpoints) -> None:
    """Refuse to send a token in the clear to another machine (HIP-56 Security 2, ambiguity E13).

    Raises:
        InsecureUrl: One of the addresses is unencrypted and not on this machine.
    """
    for field, url in (("url", found.socket), ("rest_url", found.http)):
        parts = urlsplit(url)
        if parts.scheme in ("ws", "http") and not is_loopback(parts.hostname or ""):
            raise InsecureUrl(
                f"{parts.scheme}:// would send the token to {parts.hostname} without encryption.",
                field=field,
            )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very name or address; names are not looked up."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _split(url: object, field: str, schemes: tuple[str, ...]) -> SplitResult:
    accepted = f"Write it like {schemes[-1]}://pubsub.example.com."
    if not isinstance(url, str):
        raise invalid(field, f"is {type(url).__name__}, not a string", accepted)
    url = url.strip()
    if not url:
        raise invalid(field, "is empty", accepted)
    if len(url) > _URL_MAX:
        raise invalid(field, f"is longer than {_URL_MAX:,} characters", accepted)
    if any(ord(character) <= 0x20 or ord(character) == 0x7F for character in url):
        raise invalid(field, "has spaces or control characters", accepted)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise invalid(field, "is not a URL", accepted) from None
    if parts.scheme not in schemes or "://" not in url:
        listed = ", ".join(f"{scheme}://" for scheme in schemes)
        local = _LOCAL.fullmatch(url)  # nothing else is shown: it may be a token
        remedy = f"Write it like {schemes[0]}://{url}." if local else f"Use one of {listed}."
        raise invalid(field, "has no scheme, or an unknown one", remedy)
    if not parts.hostname:
        raise invalid(field, "names no host", accepted)
    if port == 0:
        raise invalid(field, "has port 0", "Use the port that the server printed.")
    if "@" in parts.netloc:
        raise invalid(field, "has a user or a password", "Pass `token` or `get_token` instead.")
    if parts.fragment:
        raise invalid(field, "has a fragment", "Leave out `#` and everything after it.")
    if any(name.lower() in _SECRETS for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise invalid(
            field,
            "has a token in its query, where proxies write it into their logs",
            "Pass `token` or `get_token` instead.",
        )
    return parts


def _netloc(parts: SplitResult, port: int, other: int) -> str:
    if parts.port != port:
        return parts.netloc
    return f"{parts.netloc.rpartition(':')[0]}:{other}"
