"""Formats of addresses, URLs and names in settings. Each type describes an invalid value."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from hanzoai.pubsub.claims import CLAIMS
from pubsub_server.settings.addresses import parse_address, parse_node_address, parse_sp_url
from pubsub_server.settings.kinds import Count, Items, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+", re.ASCII)
_SOCKET_URL: Final = re.compile(r"wss?://[a-zA-Z0-9.\[\]:-]+(?:/[a-zA-Z0-9._~/-]*)?", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?", re.ASCII)
_BROKER: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", re.ASCII)
_SIGNED_TOPIC: Final = re.compile(r"[0-9a-fA-F]{40}:.+", re.ASCII | re.DOTALL)

KEY_LENGTH: Final = 16
"""Minimum characters of a shared key."""


def _parsed(parse: Callable[[str], object]) -> Callable[[str | None], str | None]:
    """A validator from a parser."""

    def check(value: str | None) -> str | None:
        if value is not None:
            parse(value)
        return value

    return check


def _host(host: str) -> str:
    with suppress(ValueError):
        ip_address(host)
        return host
    if not _HOST.fullmatch(host):
        raise ValueError("must be an address or a name, without scheme, port and brackets")
    return host


def _port_as_text(value: object) -> object:
    """YAML reads a port without a host as a number."""
    return str(value) if isinstance(value, int) else value


def _audiences(audiences: tuple[str, ...]) -> tuple[str, ...]:
    if not all(each.strip() for each in audiences or ("",)):
        raise ValueError("is empty; name an audience, or leave the setting out to accept any")
    return audiences


def _issuer(issuer: str) -> str:
    if not issuer.strip():
        raise ValueError("is empty; name the issuer, or leave the setting out to accept any")
    return issuer


def long_enough(key: SecretStr) -> SecretStr:
    """The key.

    Raises:
        ValueError: It has fewer than `KEY_LENGTH` characters, without blanks around it.
    """
    length = len(key.get_secret_value().strip())
    if length < KEY_LENGTH:
        raise ValueError(f"has {length} of at least {KEY_LENGTH} characters")
    return key


def _node_addresses(addresses: tuple[str, ...]) -> tuple[str, ...]:
    for each in addresses:
        if not parse_node_address(each).port:
            raise ValueError(f"{each} has port 0; give the port that the node listens on")
    return addresses


def _upstream(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"ws", "wss"} or not parts.hostname:
        raise ValueError("must be a ws:// or wss:// URL, such as ws://127.0.0.1:1633/pubsub/")


def _signed_topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    for each in topics:
        if not _SIGNED_TOPIC.fullmatch(each):
            raise ValueError(f"{each} is not OWNER:ID with 40 hex digits for the owner, without 0x")
    return topics


def _is_broker(text: str) -> bool:
    match = _BROKER.fullmatch(text)
    return match is not None and 0 < int(match[1]) <= 65_535


def _brokers(brokers: tuple[str, ...]) -> tuple[str, ...]:
    for each in brokers:
        if not _is_broker(each):
            raise ValueError(f"{each or 'an empty text'} is not `host:port`")
    return brokers


def _peers(peers: tuple[str, ...]) -> tuple[str, ...]:
    for each in peers:
        if each != "*" and not _is_broker(each):
            raise ValueError(
                f"{each or 'an empty text'} is not HOST:PORT; write broker.example:1634, IPv6 as"
                " [ADDRESS]:1634, or * for all"
            )
    return peers


def _http(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL")


def _socket(url: str) -> None:
    # The value is used in a Content-Security-Policy.
    if not _SOCKET_URL.fullmatch(url):
        raise ValueError("must be a ws:// or wss:// URL, such as wss://pubsub.example.com/ws")


def _networks(proxies: tuple[str, ...]) -> tuple[str, ...]:
    for each in proxies:
        try:
            ip_network(each)
        except ValueError as error:
            raise ValueError(f"{error}; give addresses or networks, 10.0.0.0/24") from None
    return proxies


def _named_origins(origins: object) -> object:
    if isinstance(origins, str) and not origins.strip(", "):
        raise ValueError("is empty; list the origins, or use * for all")
    return origins


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if "*" in origin and origin != "*":
            raise ValueError(f"{origin} is a pattern; list each origin, or use * alone for all")
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"{origin} is not an origin as browsers send it; write https://app.example.com:8443,"
                " in lower case, with scheme and without path"
            )
    return origins


def _claims(claims: dict[str, str]) -> dict[str, str]:
    for name, claim in claims.items():
        if name not in CLAIMS:
            raise ValueError(f"there is no field {name}; use {', '.join(CLAIMS)}")
        if not claim:
            raise ValueError(f"the claim of {name} is empty; name it, or leave {name} out")
    return claims


def _page_size(value: int) -> int:
    if value > 10_000:
        raise ValueError("must be at most 10000")
    return value


def _worker_timeout(value: int) -> int:
    # A number without a unit is in milliseconds.
    if 0 < value < 1_000:
        raise ValueError("must be at least 1s, or 0")
    return value


_PORT_AS_TEXT: Final = BeforeValidator(_port_as_text)

Host = Annotated[str, AfterValidator(_host)]
"""An IP address or a host name."""
ListenAddress = Annotated[str | None, _PORT_AS_TEXT, AfterValidator(_parsed(parse_address))]
"""A port on loopback, `HOST:PORT` or `unix:PATH`."""
NodeAddress = Annotated[str | None, _PORT_AS_TEXT, AfterValidator(_parsed(parse_node_address))]
"""`HOST:PORT` of a node of the mesh."""
NodeAddresses = Annotated[Items, AfterValidator(_node_addresses)]
SpUrl = Annotated[str | None, AfterValidator(_parsed(parse_sp_url))]
"""`tcp://HOST:PORT`, `ipc://PATH` or `abstract://NAME`."""
UpstreamUrl = Annotated[str | None, AfterValidator(_parsed(_upstream))]
SignedTopics = Annotated[Items, AfterValidator(_signed_topics)]
"""A list of `OWNER:ID`."""
SocketUrl = Annotated[str | None, AfterValidator(_parsed(_socket))]
HttpUrl = Annotated[str | None, AfterValidator(_parsed(_http))]
Audiences = Annotated[Items, AfterValidator(_audiences)]
"""Audiences of tokens, at least one."""
Issuer = Annotated[str, AfterValidator(_issuer)]
"""The issuer of tokens, not blank."""
Key = Annotated[SecretStr, AfterValidator(long_enough)]
"""A shared key of at least `KEY_LENGTH` characters."""
Brokers = Annotated[Items, AfterValidator(_brokers)]
"""Kafka brokers, each as `host:port`."""
Peers = Annotated[Items, AfterValidator(_peers)]
"""Brokers of signed topics, each as `HOST:PORT`, or `*`."""
Networks = Annotated[Items, AfterValidator(_networks)]
Origins = Annotated[Items, AfterValidator(_origins), BeforeValidator(_named_origins)]
"""Origins, as browsers send them in `Origin`."""
Claims = Annotated[dict[str, str], AfterValidator(_claims)]
"""Names of claims in tokens, by field of an identity."""
PageSize = Annotated[Count, AfterValidator(_page_size)]
WorkerTimeout = Annotated[Wait, AfterValidator(_worker_timeout)]
"""0, or milliseconds from a second to a day."""
