from __future__ import annotations

import contextlib
from typing import Any

import pytest

from pubsub_server.auth.identity import Identity
from pubsub_server.errors import ServiceError
from pubsub_server.hub.presence import CLIENT_METADATA_BYTES, METADATA_BYTES, Presence
from pubsub_server.interfaces import Member

ALICE = Identity(user_id="alice", name="Alice", avatar_url="https://a/b.png")
BOB = Identity(user_id="bob", name="Bob")


def seen(client_id: str) -> int | None:
    return None


def members(presence: Presence, topic: str = "t") -> list[Member]:
    return presence.members(topic, seen)


def names(presence: Presence, topic: str = "t") -> list[str]:
    return [member.client_id for member in members(presence, topic)]


def update(presence: Presence, data: dict[str, Any], topic: str | None = None) -> Member:
    ((_, member),) = presence.update("a", topic, data, 50)
    return member


@pytest.fixture
def alone() -> Presence:
    presence = Presence(100)
    presence.join("a", ALICE, "t", 10)
    return presence


def test_a_member_has_every_field_of_the_wire(alone: Presence) -> None:
    assert members(alone) == [
        Member("a", "alice", "Alice", "https://a/b.png", None, None, 10, 10, "user")
    ]


def test_joining_twice_is_one_join(alone: Presence) -> None:
    assert alone.join("a", ALICE, "t", 99) is None
    assert members(alone)[0].joined_at == 10


def test_several_connections_of_a_user_are_several_members(alone: Presence) -> None:
    assert alone.join("a2", ALICE, "t", 11) is not None
    assert names(alone) == ["a", "a2"]


def test_a_leave_is_reported_once(alone: Presence) -> None:
    gone = alone.leave("a", "t")
    assert gone is not None
    assert gone.user_id == "alice"
    assert alone.leave("a", "t") is None
    assert len(alone) == 0
    assert alone.client("a") is None


def test_a_topic_that_is_full_lists_no_more() -> None:
    presence = Presence(2)
    for name in ("a", "b", "c"):
        presence.join(name, ALICE, "t", 1)
    assert names(presence) == ["a", "b"]
    assert presence.client("c") is None


def test_known_keys_change_the_member_and_others_its_metadata(alone: Presence) -> None:
    member = update(alone, {"status": "typing", "name": "Al", "cursor": 3, "metadata": {"k": 1}})
    assert (member.status, member.name, member.metadata) == ("typing", "Al", {"cursor": 3, "k": 1})
    member = update(alone, {"cursor": None, "k": 2, "name": None})
    assert (member.status, member.name, member.metadata) == ("typing", "Alice", {"k": 2})
    assert update(alone, {"k": None}).metadata is None


def test_an_update_without_a_topic_is_for_all(alone: Presence) -> None:
    alone.join("a", ALICE, "u", 12)
    assert [topic for topic, _ in alone.update("a", None, {"status": "idle"}, 50)] == ["t", "u"]
    assert [topic for topic, _ in alone.update("a", "u", {"status": "here"}, 50)] == ["u"]
    assert members(alone, "t")[0].status == "idle"


def test_topics_that_change_together_get_the_same_metadata_and_others_keep_theirs(
    alone: Presence,
) -> None:
    for topic in ("u", "v"):
        alone.join("a", ALICE, topic, 12)
    alone.update("a", None, {"k": 1}, 50)
    alone.update("a", "v", {"own": 2}, 50)
    changed = {topic: member.metadata for topic, member in alone.update("a", None, {"l": 3}, 50)}
    assert changed == {
        "t": {"k": 1, "l": 3},
        "u": {"k": 1, "l": 3},
        "v": {"k": 1, "own": 2, "l": 3},
    }
    alone.update("a", "t", {"k": 9}, 50)
    assert members(alone, "u")[0].metadata == {"k": 1, "l": 3}


def test_an_update_where_one_is_no_member_is_an_error(alone: Presence) -> None:
    with pytest.raises(ServiceError) as caught:
        alone.update("a", "other", {}, 50)
    assert (caught.value.code, caught.value.topic) == ("not_found", "other")
    assert caught.value.message == "this client is not a member of other"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"status": 5}, "invalid_payload"),
        ({"status": "x" * 65}, "invalid_payload"),
        ({"name": ["x"]}, "invalid_payload"),
        ({"avatar_url": "x" * 3000}, "invalid_payload"),
        ({"metadata": []}, "invalid_payload"),
        ({"k": "x" * METADATA_BYTES}, "payload_too_large"),
    ],
)
def test_a_wrong_update_changes_nothing(alone: Presence, data: dict[str, Any], code: str) -> None:
    before = members(alone)
    with pytest.raises(ServiceError) as caught:
        alone.update("a", None, {"status": "ok", **data}, 50)
    assert caught.value.code == code
    assert members(alone) == before


def test_metadata_cannot_grow_beyond_its_bound_piece_by_piece(alone: Presence) -> None:
    taken = 0
    with contextlib.suppress(ServiceError):
        for number in range(1000):
            update(alone, {f"k{number}": "x" * 100})
            taken += 1
    assert 100 < taken < 200
    metadata = members(alone)[0].metadata
    assert metadata is not None
    assert len(str(metadata)) < 2 * METADATA_BYTES


def test_the_metadata_of_a_client_is_limited_on_all_topics_together(alone: Presence) -> None:
    topics = [f"t{number}" for number in range(1 + CLIENT_METADATA_BYTES // METADATA_BYTES)]
    for topic in topics:
        alone.join("a", ALICE, topic, 10)
    alone.leave("a", "t")
    text = "x" * (METADATA_BYTES - 10)
    for topic in topics[:-1]:
        alone.update("a", topic, {"k": text}, 50)
    with pytest.raises(ServiceError, match="bytes of JSON together; at most 1,048,576") as caught:
        alone.update("a", topics[-1], {"k": text}, 50)
    assert (caught.value.code, caught.value.field) == ("payload_too_large", "data")
    assert caught.value.remedy == "Set less metadata on each topic, or delete keys with null."
    alone.update("a", topics[0], {"k": "shorter"}, 50)
    alone.update("a", topics[-1], {"k": text}, 50)
    alone.leave("a", topics[-1])
    alone.update("a", topics[0], {"k": text}, 50)
    alone.update("a", None, {"k": None}, 50)
    assert members(alone, topics[0])[0].metadata is None


def test_metadata_that_another_node_has_accepted_can_only_shrink_above_the_limit(
    alone: Presence,
) -> None:
    topics = [f"t{number}" for number in range(100)]
    for topic in topics:
        alone.join("a", ALICE, topic, 10)
        alone.restore("a", topic, {"joined_at": 10, "metadata": {"k": "x" * 16_000}})
    with pytest.raises(ServiceError, match="together"):
        alone.update("a", "t0", {"l": 1}, 50)
    alone.update("a", "t0", {"k": "y" * 16_000}, 50)
    alone.update("a", "t0", {"k": 1}, 50)


def test_a_lost_client_that_comes_back_keeps_its_place(alone: Presence) -> None:
    update(alone, {"status": "typing"})
    alone.lose("a", 5.0, 40)
    assert alone.join("a", ALICE, "t", 60) is None
    assert alone.lapse("a", 10) == []
    assert members(alone)[0].status == "typing"
    assert members(alone)[0].joined_at == 10


def test_a_lost_client_leaves_what_it_did_not_join_again(alone: Presence) -> None:
    alone.join("a", ALICE, "u", 12)
    alone.lose("a", 5.0, 40)
    alone.join("a", ALICE, "u", 60)
    assert [topic for topic, _ in alone.lapse("a", 10)] == ["t"]
    assert names(alone, "u") == ["a"]


def test_everything_is_left_at_the_end(alone: Presence) -> None:
    alone.join("a", ALICE, "u", 12)
    alone.lose("a", 5.0)
    assert [topic for topic, _ in alone.lapse("a", 1)] == ["t"]
    assert [topic for topic, _ in alone.lapse("a", 10)] == ["u"]
    assert alone.lapse("a", 10) == []
    assert alone.topics() == []


def test_the_last_heartbeat_of_a_connected_client_is_reported(alone: Presence) -> None:
    assert alone.members("t", {"a": 77}.get)[0].last_seen == 77
    assert members(alone)[0].last_seen == 77
