"""Administrators see all connections with their lag, and can close one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pubsub_server.auth.identity import Identity
from pubsub_server.errors import ServiceError
from pubsub_server.hub.open_connections import CUT, PATTERNS_SHOWN
from tests.server.hub_rig import ANNA, START_MS, Rig

if TYPE_CHECKING:
    from pubsub_server.interfaces import Caller

ALICE = Identity(user_id="alice", kind="user")


class CutLog:
    def __init__(self) -> None:
        self.received: list[tuple[str, str, str | None]] = []

    def record(self, *about: object, **more: object) -> None:
        """Other files test this."""

    def auth(self, *about: object, **more: object) -> None:
        """Other files test this."""

    def cut(
        self, identity: Identity, caller: Caller | None, *,
        client_id: str, refused: str | None = None,
    ) -> None:  # fmt: skip
        self.received.append((identity.user_id, client_id, refused))


async def test_a_report_names_the_user_the_transport_and_the_subscriptions() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a", "b.*")
    (report,), total = await rig.hub.connections(ANNA)
    assert total == 1
    assert (report.client_id, report.user_id, report.kind) == (
        *(alice.connection.client_id, "alice", "user"),
    )
    assert (report.transport, report.connected_at) == ("socket", START_MS)
    assert (report.patterns, report.subscriptions) == (("a", "b.*"), 2)
    assert (report.queued_bytes, report.stalled) == (0, False)
    assert report.queue_limit >= rig.settings.send_queue_bytes


async def test_the_longest_queue_comes_first() -> None:
    rig = Rig()
    for name in ("alice", "bob", "chen"):
        (await rig.client(name)).subscribe("a")
    slow = rig.hub.core.connections
    bob = next(each for each in slow.values() if each.identity and each.identity.user_id == "bob")
    rig.hub.pause(bob)
    (await rig.client("writer")).publish("a", "x" * 1_000)
    rig.hub.core.delivery.flush()
    (report,), total = await rig.hub.connections(ANNA, limit=1)
    assert (report.user_id, report.stalled, total) == ("bob", True, 4)
    assert report.queued_bytes > 1_000


async def test_connections_are_selected_by_user_and_by_topic() -> None:
    rig = Rig()
    (await rig.client("alice")).subscribe("a.1")
    (await rig.client("bob")).subscribe("a.*")
    (await rig.client("chen")).subscribe("b")
    by_topic, _ = await rig.hub.connections(ANNA, topic="a.1")
    assert {each.user_id for each in by_topic} == {"alice", "bob"}
    by_user, total = await rig.hub.connections(ANNA, user="chen")
    assert ([each.user_id for each in by_user], total) == (["chen"], 1)
    with pytest.raises(ServiceError, match=r"\*"):
        await rig.hub.connections(ANNA, topic="a.*")


async def test_a_report_lists_the_first_subscriptions_and_counts_all() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe(*(f"a.{n}" for n in range(PATTERNS_SHOWN + 5)))
    (report,), _ = await rig.hub.connections(ANNA)
    assert (len(report.patterns), report.subscriptions) == (PATTERNS_SHOWN, PATTERNS_SHOWN + 5)


async def test_only_an_admin_lists_and_cuts() -> None:
    rig = Rig()
    audit = rig.hub.core.audit = CutLog()
    alice = await rig.client("alice")
    with pytest.raises(ServiceError) as refused:
        await rig.hub.connections(ALICE)
    assert refused.value.code == "forbidden"
    with pytest.raises(ServiceError) as refused:
        rig.hub.cut(ALICE, alice.connection.client_id)
    assert refused.value.code == "forbidden"
    assert alice.ending() is None
    assert audit.received == [("alice", alice.connection.client_id, "forbidden")]


async def test_a_cut_tells_the_client_to_reconnect_and_is_audited() -> None:
    rig = Rig()
    audit = rig.hub.core.audit = CutLog()
    alice = await rig.client("alice")
    bob = await rig.client("bob")
    bob.subscribe("a", presence=True)
    alice.subscribe("a")
    bob.read()
    rig.hub.cut(ANNA, alice.connection.client_id)
    assert alice.ending() == (1001, "going_away")
    error = alice.read()[-1]
    assert (error["type"], error["code"]) == ("error", "going_away")
    assert error["message"] == CUT
    # The client reconnects within the grace period, so no leave is reported.
    assert bob.presence() == []
    assert audit.received == [("anna", alice.connection.client_id, None)]
    (report,), _ = await rig.hub.connections(ANNA)
    assert report.user_id == "bob"


async def test_a_connection_that_is_not_here_cannot_be_cut() -> None:
    rig = Rig()
    audit = rig.hub.core.audit = CutLog()
    with pytest.raises(ServiceError) as refused:
        rig.hub.cut(ANNA, "conn_elsewhere")
    assert refused.value.code == "not_found"
    assert audit.received == [("anna", "conn_elsewhere", "not_found")]
