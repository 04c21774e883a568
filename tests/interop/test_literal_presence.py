"""HIP-56's presence: snapshot, join, update, leave, timeout."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.settings.config import Settings

if TYPE_CHECKING:
    from tests.interop.conftest import Start
    from tests.interop.peer import Json, Node, Socket

TOPIC = "chat.session.abc"


def member_of(frame: Json, client_id: str) -> Any:
    found = [member for member in frame["members"] if member["client_id"] == client_id]
    assert len(found) == 1, frame
    return found[0]


async def joined(node: Node, socket: Socket) -> Json:
    del node
    await socket.subscribe(TOPIC)
    return await socket.until("presence.snapshot")


def token(node: Node, user: str) -> str:
    return node.iam.token(user, name=user.title(), sessions_shared=["abc"])


@pytest.mark.statement("H-049", "H-080", "H-084")
async def test_a_new_subscriber_gets_a_snapshot_of_all_members_with_their_fields(
    node: Node,
) -> None:
    picture = "https://example.org/alice.png"
    alice_token = node.iam.token("alice", name="Alice", picture=picture, sessions_owned=["abc"])
    async with node.socket(alice_token) as alice, node.socket(token(node, "bob")) as bob:
        await joined(node, alice)
        snapshot = await joined(node, bob)
        assert snapshot["topic"] == TOPIC
        assert len(snapshot["members"]) == 2
        member = member_of(snapshot, alice.client_id)
        assert (member["user_id"], member["name"]) == ("alice", "Alice")
        assert member["avatar_url"] == picture
        assert isinstance(member.get("status", "online"), str)
        assert isinstance(member.get("metadata", {}), dict)
        assert isinstance(member["joined_at"], int)
        assert member["last_seen"] >= member["joined_at"] > 1_600_000_000_000
        assert member_of(snapshot, bob.client_id)["user_id"] == "bob"


@pytest.mark.statement("H-005", "H-081")
async def test_a_subscription_is_a_join_for_all_other_members(node: Node) -> None:
    async with (
        node.socket(token(node, "alice")) as alice,
        node.socket(token(node, "bob")) as bob,
    ):
        await joined(node, alice)
        await bob.send({"type": "subscribe", "topics": [TOPIC]})
        assert [f for f in await bob.fence() if f["type"] == "message"] == []
        join = await alice.message("presence.join")
        assert join["topic"] == TOPIC
        assert join["data"]["client_id"] == bob.client_id
        assert join["data"]["user_id"] == "bob"


@pytest.mark.statement("H-005", "H-047", "H-082")
async def test_an_update_is_broadcast_and_appears_in_later_snapshots(node: Node) -> None:
    async with (
        node.socket(token(node, "alice")) as alice,
        node.socket(token(node, "bob")) as bob,
    ):
        await joined(node, alice)
        await joined(node, bob)
        await bob.send({"type": "presence.update", "data": {"status": "typing", "color": "red"}})
        update = await alice.message("presence.update")
        assert (update["topic"], update["data"]["client_id"]) == (TOPIC, bob.client_id)
        assert update["data"]["status"] == "typing"
        assert update["data"]["metadata"] == {"color": "red"}
        async with node.rest(token(node, "carol")) as rest:
            members = (await rest.get(f"/v1/topics/{TOPIC}/presence")).json()
        member = member_of(members, bob.client_id)
        assert (member["status"], member["metadata"]) == ("typing", {"color": "red"})


@pytest.mark.statement("H-134")
async def test_a_publish_of_type_presence_update_is_an_update(node: Node) -> None:
    async with (
        node.socket(token(node, "alice")) as alice,
        node.socket(token(node, "bob")) as bob,
    ):
        await joined(node, alice)
        await joined(node, bob)
        update = {"type": "presence.update", "data": {"status": "typing"}}
        await bob.send({"type": "publish", "message": {"topic": TOPIC, **update}})
        seen = await alice.message("presence.update")
        assert (seen["data"]["client_id"], seen["data"]["status"]) == (bob.client_id, "typing")
        assert (await alice.subscribe(TOPIC, since=1)).get("history", []) == []


@pytest.mark.statement("H-083")
async def test_unsubscribing_is_a_leave(node: Node) -> None:
    async with (
        node.socket(token(node, "alice")) as alice,
        node.socket(token(node, "bob")) as bob,
    ):
        await joined(node, alice)
        await joined(node, bob)
        await bob.send({"type": "unsubscribe", "topics": [TOPIC]})
        leave = await alice.message("presence.leave")
        assert leave["data"]["client_id"] == bob.client_id


@pytest.mark.statement("H-083")
async def test_a_normal_close_is_an_immediate_leave(node: Node) -> None:
    async with node.socket(token(node, "alice")) as alice:
        await joined(node, alice)
        async with node.socket(token(node, "bob")) as bob:
            await joined(node, bob)
        leave = await alice.message("presence.leave")
        assert leave["data"]["client_id"] == bob.client_id


@pytest.mark.statement("H-083")
async def test_a_lost_connection_is_a_leave_after_the_grace(start: Start) -> None:
    node = await start(presence_grace=50)
    async with node.socket(token(node, "alice")) as alice:
        await joined(node, alice)
        async with node.socket(token(node, "bob")) as bob:
            await joined(node, bob)
            bob.cut()
            leave = await alice.message("presence.leave")
        assert leave["data"]["client_id"] == bob.client_id


@pytest.mark.statement("H-083", "H-086")
async def test_a_silent_client_is_disconnected_and_others_see_it_leave(start: Start) -> None:
    node = await start(presence_timeout=2_000, presence_grace=0, server_ping_interval=500)
    async with (
        node.socket(token(node, "alice")) as alice,
        node.socket(token(node, "bob")) as bob,
    ):
        await joined(node, alice)
        await joined(node, bob)
        bob.fall_silent()
        leave = await alice.message("presence.leave")
        assert leave["data"]["client_id"] == bob.client_id
        bob.connection.transport.resume_reading()
        assert await bob.closed() == 4408


@pytest.mark.statement("H-086")
async def test_a_ping_keeps_a_client_present(start: Start) -> None:
    node = await start(presence_timeout=3_000, presence_grace=0, server_ping_interval=86_400_000)
    async with (
        node.socket(token(node, "alice")) as alice,
        node.socket(token(node, "bob")) as bob,
        node.socket(token(node, "carol")) as carol,
    ):
        await joined(node, alice)
        await joined(node, bob)
        await joined(node, carol)

        async def keep(socket: Socket) -> None:
            while True:
                await socket.send({"type": "ping"})
                await asyncio.sleep(0.1)

        pinging = [asyncio.create_task(keep(socket)) for socket in (alice, bob)]
        # Carol sends nothing: when she leaves, the timeout has elapsed for Bob, too.
        leave = await alice.message("presence.leave")
        assert leave["data"]["client_id"] == carol.client_id
        async with node.rest(token(node, "dave")) as rest:
            members = (await rest.get(f"/v1/topics/{TOPIC}/presence")).json()["members"]
        assert {m["client_id"] for m in members} == {alice.client_id, bob.client_id}
        for task in pinging:
            task.cancel()


@pytest.mark.statement("H-085")
async def test_a_restart_clears_presence_and_returning_clients_rebuild_it(
    start: Start,
) -> None:
    before = await start()
    async with before.socket(token(before, "alice")) as alice:
        await joined(before, alice)
        # She is present at the end; a close frame would have removed her.
        await before.stop()
    after = await start()
    async with after.rest(token(after, "carol")) as rest:
        assert (await rest.get(f"/v1/topics/{TOPIC}/presence")).json()["members"] == []
        async with after.socket(token(after, "alice")) as alice:
            snapshot = await joined(after, alice)
            assert [m["user_id"] for m in snapshot["members"]] == ["alice"]
            members = (await rest.get(f"/v1/topics/{TOPIC}/presence")).json()["members"]
    assert [m["user_id"] for m in members] == ["alice"]


@pytest.mark.statement("H-005")
async def test_a_wildcard_subscriber_observes_and_is_not_a_member(node: Node) -> None:
    async with (
        node.socket(token(node, "alice")) as alice,
        node.socket(token(node, "bob")) as bob,
    ):
        await alice.subscribe("chat.session.*")
        snapshot = await joined(node, bob)
        assert [m["user_id"] for m in snapshot["members"]] == ["bob"]
        assert (await alice.message("presence.join"))["data"]["user_id"] == "bob"


@pytest.mark.statement("H-086")
def test_the_default_presence_timeout_is_thirty_seconds_with_five_seconds_of_grace() -> None:
    settings = Settings()
    assert settings.presence_timeout == 30_000
    assert settings.presence_grace == 5_000
    assert settings.server_ping_interval < settings.presence_timeout
