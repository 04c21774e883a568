"""Nodes on a Redis with TLS, client certificates, and a user with the documented permissions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
import trustme

from hanzoai.pubsub import PubSubClient
from pubsub_server.access.setup import StartError
from pubsub_server.testing import running_server
from tests.cluster.fleet import nodes
from tests.cluster.store import Store
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

BOUND = 60
PAGE = Path(__file__).parents[2] / "docs" / "operate" / "cluster.md"


def documented_permissions() -> list[str]:
    """Return what the docs allow to a node's user, with the password `hush`."""
    start = "ACL SETUSER pubsub "
    [line] = [line for line in PAGE.read_text().splitlines() if line.startswith(start)]
    return line.removeprefix(start).replace(">PASSWORD", ">hush").split()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    """A Redis that requires all of this; its URL contains what it requires."""
    authority = trustme.CA()
    ca, server, client = (str(tmp_path / name) for name in ("ca.pem", "server.pem", "client.pem"))
    authority.cert_pem.write_to_path(ca)
    for file in (server, client):
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    port = free_port()
    store = Store(
        "redis",
        tmp_path / "store",
        *("--port", "0", "--tls-port", str(port), "--tls-auth-clients", "yes"),
        *("--tls-ca-cert-file", ca, "--tls-cert-file", server, "--tls-key-file", server),
        *("--user", "default", "off", "--user", "pubsub", *documented_permissions()),
    )
    files = {"ssl_ca_certs": ca, "ssl_certfile": client, "ssl_keyfile": client}
    store.url = f"rediss://pubsub:hush@127.0.0.1:{port}?{urlencode(files)}"
    await store.start()
    try:
        yield store
    finally:
        await store.end()


async def test_nodes_share_messages_history_and_presence_with_the_documented_permissions(
    store: Store,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 2) as (first, second),
        PubSubClient(first.ws, first.token("alice"), rest_url=first.http) as alice,
        PubSubClient(second.ws, second.token("bob"), rest_url=second.http) as bob,
        alice.subscribe("demo.x", presence=True) as received,
    ):
        await bob.publish("demo.x", {"data": 1})
        assert (await anext(received)).data == 1
        assert [message.data async for message in bob.history("demo.x")] == [1]
        members = await bob.presence("demo.x")
        assert [member.user_id for member in members] == ["alice"]


async def test_a_missing_client_certificate_is_named_with_the_options_that_add_it(
    store: Store,
) -> None:
    without, _, _ = store.url.partition("&ssl_certfile")
    async with asyncio.timeout(BOUND):
        with pytest.raises(StartError, match=r"requires a client certificate[;,]") as caught:
            async with running_server(redis_url=without):
                pass
    assert "ssl_certfile=FILE and ssl_keyfile=FILE" in str(caught.value)
    assert "hush" not in str(caught.value)
