"""TCP keepalive on both ends of the protocols without a heartbeat."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.eventstream import EventStreamClient
from hanzoai.pubsub.hub import HubClient
from hanzoai.pubsub.network.keepalive import keep_alive
from hanzoai.pubsub.sp import PubSocket, SubSocket
from pubsub_server.testing import running_server
from tests.server.protocols.peers import until

if TYPE_CHECKING:
    from collections.abc import Iterable


def check(transports: Iterable[Any]) -> int:
    """Check that the system probes the peer of each connection, and return their number."""
    count = 0
    for transport in transports:
        count += 1
        connection = transport.get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
    return count


@pytest.mark.parametrize("name", ["event_stream", "hub"])
async def test_a_client_and_the_server_detect_that_the_other_has_vanished(name: str) -> None:
    client_of: dict[str, Any] = {"event_stream": EventStreamClient, "hub": HubClient}
    settings: dict[str, Any] = {name: "0", "listener_identities": {name: {"user": "alice"}}}
    async with (
        running_server(**settings) as server,
        client_of[name](server.server.others[name]) as client,
        client.subscribe("demo.a") as messages,
    ):
        await client.publish("demo.a", "x")
        assert check(each._link._writer for each in (client, messages)) == 2
        (listener,) = server.server._byte_listeners
        sessions: Any = listener.connections.open
        await until(lambda: len(sessions) == 2)
        assert check(each._transport for each in sessions) == 2


async def test_sp_sockets_detect_that_their_peer_has_vanished() -> None:
    pub: Any
    sub: Any
    async with PubSocket() as pub, SubSocket() as sub:
        await sub.dial(await pub.listen("tcp://127.0.0.1:0"))
        await pub.wait_for_peers(1, timeout=20)
        await until(lambda: sub._pipes)
        for end in (pub, sub):
            assert check(pipe._transport for pipes in end._pipes.values() for pipe in pipes) == 1


class Connection:
    """A transport, and its socket."""

    family = socket.AF_INET

    def __init__(self, *, ended: bool = False) -> None:
        self.ended = ended
        self.options: dict[int, int] = {}

    def get_extra_info(self, name: str) -> Connection:
        return self

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if self.ended:
            raise OSError("Invalid argument")
        self.options[option] = value


def test_the_time_until_the_first_probe_is_set_under_the_name_that_macos_has_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(socket, "TCP_KEEPIDLE", raising=False)
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", 1_016, raising=False)
    connection: Any = Connection()
    keep_alive(connection)
    assert connection.options[1_016] == 60
    assert connection.options[socket.TCP_KEEPCNT] == 4


def test_a_connection_that_has_already_ended_is_left_as_it_is() -> None:
    ended: Any = Connection(ended=True)
    keep_alive(ended)
    assert ended.options == {}
