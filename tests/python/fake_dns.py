"""Host names with addresses that a test chooses, and addresses that do not answer."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

SILENT = ("192.0.2.1", "192.0.2.2")
"""Addresses for documentation (RFC 5737)."""


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[object]:
    """Let each name have these addresses; returns the list of the names looked up."""
    looked_up: list[object] = []

    async def lookup(host: object, port: int, **_: object) -> list[Any]:
        looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
    return looked_up


class SilentAddresses:
    """Lets each name have silent addresses first, then the one of this machine.

    Attributes:
        asked: The addresses to which a connection was begun.
        given_up: The addresses whose connection was cancelled.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, silent: int = len(SILENT)) -> None:
        loop = asyncio.get_running_loop()
        self._connect = loop.sock_connect
        self.asked: list[str] = []
        self.given_up: list[str] = []
        resolve_to(monkeypatch, *SILENT[:silent], "127.0.0.1")
        monkeypatch.setattr(loop, "sock_connect", self._connect_or_wait)

    async def _connect_or_wait(self, sock: socket.socket, address: Any) -> None:
        self.asked.append(address[0])
        if address[0] not in SILENT:
            return await self._connect(sock, address)
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.append(address[0])
