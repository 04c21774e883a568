from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub import Occupancy, occupancy_of, users_of
from hanzoai.pubsub.generated.wire import Message, PresenceMember, PresenceUpdateFrame
from hanzoai.pubsub.session.cursor import SeqCursor
from hanzoai.pubsub.session.own_presence import MAX_TOPICS as OWN_TOPICS
from hanzoai.pubsub.session.own_presence import OwnPresence, PresenceValues
from hanzoai.pubsub.session.ports import Context, Peer, Rejected, Subscribe
from hanzoai.pubsub.session.presence import MAX_MEMBERS, MAX_TOPICS
from hanzoai.pubsub.session.publishes import Publishes
from hanzoai.pubsub.session.routes import Routes, SubscriptionState
from hanzoai.pubsub.settings.session import SessionOptions
from tests.python.presences import WatchedPresence
from tests.traces.effects import Send, Settle
from tests.traces.recorder import Log

if TYPE_CHECKING:
    import pytest


def member(id: str, **fields: Any) -> PresenceMember:
    base: dict[str, Any] = {
        "client_id": id,
        "user_id": f"u{id}",
        "name": id,
        "joined_at": 1,
        "last_seen": 1,
    }
    return PresenceMember(**(base | fields))


def change_of(kind: str, data: Any, at: int = 5) -> Message:
    return Message(id="p", topic="a", type=f"presence.{kind}", data=data, timestamp=at)


def members_of(presence: WatchedPresence) -> tuple[PresenceMember, ...]:
    [shown] = presence.lists()
    assert shown.topic == "a"
    return shown.members


def test_a_member_under_member_is_read_too() -> None:
    presence = WatchedPresence("**")
    [change] = presence.message(change_of("join", {"member": member("x").wire()}))
    assert change.member == member("x")


def test_an_update_is_merged_into_what_is_known() -> None:
    presence = WatchedPresence("**")
    presence.snapshot("a", [member("x", status="online")])
    [change] = presence.message(change_of("update", {"client_id": "x", "status": "typing"}))
    assert change.change == "update"
    assert change.members == (member("x", status="typing", last_seen=5),)


def test_a_second_snapshot_reports_only_differences() -> None:
    presence = WatchedPresence("**")
    assert [c.change for c in presence.snapshot("a", [member("x"), member("y")])] == ["snapshot"]
    changes = presence.snapshot("a", [member("y", status="away"), member("z")])
    assert [(c.change, c.member and c.member.client_id) for c in changes] == [
        ("update", "y"),
        ("join", "z"),
        ("leave", "x"),
    ]
    assert presence.snapshot("a", [member("y", status="away", last_seen=9), member("z")]) == []


def test_members_are_in_the_order_of_joining() -> None:
    presence = WatchedPresence("**")
    presence.snapshot("a", [member("late", joined_at=9), member("early", joined_at=3)])
    assert [m.client_id for m in members_of(presence)] == ["early", "late"]


def test_a_subscription_without_presence_ends_without_a_search_of_the_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = WatchedPresence("a.*")
    searched: list[object] = []

    def matching(patterns: list[str]) -> list[str]:
        searched.append(patterns)
        return []

    monkeypatch.setattr(watched.presence, "_matching", matching)
    for presence in (True, False):
        watched.presence.remove(watched.state("a.*", presence=presence), ["a.*"])
        assert len(searched) == 1


def test_a_crowd_is_bounded() -> None:
    presence = WatchedPresence("**")
    presence.snapshot("a", [member(str(n)) for n in range(MAX_MEMBERS + 5)])
    assert len(members_of(presence)) == MAX_MEMBERS
    assert presence.message(change_of("join", member("more").wire())) == []


def occupied(presence: WatchedPresence) -> list[str]:
    """Topics with a member."""
    return [shown.topic for shown in presence.lists() if shown.members]


def test_members_of_dropped_topics_are_removed() -> None:
    presence = WatchedPresence("a", "b")
    presence.snapshot("a", [member("x")])
    presence.snapshot("b", [member("y")])
    presence.end("a")
    assert occupied(presence) == ["b"]


def test_topics_that_have_emptied_make_room_before_one_with_members() -> None:
    presence = WatchedPresence("**")
    presence.snapshot("quiet", [member("x")])
    for number in range(2 * MAX_TOPICS):
        presence.snapshot(f"brief.{number}", [])
    assert occupied(presence) == ["quiet"]
    assert len(presence.lists()) <= MAX_TOPICS
    for number in range(MAX_TOPICS):
        presence.snapshot(f"lasting.{number}", [member("y")])
    left = occupied(presence)
    assert len(left) == MAX_TOPICS
    assert "quiet" not in left


def test_the_last_value_of_each_key_counts() -> None:
    own = PresenceValues()
    own.update("a", {"status": "typing", "x": 1})
    own.update(None, {"name": "Ann"})
    own.update("a", {"x": None})
    assert list(own.items()) == [(None, {"name": "Ann"}), ("a", {"status": "typing", "x": None})]


def test_an_update_for_all_topics_overrides_that_of_one_topic() -> None:
    own = PresenceValues()
    own.update("a", {"status": "typing"})
    own.update(None, {"status": "idle"})
    assert list(own.items()) == [(None, {"status": "idle"})]


def test_own_presence_of_a_topic_that_another_subscription_names_is_kept() -> None:
    request = Subscribe(1, ("a.b", "a.*"))  # which is no member of the topics of its pattern
    routes = Routes()
    routes.add(SubscriptionState(request, SeqCursor(request, SessionOptions())))
    log = Log()
    context = Context(SessionOptions(), log, lambda: 0.5)
    own = OwnPresence(context, Publishes(context), routes)
    for ref, topic in enumerate((None, "a.b", "a.c", "d"), 1):
        own.update(topic, {str(topic): 1}, ref)
    own.drop_topics(["a.b", "a.c"])
    context.peer = Peer()
    own.connected()
    frames = [sent.frame for sent in log.take() if isinstance(sent, Send)]
    assert [frame.topic for frame in frames if isinstance(frame, PresenceUpdateFrame)] == [
        None,
        "a.b",
        "d",
    ]


def test_an_update_of_one_topic_more_than_the_client_remembers_is_rejected() -> None:
    log = Log()
    context = Context(SessionOptions(), log, lambda: 0.5)
    own = OwnPresence(context, Publishes(context), Routes())
    for number in range(OWN_TOPICS):
        own.update(f"a.{number}", {"n": number}, number + 1)
    own.update("a.0", {"n": "again"}, OWN_TOPICS + 1)
    own.update(None, {"status": "here"}, OWN_TOPICS + 2)
    assert log.take() == []
    own.update("a.newest", {"n": 1}, OWN_TOPICS + 3)
    [settled] = log.take()
    assert isinstance(settled, Settle)
    error = settled.outcome
    assert isinstance(error, Rejected)
    assert (settled.ref, error.code, error.topic) == (OWN_TOPICS + 3, "queue_full", "a.newest")
    assert "10,000 topics" in error.message


names = st.sampled_from(["x", "y", "z"])


@given(
    st.lists(st.tuples(st.sampled_from(["join", "update", "leave"]), names, st.integers(0, 3))),
    st.sets(names),
)
def test_events_since_the_snapshot_lead_to_the_map_of_the_server(
    events: list[tuple[str, str, int]], first: set[str]
) -> None:
    presence = WatchedPresence("**")
    server = {name: member(name) for name in first}
    presence.snapshot("a", list(server.values()))
    for kind, name, status in events:
        if kind == "leave":
            server.pop(name, None)
        else:
            server[name] = member(name, status=str(status))
        data = {"client_id": name} if kind == "leave" else server[name].wire()
        presence.message(change_of(kind, data))
    assert {m.client_id: m.status for m in members_of(presence)} == {
        name: m.status for name, m in server.items()
    }


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_absurd_data_changes_nothing_and_does_not_raise(data: Any) -> None:
    assert WatchedPresence("**").message(change_of("join", data)) == []


def test_the_roster_names_each_user_once_and_the_connection_that_joined_first() -> None:
    members = [
        member("a1", user_id="alice"),
        member("b1", user_id="bob"),
        member("a2", user_id="alice", joined_at=2),
        member("x1", user_id=""),
        member("x2", user_id=""),
    ]
    assert [one.client_id for one in users_of(members)] == ["a1", "b1", "x1", "x2"]
    assert users_of(()) == []
    assert occupancy_of(members) == Occupancy(members=len(members), users=4)


def test_a_full_room_that_does_not_return_leaves_with_one_list_of_members() -> None:
    presence = WatchedPresence("**")
    presence.snapshot("a", [member(f"{n}") for n in range(MAX_MEMBERS)])
    presence.presence.lost()
    presence.presence.reconnected(known=False)
    back = presence.message(change_of("join", member("back").wire()))
    assert [change.change for change in back] == ["join"]
    left = presence.expire()
    assert [change.change for change in left] == ["leave"] * MAX_MEMBERS
    assert len({id(change.members) for change in left}) == 1
    assert [one.client_id for one in left[0].members] == ["back"]
    assert presence.expire() == []
