"""Nodes on a Redis with TLS, client certificates, and a user with the documented permissions."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

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


@pytest.mark.parametrize(
    ("setting", "file", "expected"),
    [
        ("ssl_ca_certs", "none.pem", "ssl_ca_certs: {} cannot be read: No such file or directory"),
        ("ssl_ca_certs", "key.pem", "ssl_ca_certs: {} contains a key and no certificate"),
        ("ssl_keyfile", "encrypted.pem", "ssl_keyfile: {} is encrypted, and the server has no"),
        ("ssl_keyfile", "key.pem", "ssl_keyfile: {} does not belong to the first certificate"),
    ],
)
async def test_a_file_in_the_url_of_redis_that_cannot_be_used_is_named(
    tmp_path: Path, setting: str, file: str, expected: str
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    other = authority.issue_cert("127.0.0.1").private_key_pem.bytes()
    secret = load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush")
    )
    certificate = tmp_path / "cert.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    (tmp_path / "key.pem").write_bytes(other)
    (tmp_path / "encrypted.pem").write_bytes(secret)
    files = {setting: str(tmp_path / file)}
    if setting == "ssl_keyfile":
        files["ssl_certfile"] = str(certificate)
    url = f"rediss://127.0.0.1:1?{urlencode(files)}"
    with pytest.raises(StartError) as caught:
        async with asyncio.timeout(BOUND), running_server(redis_url=url):
            pass
    assert str(caught.value).startswith(f"redis_url: {expected.format(tmp_path / file)}")


@pytest.mark.parametrize(
    ("name", "old", "known", "expected"),
    [
        ("127.0.0.1", True, True, r"not trusted \(certificate has expired\); renew it"),
        ("redis.example", False, True, "; name the host as the certificate does"),
        ("127.0.0.1", False, False, r"; append \?ssl_ca_certs=FILE with its authority"),
    ],
)
async def test_a_certificate_of_redis_that_is_not_trusted_is_named_with_the_remedy(
    tmp_path: Path, name: str, old: bool, known: bool, expected: str
) -> None:
    authority = trustme.CA()
    end = datetime.now(UTC) + timedelta(days=-1 if old else 1)
    ca, server = (str(tmp_path / each) for each in ("ca.pem", "server.pem"))
    (authority if known else trustme.CA()).cert_pem.write_to_path(ca)
    authority.issue_cert(name, not_after=end).private_key_and_cert_chain_pem.write_to_path(server)
    async with asyncio.timeout(BOUND), encrypted(tmp_path, server, ca) as url:
        with pytest.raises(StartError, match=expected):
            async with running_server(redis_url=url):
                pass


async def test_a_client_certificate_that_redis_does_not_trust_is_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, server, client = (str(tmp_path / each) for each in ("ca.pem", "server.pem", "client.pem"))
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(client)
    async with asyncio.timeout(BOUND), encrypted(tmp_path, server, ca) as url:
        files = urlencode({"ssl_certfile": client, "ssl_keyfile": client})
        with pytest.raises(StartError, match=r"trusts? the client certificate in ssl_certf"):
            async with running_server(redis_url=f"{url}&{files}"):
                pass


@asynccontextmanager
async def encrypted(folder: Path, server: str, ca: str) -> AsyncGenerator[str]:
    """Run a Redis with TLS whose certificate its own authority may not have signed."""
    port = free_port()
    store = Store(
        "redis",
        folder / "store",
        *("--tls-port", str(port), "--tls-auth-clients", "optional"),
        *("--tls-ca-cert-file", ca, "--tls-cert-file", server, "--tls-key-file", server),
    )
    await store.start()
    try:
        yield f"rediss://127.0.0.1:{port}?ssl_ca_certs={ca}"
    finally:
        await store.end()
