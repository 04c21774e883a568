"""Listening on a host with addresses that this machine does not have."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.access.setup import StartError
from pubsub_server.process import ready_line
from pubsub_server.testing import running_server
from pubsub_server.workers.ports import reserve

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = "127.0.0.1"
ELSEWHERE = "192.0.2.1"
"""An address of no machine (RFC 5737)."""


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives `localhost` these addresses."""
    usual: Any = socket.getaddrinfo

    def replace(*addresses: str) -> None:
        def resolved(host: str | None, port: int, *more: Any, **options: Any) -> list[Any]:
            names = addresses if host == "localhost" else (host,)
            return [row for name in names for row in usual(name, port, *more, **options)]

        monkeypatch.setattr(socket, "getaddrinfo", resolved)

    return replace


async def test_each_listener_skips_addresses_of_other_machines_and_logs_them(
    resolve: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    resolve(ELSEWHERE, HERE)
    listeners = ("http", "ws", "event_stream", "mesh")
    async with running_server(
        dev=True,
        host="localhost",
        event_stream="localhost:0",
        backplane="mesh",
        mesh_listen="localhost:0",
    ) as node:
        ready = json.loads(ready_line(node.server))
        for name in listeners:
            port = int(ready[name].rpartition(":")[2].partition("/")[0])
            socket.create_connection((HERE, port)).close()
    absent = [each.message for each in caplog.records if ELSEWHERE in each.message]
    assert len(absent) == len(listeners)
    assert "this machine does not have this address of localhost" in absent[0]


async def test_a_host_without_an_address_of_this_machine_is_an_error(
    resolve: Callable[..., None],
) -> None:
    resolve(ELSEWHERE, "203.0.113.1")
    with pytest.raises(
        StartError, match="localhost, port 0: this machine does not have the address"
    ):
        async with running_server(dev=True, host="localhost"):
            pass


def test_workers_share_the_first_address_that_this_machine_has(
    resolve: Callable[..., None],
) -> None:
    resolve(ELSEWHERE, HERE)
    with reserve("localhost", 0) as reserved:
        assert reserved.getsockname()[0] == HERE
