from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanzoai.pubsub.topics import TopicTrie, matches
from pubsub_server.hub import routing, topic_tree
from pubsub_server.hub.routing import Router
from pubsub_server.hub.topic_tree import TopicTree
from pubsub_server.listeners.http.encoder import StreamEncoder
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.shared import topic_index
from pubsub_server.shared.connection import Connection, with_name, without_name
from pubsub_server.shared.topic_index import TopicIndex

if TYPE_CHECKING:
    from pubsub_server.shared.encoder import Encoder

STREAM = StreamEncoder(lambda: maxsize)


class _Keeper:
    def check(self, connection: Connection, now: float) -> float | None:
        return None


class Lab:
    def __init__(self) -> None:
        self.forbidden: set[tuple[str, str]] = set()
        self.asked = 0
        self.router = Router(self.allowed, lambda pattern: None, lambda pattern: None)

    def allowed(self, connection: Connection, topic: str) -> bool:
        self.asked += 1
        return (connection.client_id, topic) not in self.forbidden

    def connection(self, name: str, encoder: Encoder = SOCKET) -> Connection:
        sink: Any = None
        connection = Connection(sink, encoder, _Keeper(), 0)
        connection.client_id = name
        return connection

    def add(self, connection: Connection, *patterns: str) -> Connection:
        for pattern in patterns:
            self.router.add(connection, pattern)
            connection.patterns = with_name(connection.patterns, pattern)
        return connection

    def discard(self, connection: Connection, pattern: str) -> None:
        self.router.discard(connection, pattern)
        connection.patterns = without_name(connection.patterns, pattern)

    def names(self, topic: str) -> list[str]:
        route = self.router.route(topic)
        return sorted(connection.client_id for connection in route)


def test_a_topic_goes_only_to_its_subscribers() -> None:
    lab = Lab()
    lab.add(lab.connection("a"), "x.y")
    lab.add(lab.connection("b"), "x.y", "z")
    assert lab.names("x.y") == ["a", "b"]
    assert lab.names("z") == ["b"]
    assert lab.names("x") == []


def test_several_patterns_of_one_connection_bring_one_copy() -> None:
    lab = Lab()
    lab.add(lab.connection("a"), "x.y", "x.*", "**")
    assert lab.names("x.y") == ["a"]
    assert lab.names("x.z") == ["a"]


def test_a_subscription_that_comes_or_goes_changes_known_routes() -> None:
    lab = Lab()
    a, b = lab.connection("a"), lab.connection("b")
    assert lab.names("x.y") == []
    lab.add(a, "x.y")
    assert lab.names("x.y") == ["a"]
    lab.add(b, "x.*")
    assert lab.names("x.y") == ["a", "b"]
    lab.discard(a, "x.y")
    assert lab.names("x.y") == ["b"]
    lab.discard(b, "x.*")
    assert lab.names("x.y") == []
    assert len(lab.router) == 0


def test_a_pattern_continues_when_a_name_that_it_covers_is_unsubscribed() -> None:
    lab = Lab()
    a = lab.add(lab.connection("a"), "x.y", "x.*")
    lab.add(lab.connection("b"), "x.y")
    assert lab.names("x.y") == ["a", "b"]
    lab.discard(a, "x.y")
    assert lab.names("x.y") == ["a", "b"]


def test_a_pattern_is_filtered_by_what_its_holder_may_read() -> None:
    lab = Lab()
    a = lab.add(lab.connection("a"), "x.*")
    lab.add(lab.connection("b"), "x.*")
    lab.forbidden.add(("a", "x.y"))
    assert lab.names("x.y") == ["b"]
    assert lab.names("x.z") == ["a", "b"]
    lab.forbidden.clear()
    assert lab.names("x.y") == ["b"], "known until the identity changes"
    lab.router.changed(a)
    assert lab.names("x.y") == ["a", "b"]


def test_a_route_is_worked_out_once() -> None:
    lab = Lab()
    lab.add(lab.connection("a"), "x.*")
    first = lab.router.route("x.y")
    for _ in range(10):
        assert lab.router.route("x.y") is first
    assert lab.asked == 1
    lab.add(lab.connection("b"), "other")
    assert lab.router.route("x.y") is first


def test_a_pattern_changes_only_the_routes_of_topics_that_it_matches() -> None:
    lab = Lab()
    lab.add(lab.connection("a"), "x.*", "y.*")
    b = lab.connection("b")
    for n in range(10):
        lab.router.route(f"pays.{n}")
    kept, grown = lab.router.route("y.z"), lab.router.route("x.y")
    lab.add(b, "x.**")
    lab.add(lab.connection("c"), "*.y")
    assert lab.router.route("y.z") is kept
    assert lab.router.route("x.y") is grown
    assert lab.names("x.y") == ["a", "b", "c"]
    lab.discard(b, "x.**")
    assert lab.router.route("y.z") is kept
    assert lab.names("x.y") == ["a", "c"]
    lab.router.changed(lab.add(lab.connection("d"), "x.y", "x.*"))
    assert lab.router.route("y.z") is kept
    assert lab.names("x.y") == ["a", "c", "d"]


def test_changes_of_patterns_cost_no_more_than_the_routes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "STEPS", 3)
    lab = Lab()
    lab.add(lab.connection("a"), "**.t")
    kept = lab.router.route("x.t")
    b = lab.connection("b")
    for _ in range(5):
        lab.add(b, "**.b")
        lab.discard(b, "**.b")
    assert lab.router.route("x.t") is not kept
    lab.add(b, "x.*")
    assert lab.names("x.t") == ["a", "b"]


def test_patterns_that_match_all_topics_change_few_routes_before_the_cache_is_emptied() -> None:
    lab = Lab()
    for n in range(100):
        lab.add(lab.connection(f"a{n}"), f"t.{n}")
        lab.router.route(f"t.{n}")
    b = lab.connection("b")
    for pattern in ("t.*", "t.**", "*.*", "*.**", "**.*", "**"):
        lab.add(b, pattern)
    assert lab.asked <= 200
    assert lab.names("t.7") == ["a7", "b"]


def test_long_traffic_does_not_allow_searches_that_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_tree, "STEPS_MAX", 50)
    lab = Lab()
    a, b = lab.connection("a"), lab.add(lab.connection("b"), "x.y")
    kept = lab.router.route("x.y")
    for _ in range(100):
        lab.add(a, "t")
        lab.router.route("t")
        lab.discard(a, "t")
        lab.router.route("t")
    for n in range(20):
        lab.add(b, f"**.{n}")
    assert lab.router.route("x.y") is not kept


def test_topics_of_many_segments_take_no_place_in_the_tree_of_cached_topics() -> None:
    lab = Lab()
    long = ".".join("x" * 9)
    lab.add(lab.connection("a"), "x.**")
    first = lab.router.route(long)
    assert lab.router.route(long) is first
    assert len(lab.router._cached) == 0
    lab.add(lab.connection("b"), "x.**")
    assert lab.names(long) == ["a", "b"]


def test_the_number_of_cached_routes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "ROUTES_MAX", 10)
    lab = Lab()
    for n in range(30):
        lab.router.route(f"t.{n}")
        lab.router.route(f"{n}" + ".x" * 9)
        assert len(lab.router._routes) <= 10


def test_connections_that_join_known_routes_by_name_count_for_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "PLACES_MAX", 10)
    lab = Lab()
    topics = [f"t.{n}" for n in range(4)]
    lab.add(lab.connection("first"), *topics)
    for topic in topics:
        lab.router.route(topic)
    for n in range(4):
        lab.add(lab.connection(f"later{n}"), *topics)
    for topic in topics:
        assert len(lab.router.route(topic)) == 5
    lab.router.route("t.other")
    assert sum(len(route) for route in lab.router._routes.values()) <= 10


def test_connections_are_grouped_by_their_encoder() -> None:
    lab = Lab()
    lab.add(lab.connection("a"), "t")
    lab.add(lab.connection("s", STREAM), "t")
    route = lab.router.route("t")
    assert [c.client_id for c in route.groups[SOCKET].connections] == ["a"]
    assert [c.client_id for c in route.groups[STREAM].connections] == ["s"]


def test_subscribers_that_come_and_go_by_name_need_no_new_route() -> None:
    lab = Lab()
    first = lab.add(lab.connection("first"), "t")
    route = lab.router.route("t")
    others = [lab.add(lab.connection(str(number)), "t") for number in range(5)]
    assert lab.router.route("t") is route
    assert lab.names("t") == ["0", "1", "2", "3", "4", "first"]
    lab.discard(others[2], "t")
    assert lab.router.route("t") is route
    assert lab.names("t") == ["0", "1", "3", "4", "first"]
    for connection in (*others, first):
        lab.discard(connection, "t")
    assert lab.names("t") == []
    assert lab.router.route("t") is routing.NOWHERE
    assert len(routing.NOWHERE) == 0


def test_presence_is_delivered_to_clients_that_request_it() -> None:
    lab = Lab()
    a, b, c = [lab.add(lab.connection(name), "t.x") for name in "abc"]
    lab.add(b, "t.*")
    b.silent = {"t.x"}
    c.silent = {"t.x"}
    assert [each.client_id for each in lab.router.watchers("t.x")] == ["a", "b"]
    d = lab.add(lab.connection("d"), "t.x")
    silent = lab.connection("e")
    silent.silent = {"t.x"}
    lab.add(silent, "t.x")
    assert [each.client_id for each in lab.router.watchers("t.x")] == ["a", "b", "d"]
    lab.discard(d, "t.x")
    lab.discard(a, "t.x")
    assert [each.client_id for each in lab.router.watchers("t.x")] == ["b"]
    c.silent = None
    lab.router.presence_changed("t.x")
    b.silent = {"t.x", "t.*"}
    lab.router.presence_changed("t.*")
    assert [each.client_id for each in lab.router.watchers("t.x")] == ["c"]


def test_only_patterns_that_match_are_asked_whether_they_receive_presence() -> None:
    class Silent(set[str]):
        asked = 0

        def __contains__(self, pattern: object) -> bool:
            self.asked += 1
            return super().__contains__(pattern)

    lab = Lab()
    quiet = lab.add(lab.connection("a"), "t.*", *(f"u.{n}.*" for n in range(100)))
    quiet.silent = silent = Silent({"t.*"})
    assert list(lab.router.watchers("t.x")) == []
    assert silent.asked == 1


def test_known_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "ROUTES_MAX", 10)
    lab = Lab()
    for number in range(100):
        lab.router.route(f"t{number}")
    assert len(lab.router._routes) <= 10


def test_discarding_what_is_not_there_changes_nothing() -> None:
    lab = Lab()
    a, b = lab.add(lab.connection("a"), "x", "y.*"), lab.connection("b")
    for pattern in ("x", "y.*", "z", "z.*"):
        lab.router.discard(b, pattern)
    assert lab.names("x") == ["a"]
    assert lab.names("y.z") == ["a"]
    assert a.patterns == ("x", "y.*")


segments = st.sampled_from(["a", "b", "c"])
topics = st.lists(segments, min_size=1, max_size=4).map(".".join)
patterns = st.lists(segments | st.sampled_from(["*", "**"]), min_size=1, max_size=4).map(".".join)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), patterns, st.booleans())), st.lists(topics))
def test_routes_are_those_of_a_list_searched_pattern_by_pattern(
    steps: list[tuple[int, str, bool]], asked: list[str]
) -> None:
    lab = Lab()
    connections = [lab.connection(str(number)) for number in range(5)]
    held: set[tuple[int, str]] = set()
    for number, pattern, add in steps:
        if add and (number, pattern) not in held:
            lab.add(connections[number], pattern)
            held.add((number, pattern))
        elif not add:
            lab.discard(connections[number], pattern)
            held.discard((number, pattern))
        for topic in asked:
            expected = sorted({str(n) for n, p in held if matches(p, topic)})
            assert lab.names(topic) == expected


@given(st.lists(topics), patterns)
def test_a_tree_of_topics_answers_as_a_search_of_all(added: list[str], pattern: str) -> None:
    tree = TopicTree()
    for topic in added:
        tree.add(topic, 1_000)
    assert len(tree) == len(set(added))
    if added:
        assert set(tree.matching(pattern) or ()) == {t for t in added if matches(pattern, t)}
    tree.clear()
    tree.add("a.b", 2)
    assert tree.matching("*.*") is None
    assert len(tree) == 1


@settings(deadline=None)
@given(st.lists(st.tuples(topics, st.booleans())), st.lists(patterns, max_size=4))
def test_an_index_of_topics_answers_as_a_search_of_all(
    steps: list[tuple[str, bool]], asked: list[str]
) -> None:
    index = TopicIndex()
    there: set[str] = set()
    for topic, add in steps:
        (index.add if add else index.discard)(topic)
        (there.add if add else there.discard)(topic)
        expected = {t for t in there if any(matches(p, t) for p in asked)}
        found = index.matching(asked)
        assert set(found) == expected
        assert len(found) == len(expected)


def test_the_kept_answers_of_an_index_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from pubsub_server.shared import topic_index

    monkeypatch.setattr(topic_index, "VIEWS_MAX", 5)
    monkeypatch.setattr(topic_index, "VIEW_TOPICS_MAX", 12)
    index = TopicIndex()
    for number in range(10):
        index.add(f"t.{number}")
    for number in range(50):
        assert index.matching([f"*.{number}", "**"])[-1:] != []
        assert len(index._views) <= 5
        assert index._held <= 12


def test_names_are_a_tuple_while_they_are_few() -> None:
    names: Any = ()
    for number in range(20):
        names = with_name(names, str(number))
        assert len(names) == number + 1
    assert isinstance(names, dict)
    for number in range(20):
        names = without_name(names, str(number))
        assert str(number) not in names
    assert names == ()


@pytest.mark.parametrize("count", [3, 100])
async def test_the_result_of_a_long_search_is_cached_without_another_comparison(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    index = TopicIndex()
    names = [f"t.{n}" for n in range(topic_index.AT_ONCE + 1)]
    for name in names:
        index.add(name)
    patterns = ["t.*", *(f"u.{n}.*" for n in range(1, count))]
    survey = index.survey(patterns, lambda topic: True)
    assert survey is not None

    async def turn(seconds: float) -> None:
        pass

    await survey.run(turn)
    assert list(survey.found) == names
    compared: list[str] = []
    match = TopicTrie[Any].match

    def counting(trie: TopicTrie[Any], topic: str) -> tuple[Any, ...]:
        compared.append(topic)
        return match(trie, topic)

    monkeypatch.setattr(TopicTrie, "match", counting)
    survey.keep()
    survey.end()
    assert compared == []
    monkeypatch.undo()
    index.add("t.new")
    assert index.matching(["t.*"]) == [*names, "t.new"]
