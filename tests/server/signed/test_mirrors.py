"""Topics of a Bee node that a node publishes on `signed.*`, with its own access rules."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.server import serve

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.errors import PermissionDenied
from hanzoai.pubsub.signed import SignedTopic
from hanzoai.pubsub.soc import sign
from pubsub_server.access.setup import StartError
from pubsub_server.settings.sources import SettingsError, load
from tests.ports import free_port
from tests.server.protocols.peers import BOUND, until
from tests.server.signed.peers import (
    EMPTY,
    FORGED,
    HELLO,
    ID,
    KEY,
    NAME,
    OWNER,
    TOPIC,
    literal_broker,
)
from tests.server.signed.test_relays import Bee, bee, both
from tests.server.signed.test_sockets import ID_HEX, OWNER_HEX, end_of, next_of, node, socket

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from websockets.asyncio.server import ServerConnection

    from pubsub_server.testing import RunningServer

LISTED = f"{OWNER_HEX}:{ID_HEX}"
PUBLISHER = {"signed": {"user": "bee", "kind": "service"}}


@asynccontextmanager
async def mirror(upstream: Bee, **settings: Any) -> AsyncGenerator[RunningServer]:
    """Run a node that mirrors the topic of the Bee node."""
    given = {"signed_upstream": upstream.url, "signed_upstream_topics": [LISTED], **settings}
    async with node(**{"listener_identities": PUBLISHER, **given}) as server:
        yield server


async def opened(upstream: Bee) -> ServerConnection:
    """Return the next socket that opens on the Bee node."""
    async with asyncio.timeout(BOUND):
        return await upstream.sockets.get()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the wait before a topic is opened again."""
    monkeypatch.setattr("pubsub_server.listeners.signed.mirrors.FIRST_PAUSE", 0.01)


def reader(server: RunningServer) -> PubSubClient:
    token = server.token("alice", orgs=["acme"])
    return PubSubClient(server.ws, token, rest_url=server.http, allow_insecure=True)


async def test_a_topic_of_a_bee_node_reaches_clients_with_a_token_proved_and_with_history() -> None:
    async with bee() as upstream, mirror(upstream) as server, reader(server) as client:
        theirs = await opened(upstream)
        assert theirs.request is not None
        # The mirror only reads.
        assert "gsoc" not in theirs.request.path
        await theirs.send(HELLO)
        await until(lambda: server.stats.published == 1)
        async with asyncio.timeout(BOUND):
            plain = aiter(await client.subscribe(NAME, history=1))
            first = await anext(plain)
            assert first.data["payload"] == "hello"
            assert first.sender is not None
            assert first.sender.id == "bee"
            # Each message contains id and owner, so the address of the topic is enough.
            async with SignedTopic(client=client, topic=TOPIC) as proved:
                await theirs.send(EMPTY)
                message = await anext(aiter(proved))
        assert (message.payload, message.owner, message.frame) == (b"", OWNER, EMPTY)


async def test_the_access_rules_decide_who_reads_a_topic_of_a_bee_node(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{pattern: signed.**, require: {org_membership: umbrella}}]")
    async with (
        bee() as upstream,
        mirror(upstream, rules=rules) as server,
        reader(server) as client,
    ):
        await opened(upstream)
        with pytest.raises(PermissionDenied):
            await client.subscribe(NAME)


async def test_a_repeated_frame_of_a_bee_node_is_published_once_and_reaches_sockets_twice() -> None:
    async with bee() as upstream, mirror(upstream) as server, socket(server) as one:
        theirs = await opened(upstream)
        for _ in range(2):
            await theirs.send(HELLO)
            assert await next_of(one) == HELLO
        await until(lambda: server.stats.duplicates == 1)
        assert server.stats.published == 1
        assert upstream.sockets.empty()


@pytest.mark.usefixtures("at_once")
async def test_a_forged_message_of_a_bee_node_is_dropped_and_the_topic_reopens() -> None:
    async with bee() as upstream, mirror(upstream) as server, socket(server) as one:
        await (await opened(upstream)).send(FORGED)
        again = await opened(upstream)
        async with asyncio.timeout(BOUND):
            await one.wait_closed()
        await again.send(HELLO)
        await until(lambda: server.stats.published == 1)
        assert server.stats.broken == {"signed.forged_by_broker": 1}


@pytest.mark.usefixtures("at_once")
async def test_a_bee_node_that_is_unreachable_at_first_is_mirrored_later() -> None:
    later = Bee()
    later.url = f"ws://127.0.0.1:{free_port()}/pubsub/"
    async with mirror(later) as server, serve(later.serve, "127.0.0.1", urlsplit(later.url).port):
        await (await opened(later)).send(HELLO)
        await until(lambda: server.stats.published == 1)


@pytest.mark.usefixtures("at_once")
async def test_a_topic_that_brings_more_than_can_be_published_is_counted_and_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pubsub_server.listeners.signed.mirrors.WAITING_MAX", 2)
    async with bee() as upstream, mirror(upstream) as server:
        await (await opened(upstream)).send((HELLO + EMPTY) * 4)
        again = await opened(upstream)
        assert server.stats.broken == {"signed.mirror_overflow": 1}
        before = server.stats.published
        await again.send(sign(KEY, ID, b"third"))
        await until(lambda: server.stats.published == before + 1)


async def test_a_mirror_that_fails_on_a_message_opens_its_topic_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bee() as upstream, mirror(upstream) as server:

        def fail(*parts: object) -> None:
            raise KeyError("payload")

        with monkeypatch.context() as once:
            once.setattr("pubsub_server.listeners.signed.mirrors.draft_of", fail)
            await (await opened(upstream)).send(HELLO)
            again = await opened(upstream)
        await again.send(HELLO)
        await until(lambda: server.stats.published == 1)


@pytest.mark.usefixtures("at_once")
async def test_an_upstream_that_cannot_be_relayed_ends_for_all_and_the_topic_opens_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bee() as upstream, mirror(upstream) as server, socket(server) as one:

        def fail(*parts: object) -> None:
            raise KeyError("payload")

        with monkeypatch.context() as once:
            once.setattr("pubsub_server.listeners.signed.mirrors.Backlog.relayed", fail)
            await (await opened(upstream)).send(HELLO)
            again = await opened(upstream)
        async with asyncio.timeout(BOUND):
            await one.wait_closed()
        await again.send(HELLO)
        await until(lambda: server.stats.published == 1)


async def test_the_end_of_a_broker_of_a_mirrored_topic_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        bee() as upstream,
        mirror(upstream) as server,
        literal_broker() as broker,
        both(server, broker) as (one, stream),
    ):
        stream.close()
        assert await end_of(one) == (1013, "unavailable")
        assert f"127.0.0.1:{broker.port} no longer relays signed." in caplog.text


async def test_a_publisher_slower_than_its_topic_waits_and_loses_nothing() -> None:
    async with bee() as upstream, mirror(upstream, publish_rate_service=5) as server:
        theirs = await opened(upstream)
        for n in range(8):
            await theirs.send(sign(KEY, ID, bytes((n,))))
        await until(lambda: server.stats.published == 8)


async def test_a_mirror_needs_an_identity_that_may_publish(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{pattern: signed.**, require: {authenticated: true}}]")
    reads = {"signed": {"user": "eve"}}
    async with bee() as upstream:
        with pytest.raises(StartError, match=r"do not allow eve .* to publish on signed\."):
            async with mirror(upstream, listener_identities=reads, rules=rules):
                pass


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"signed_upstream": None}, "signed_upstream_topics is set without signed_upstream"),
        ({"listener_identities": {}}, "listener_identities does not name signed"),
        ({"workers": 2}, "signed_upstream_topics is set with 2 workers; run one worker"),
        ({"signed_upstream_topics": ["0x" + LISTED]}, "is not OWNER:ID with 40 hex digits"),
        ({"signed_upstream_topics": [OWNER_HEX + ":"]}, "is not OWNER:ID with 40 hex digits"),
    ],
)
def test_the_error_for_a_wrong_setting_names_the_problem(
    given: dict[str, Any], expected: str
) -> None:
    right = {
        "dev": True,
        "signed": True,
        "signed_upstream": "ws://127.0.0.1:1/pubsub/",
        "signed_upstream_topics": [LISTED],
        "listener_identities": PUBLISHER,
    }
    load(right)
    with pytest.raises(SettingsError) as caught:
        load({**right, **given})
    assert expected in str(caught.value)
