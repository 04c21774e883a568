"""The identity of a connection."""

from __future__ import annotations

import pytest

from pubsub_server.listeners.callers import Callers

PROXIES = ("10.0.0.0/24", "fd00::1")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.7", [], "192.0.2.7"),
        (None, ["192.0.2.1"], None),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("::ffff:10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("fd00::1", ["2001:db8::5"], "2001:db8::5"),
        ("10.0.0.1", ["[2001:db8::5]:443"], "2001:db8::5"),
        ("10.0.0.1", ["192.0.2.1:5000"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1, 10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1", "10.0.0.2"], "192.0.2.1"),
    ],
)
def test_the_client_is_the_last_one_before_the_proxies_that_are_trusted(
    peer: str | None, forwarded: list[str], client: str | None
) -> None:
    assert Callers(PROXIES).address(peer, forwarded) == client


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.7", ["192.0.2.1"], "192.0.2.7"),
        ("10.0.0.1", ["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["nonsense"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
    ],
)
def test_forwarded_addresses_from_clients_are_ignored(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert Callers(PROXIES).address(peer, forwarded) == client


def test_forwarded_addresses_are_ignored_without_trusted_proxies() -> None:
    callers = Callers(())
    assert callers.address("127.0.0.1", ["192.0.2.1"]) == "127.0.0.1"
    assert not callers.behind("127.0.0.1")
