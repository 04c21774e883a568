"""Addresses of listeners: a port, `HOST:PORT`, `unix:PATH`, or a URL of SP."""

from __future__ import annotations

import re
from typing import NamedTuple

LOOPBACK_HOST = "127.0.0.1"
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_HOST_PORT = re.compile(rf"(?:(\[[0-9A-Fa-f:.]+\]|{_LABEL}(?:\.{_LABEL})*\.?):)?(\d+)", re.ASCII)
_PORT_MAX = 65_535
_PORT_DIGITS = 5
_PATH_MAX = 100
"""Maximum characters of the path of a Unix socket; the operating system accepts few more."""


class Address(NamedTuple):
    """The address of a listener.

    Attributes:
        host: A name or IP address; empty with `path`.
        port: 0 selects a free one.
        path: Path of a Unix socket; None for TCP. An abstract one (Linux) begins with NUL.
    """

    host: str
    port: int
    path: str | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read an address; a port without a host is on loopback.

    Raises:
        ValueError: It has another format.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path or len(path) > _PATH_MAX:
            raise ValueError(f"must name a path of 1 to {_PATH_MAX} characters after `unix:`")
        return Address("", 0, path)
    address = _parsed(text)
    if address is None:
        raise ValueError("must be a port, HOST:PORT or unix:PATH")
    return address


def parse_node_address(text: str) -> Address:
    """Read the address of a node of a mesh: a port, which is on loopback, or `HOST:PORT`.

    Raises:
        ValueError: It has another format.
    """
    address = None if text.startswith("unix:") else _parsed(text)
    if address is None:
        raise ValueError(f"{text or 'an empty text'} is not a port or HOST:PORT")
    return address


def _parsed(text: str) -> Address | None:
    match = _HOST_PORT.fullmatch(text)
    if match is None:
        return None
    if len(match[2]) > _PORT_DIGITS or int(match[2]) > _PORT_MAX:
        raise ValueError(f"must have a port of at most {_PORT_MAX}")
    host: str | None = match[1]
    return Address((host or LOOPBACK_HOST).strip("[]"), int(match[2]))


def parse_sp_url(url: str) -> Address:
    """Read the URL of an SP socket: `tcp://HOST:PORT`, `ipc://PATH` or `abstract://NAME`.

    Raises:
        ValueError: It has another format.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "tcp":
        return parse_address(rest.replace("*:", "0.0.0.0:", 1) if rest.startswith("*:") else rest)
    if scheme in {"ipc", "abstract"} and 0 < len(rest) <= _PATH_MAX:
        return Address("", 0, rest if scheme == "ipc" else f"\0{rest}")
    raise ValueError("must be tcp://HOST:PORT, ipc://PATH or abstract://NAME")
