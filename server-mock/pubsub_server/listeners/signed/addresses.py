"""Parses requests to `/pubsub/…`: topic, parameters and broker, in every spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qs, unquote

from hanzoai.pubsub import soc
from pubsub_server.listeners.signed.modes import GSOC, Parameters

if TYPE_CHECKING:
    from pubsub_server.listeners.endpoints import Visit

PREFIXES: Final = ("/v1/pubsub/", "/pubsub/")
TOPIC_MAX: Final = 1024
"""Maximum characters of a topic in text form."""

_HEX: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_MULTIADDR: Final = re.compile(
    r"/(ip4|ip6|dns|dns4|dns6)/((?:[A-Za-z0-9:_-]{1,63}(?:\.|(?=/)))+)"
    r"/tcp/(\d{1,5})(/tls)?(?:/p2p/\w{1,128})?",
    re.ASCII,
)


class BrokerAddress(NamedTuple):
    """The address of a topic's broker.

    Attributes:
        host: Name or IP address.
        port: Of TCP.
        tls: Whether the stream is encrypted.
    """

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of a WebSocket.

    Attributes:
        topic: Address, 32 bytes.
        parameters: Parameters of a publisher; None for a subscriber.
        peer: The broker; None for this node, or its upstream.
    """

    topic: bytes
    parameters: Parameters | None
    peer: BrokerAddress | None

    @property
    def name(self) -> str:
        """The topic as the hub names it."""
        return hub_name(self.topic)


def hub_name(topic: bytes) -> str:
    """The hub's name of a signed topic."""
    return f"signed.{topic.hex()}"


def read(visit: Visit) -> Asked:
    """Parse a request.

    Raises:
        ValueError: A parameter is missing or wrong; the message is the one that Bee sends, if there
            is one.
    """
    prefix = next(each for each in PREFIXES if visit.path.startswith(each))
    text = unquote(visit.path.removeprefix(prefix))
    if not text or len(text) > TOPIC_MAX:
        raise ValueError(f"a topic has 1 to {TOPIC_MAX} characters")
    topic = bytes.fromhex(text) if _HEX.fullmatch(text) else soc.keccak256(text.encode())
    peer = _value(visit, "peer")
    owner, id = _value(visit, "gsoc-eth-address"), _value(visit, "gsoc-topic")
    parameters = None
    if owner is not None or id is not None:
        if owner is None:
            raise ValueError("missing gsoc-eth-address query param: gsoc-topic is set without it")
        if id is None:
            raise ValueError("missing gsoc-topic query param: gsoc-eth-address is set without it")
        parameters = Parameters(
            _hex(owner, "gsoc-eth-address", soc.OWNER_BYTES),
            _hex(id, "gsoc-topic", soc.ID_BYTES),
        )
        GSOC.check(topic, parameters)
    return Asked(topic, parameters, None if peer is None else parse_multiaddr(peer))


def parse_multiaddr(text: str) -> BrokerAddress:
    """Read `/ip4/HOST/tcp/PORT`, also `/ip6/…`, `/dns/…`; `/tls` encrypts, `/p2p/ID` is ignored.

    Raises:
        ValueError: It has another format.
    """
    match = _MULTIADDR.fullmatch(text)
    if match is None or not 0 < int(match[3]) <= 65_535:
        raise ValueError("invalid peer query param: write /ip4/HOST/tcp/PORT")
    return BrokerAddress(match[2], int(match[3]), match[4] is not None)


def parse_topic(text: str) -> tuple[bytes, Parameters]:
    """Read an entry of `signed_upstream_topics`; the settings have checked its format.

    Returns:
        The topic's address; owner and id.
    """
    owner, _, id = text.partition(":")
    hashed = bytes.fromhex(id) if _HEX.fullmatch(id) else soc.keccak256(id.encode())
    parameters = Parameters(bytes.fromhex(owner), hashed)
    return soc.topic_address(parameters.id, parameters.owner), parameters


def _value(visit: Visit, name: str) -> str | None:
    """A parameter from its header or either spelling in the query; the query takes precedence."""
    query = parse_qs(visit.query, keep_blank_values=True, max_num_fields=32)
    for spelling in (name, f"swarm-pubsub-{name}"):
        if spelling in query:
            return query[spelling][0]
    return visit.headers.get(f"swarm-pubsub-{name}")


def _hex(text: str, name: str, length: int) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != length or len(text) != 2 * length:
        raise ValueError(f"invalid {name} query param: write {2 * length} hex digits without 0x")
    return found
