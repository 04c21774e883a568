from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_server.backplane import Entry, Page, Published, Replay
from pubsub_server.backplanes import replay_bounds
from pubsub_server.backplanes.history import SEQ_PER_MS, MemoryStore
from pubsub_server.backplanes.ids import IdMemory, id_key
from pubsub_server.backplanes.retention import Keep, Retention
from pubsub_server.errors import ServiceError
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = 1_700_000_000_000


def memory_store(
    classes: Sequence[tuple[Sequence[str], Keep]] = (),
    *,
    max_messages: int = 100,
    max_age: int = 3600,
    max_bytes: int = 10**9,
    max_topics: int = 1000,
    ids: int = 1000,
    ids_age: int = 600,
    origin: int | None = None,
) -> MemoryStore:
    """Create a store with these limits; ages are in seconds."""
    retention = Retention(Keep(max_messages, max_age * 1000), classes)
    memory = IdMemory(ids, ids_age * 1000)
    return MemoryStore(
        retention, memory, max_bytes=max_bytes, max_topics=max_topics, born=NOW, origin=origin
    )


class Lab:
    def __init__(self, **limits: Any) -> None:
        self.store = memory_store(**limits)
        self.now = NOW
        self.count = 0

    def draft(self, topic: str = "t", data: Any = 0, **fields: Any) -> Draft:
        return Draft(
            topic, "x", orjson.dumps(data), fields.get("ttl"), fields.get("id"), fields.get("meta")
        )

    def append(self, topic: str = "t", data: Any = 0, sender: str = "u", **fields: Any) -> Any:
        self.count += 1
        draft = self.draft(topic, data, **{"id": f"m{self.count}", **fields})
        return self.store.append(draft, ("user", sender), self.now)

    def fill(self, count: int, topic: str = "t", **fields: Any) -> list[int]:
        """Append this number of messages, one per millisecond; return their positions."""
        seqs: list[int] = []
        for _ in range(count):
            entry = self.append(topic, **fields)
            assert isinstance(entry, Entry)
            assert entry.seq is not None
            seqs.append(entry.seq)
            self.now += 1
        return seqs

    def replay(self, *topics: str, **options: Any) -> Replay:
        concrete = [t for t in topics if "*" not in t]
        return self.store.replay(concrete, [t for t in topics if "*" in t], self.now, **options)

    def page(self, topic: str = "t", **options: Any) -> Page:
        return self.store.page(topic, self.now, limit=options.pop("limit", 50), **options)


def seqs(replay: Replay) -> list[int | None]:
    return [entry.seq for entry in replay.entries]


def ids(page: Page) -> list[str]:
    return [orjson.loads(body)["id"] for body in page.messages]


# ---------------------------------------------------------------- numbers


def test_a_log_begins_at_the_time_and_counts_by_one() -> None:
    lab = Lab()
    assert lab.fill(3) == [NOW * 1000, NOW * 1000 + 1, NOW * 1000 + 2]


def test_each_topic_is_numbered_separately() -> None:
    lab = Lab()
    lab.append("a")
    assert lab.append("a").seq == NOW * 1000 + 1
    assert lab.append("b").seq == NOW * 1000


def test_a_lost_log_continues_with_greater_numbers() -> None:
    lab = Lab()
    old = lab.fill(5)
    lab.store.evict("t", log_too=True)
    new = lab.fill(1)
    assert new[0] > old[-1] + 1


def test_a_log_lost_within_a_millisecond_is_seen_to_be_lost() -> None:
    lab = Lab()
    old = [lab.append().seq, lab.append().seq]
    lab.store.evict("t", log_too=True)
    new = lab.append().seq
    assert new > old[-1] + 1
    assert lab.replay("t", after={"t": old[-1]}).reset == ["t"]


def test_numbers_do_not_go_back_when_the_clock_does() -> None:
    lab = Lab()
    old = lab.fill(5)
    lab.now -= 3_600_000
    lab.store.evict("t", log_too=True)
    entry = lab.append()
    assert entry.seq > old[-1]
    assert entry.timestamp >= NOW + 4


def test_a_message_of_ttl_zero_is_neither_kept_nor_numbered() -> None:
    lab = Lab()
    first = lab.append()
    passing = lab.append(ttl=0)
    assert passing.seq is None
    assert b'"seq"' not in passing.body
    assert lab.append().seq == first.seq + 1
    assert len(lab.replay("t", since=0).entries) == 2


def test_without_history_messages_are_still_numbered() -> None:
    lab = Lab(max_messages=0)
    one, two = lab.fill(2)
    assert two == one + 1
    found = lab.replay("t", after={"t": one})
    assert (seqs(found), found.truncated, found.positions) == ([], ["t"], {"t": two})


# ---------------------------------------------------------------- bounds


def test_the_oldest_go_when_there_are_too_many() -> None:
    lab = Lab(max_messages=3)
    numbers = lab.fill(5)
    assert seqs(lab.replay("t", since=0)) == numbers[2:]


def test_messages_leave_at_their_age() -> None:
    lab = Lab(max_age=10)
    numbers = lab.fill(2)
    lab.now = NOW + 10_000
    assert seqs(lab.replay("t", since=0)) == numbers[1:]
    lab.now = NOW + 10_001
    assert seqs(lab.replay("t", since=0)) == []


def test_a_ttl_can_only_shorten_the_age() -> None:
    lab = Lab(max_age=10)
    short, long = lab.append(ttl=2), lab.append(ttl=1000)
    lab.now = NOW + 2_000
    assert seqs(lab.replay("t", since=0)) == [long.seq]
    lab.now = NOW + 10_000
    assert seqs(lab.replay("t", since=0)) == []
    assert short.expires == NOW + 2_000


def test_an_idle_log_keeps_its_number_when_its_messages_are_gone() -> None:
    lab = Lab(max_age=10)
    numbers = lab.fill(3)
    lab.now += 3_600_000
    lab.store.expire(lab.now)
    assert lab.store.size == 0
    found = lab.replay("t", after={"t": numbers[-1]})
    assert (found.truncated, found.reset) == ([], []), "nothing was missed"
    assert lab.append().seq == numbers[-1] + 1


def test_bytes_are_bounded_over_all_topics() -> None:
    lab = Lab(max_bytes=20_000)
    for number in range(200):
        lab.append(f"t{number % 7}", "x" * 500)
        assert lab.store.size <= 20_000
    newest = lab.append("t3", "x" * 500)
    assert newest.seq in seqs(lab.replay("t3", since=0))


def test_the_topic_written_least_recently_is_evicted_first() -> None:
    lab = Lab(max_bytes=8_000)
    lab.append("old", "x" * 1000)
    for _ in range(20):
        lab.append("busy", "x" * 1000)
    assert lab.replay("old", since=0).entries == []
    assert lab.replay("old", since=0).truncated == ["old"]
    assert lab.replay("busy", since=0).entries != []


def test_the_number_of_logs_is_bounded() -> None:
    lab = Lab(max_topics=3)
    for name in ("a", "b", "c"):
        lab.append(name)
    lab.append("a")
    lab.append("d")
    assert len(lab.store) == 3
    assert set(lab.replay("**").positions) == {"a", "c", "d"}


def test_the_size_is_that_of_what_is_kept() -> None:
    lab = Lab(max_messages=5, max_topics=3)
    for number in range(50):
        lab.append(f"t{number % 5}", "x" * number)
    lab.store.evict(None)
    assert lab.store.size == 0


# ---------------------------------------------------------------- ids


def test_the_same_message_again_has_the_same_answer() -> None:
    lab = Lab()
    first = lab.append(id="m", data={"a": 1})
    lab.now += 5_000
    again = lab.append(id="m", data={"a": 1})
    assert again == Published("m", first.timestamp, first.seq, True)
    assert len(lab.replay("t", since=0).entries) == 1


@pytest.mark.parametrize("other", [{"data": 2}, {"ttl": 5}, {"meta": b"{}"}], ids=str)
def test_an_id_used_for_something_else_is_a_conflict(other: dict[str, Any]) -> None:
    lab = Lab()
    lab.append(id="m", data=1)
    options: dict[str, Any] = {"id": "m", "data": 1, **other}
    error = lab.append(**options)
    assert isinstance(error, ServiceError)
    assert (error.code, error.field, error.topic) == ("conflict", "id", "t")


@pytest.mark.parametrize("data", [1, 2], ids=["the same payload", "another payload"])
@pytest.mark.parametrize("later", [0, 10], ids=["retained", "no longer retained"])
@pytest.mark.parametrize("ttl", [None, 0], ids=["kept", "not kept"])
def test_an_id_of_one_sender_is_free_for_another(data: int, later: int, ttl: int | None) -> None:
    lab = Lab(max_messages=5)
    first = lab.append(id="m", data=1, sender="mallory", ttl=ttl)
    lab.fill(later)
    second = lab.append(id="m", data=data, sender="alice", ttl=ttl)
    assert isinstance(second, Entry)
    lab.fill(later)
    for sender, entry, sent in (("mallory", first, 1), ("alice", second, data)):
        again = lab.append(id="m", data=sent, sender=sender, ttl=ttl)
        assert again == Published("m", entry.timestamp, entry.seq, True)
        assert lab.append(id="m", data=3, sender=sender, ttl=ttl).code == "conflict"


def test_no_name_of_a_sender_and_id_together_mean_those_of_another() -> None:
    scopes = [
        id_key("t", sender, id)
        for sender, id in (
            (("user", "a"), "b c"),
            (("user", "a b"), "c"),
            (("user", "a 1 b"), "c"),
            (("user", "ä"), "b c"),
            (("service", "a"), "b c"),
        )
    ]
    assert len(set(scopes)) == len(scopes)


def test_an_id_belongs_to_its_topic() -> None:
    lab = Lab()
    lab.append("a", id="m")
    assert isinstance(lab.append("b", id="m"), Entry)


def test_an_id_is_known_after_its_message_has_left_the_log() -> None:
    lab = Lab(max_messages=2)
    first = lab.append(id="m", data=1)
    lab.fill(10)
    assert lab.append(id="m", data=1) == Published("m", first.timestamp, first.seq, True)
    assert lab.append(id="m", data=2).code == "conflict"


def test_a_generated_id_is_known_only_while_its_message_is_retained() -> None:
    lab = Lab(max_messages=1)
    made = lab.append(id=None).id
    assert lab.append(id=made, data=2).code == "conflict"
    lab.append()
    assert isinstance(lab.append(id=made, data=2), Entry)


def test_a_topic_that_is_written_again_after_it_was_emptied_expires_again() -> None:
    lab = Lab(max_age=1)
    lab.append()
    lab.now += 1000
    lab.store.expire(lab.now)
    lab.append()
    assert lab.store.size > 0
    lab.now += 1000
    lab.store.expire(lab.now)
    assert lab.store.size == 0


def test_the_topic_written_least_recently_goes_first_though_one_had_several_in_a_row() -> None:
    lab = Lab(max_topics=2)
    for topic in ("a", "a", "b", "a", "a", "c"):
        lab.append(topic)
    assert lab.store.named(["a", "b", "c"]) == ["a", "c"]


def test_a_topic_whose_messages_are_not_kept_keeps_the_order_of_writing() -> None:
    lab = Lab(classes=[(["no"], Keep(0, 1000))], max_topics=2)
    for topic in ("yes", "no", "yes", "new"):
        lab.append(topic)
    assert sorted(lab.store.named(["yes", "no", "new"])) == ["new", "yes"]


def test_messages_of_the_topic_that_was_silent_longest_go_first_when_room_runs_out() -> None:
    lab = Lab()
    for topic in ("a", "b", "a"):
        lab.fill(1, topic)
    room = lab.store.size
    lab = Lab(max_bytes=room)
    for topic in ("a", "b", "a", "c"):
        lab.fill(1, topic)
    assert [len(lab.page(topic).messages) for topic in "abc"] == [2, 0, 1]


def test_an_id_is_known_though_its_message_was_never_kept() -> None:
    lab = Lab()
    first = lab.append(id="m", ttl=0)
    assert lab.append(id="m", ttl=0) == Published("m", first.timestamp, None, True)


def test_the_newest_ids_are_remembered_and_twice_as_many_at_most() -> None:
    lab = Lab(max_messages=1, ids=10)
    known: list[int] = []
    for number in range(100):
        lab.append(id=f"i{number}")
        known.append(len(lab.store._ids))
    assert max(known) == 20
    # The newest is in the log itself.
    assert all(isinstance(lab.append(id=f"i{number}"), Published) for number in range(89, 100))
    assert isinstance(lab.append(id="i70"), Entry)


def test_an_id_is_forgotten_in_time() -> None:
    lab = Lab(max_messages=1, ids_age=600)
    lab.append(id="m")
    lab.append()
    lab.now += 599_999
    assert isinstance(lab.append(id="m"), Published)
    lab.now += 1
    assert isinstance(lab.append(id="m"), Entry)
    lab.now += 1_200_000
    lab.store.expire(lab.now)
    lab.store.expire(lab.now + 600_000)
    assert len(lab.store._ids) == 0


def test_a_job_of_100_000_messages_that_is_repeated_after_a_day_publishes_nothing() -> None:
    lab = Lab(ids=125_000, ids_age=86_400)
    for number in range(100_000):
        lab.append(id=f"{number}", data=number)
    lab.now += 86_390_000
    again = [lab.append(id=f"{number}", data=number) for number in range(100_000)]
    assert all(isinstance(each, Published) and each.duplicate for each in again)
    assert lab.append(id="77", data=-1).code == "conflict"


# ---------------------------------------------------------------- classes of retention


def test_the_first_class_whose_pattern_matches_decides_what_a_log_keeps() -> None:
    classes = [(("jobs.*.rows", "jobs.all"), Keep(5, 60_000)), (("jobs.**",), Keep(3, 1_000))]
    lab = Lab(classes=classes, max_messages=2)
    for topic, kept in (("jobs.a.rows", 5), ("jobs.all", 5), ("jobs.b", 3), ("other", 2)):
        numbers = lab.fill(10, topic)
        assert [orjson.loads(body)["seq"] for body in lab.page(topic).messages] == numbers[-kept:]


def test_each_class_expires_after_its_own_time() -> None:
    classes = [(("long",), Keep(100, 60_000)), (("short",), Keep(100, 1_000))]
    lab = Lab(classes=classes, max_age=10)
    for topic in ("long", "short", "other"):
        lab.fill(1, topic)
    held: list[list[str]] = []
    for _ in range(3):
        held.append([t for t in ("long", "short", "other") if lab.page(t).messages])
        lab.store.expire(lab.now)
        lab.now += 5_000
    assert held == [["long", "short", "other"], ["long", "other"], ["long"]]
    assert len(lab.store) == 3
    lab.store.expire(lab.now)
    kept = lab.store.size
    lab.now += 60_000
    lab.store.expire(lab.now)
    assert (kept > 0, lab.store.size) == (True, 0)


def test_too_many_bytes_go_from_the_coldest_log_of_whatever_class() -> None:
    lab = Lab(classes=[(("long",), Keep(100, 10**9))], max_bytes=2_000)
    first = lab.fill(1, "long")
    lab.fill(20, "other", data="x" * 10)
    assert not lab.page("long").messages
    assert lab.page("long", after=first[0] - 1).truncated
    assert lab.store.size <= 2_000


# ---------------------------------------------------------------- pages behind a position


def test_a_page_says_whether_a_position_up_to_its_end_is_missing() -> None:
    lab = Lab(max_messages=6)
    numbers = lab.fill(4)
    lab.fill(1, ttl=1)
    numbers += [numbers[-1] + 1, *lab.fill(2)]
    lab.now += 1_000
    # Retained are the second to the fourth and the last two; one has expired, and one is trimmed.
    whole = lab.page(after=numbers[0], limit=3)
    assert (whole.truncated, whole.has_more) == (False, True)
    holed = lab.page(after=numbers[3], limit=3)
    assert [orjson.loads(body)["seq"] for body in holed.messages] == numbers[5:]
    assert (holed.truncated, holed.has_more, holed.position) == (True, False, numbers[-1])
    trimmed = lab.page(after=numbers[0] - 1, limit=3)
    assert trimmed.truncated
    assert orjson.loads(trimmed.messages[0])["seq"] == numbers[1]


def test_a_page_ends_at_a_number_of_bytes_but_has_at_least_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab()
    numbers = lab.fill(5, data="x" * 900)

    def found(page: Page) -> tuple[list[int], bool, bool]:
        positions = [orjson.loads(body)["seq"] for body in page.messages]
        return positions, page.has_more, page.truncated

    monkeypatch.setattr(replay_bounds, "PAGE_BYTES", 2_500)
    assert found(lab.page()) == (numbers[3:], True, False)
    assert found(lab.page(before="m4")) == (numbers[1:3], True, False)
    assert found(lab.page(after=0)) == (numbers[:2], True, False)
    assert found(lab.page(after=numbers[2])) == (numbers[3:], False, False)
    monkeypatch.setattr(replay_bounds, "PAGE_BYTES", 1)
    assert found(lab.page()) == (numbers[4:], True, False)
    assert found(lab.page(after=numbers[1], limit=9)) == (numbers[2:3], True, False)


def test_a_page_without_messages_ends_at_the_position_of_the_log() -> None:
    lab = Lab()
    numbers = lab.fill(3, ttl=1)
    lab.now += 1_000
    page = lab.page(after=numbers[0])
    assert (page.messages, page.truncated, page.position) == ([], True, numbers[-1])
    assert not lab.page(after=numbers[-1]).truncated


def test_position_0_is_before_all_and_no_position_of_another_log() -> None:
    lab = Lab(max_messages=2)
    lab.fill(2)
    assert (lab.page(after=0).truncated, lab.page(after=0).reset) == (False, False)
    assert lab.page(after=1).reset
    lab.fill(1)
    assert (lab.page(after=0).truncated, lab.page(after=0).reset) == (True, False)


# ---------------------------------------------------------------- replay


def test_nothing_is_replayed_without_a_request_but_positions_are_sent() -> None:
    lab = Lab()
    numbers = lab.fill(3)
    found = lab.replay("t", "unknown")
    assert seqs(found) == []
    assert found.positions == {"t": numbers[-1], "unknown": lab.now * SEQ_PER_MS - 1}


def test_a_log_starts_at_the_position_that_earlier_subscribers_received() -> None:
    lab = Lab()
    reported = lab.replay("t").positions["t"]
    lab.now += 5_000
    assert lab.replay("t").positions["t"] == reported
    assert lab.fill(1) == [reported + 1]
    assert seqs(lab.replay("t", after={"t": reported})) == [reported + 1]
    assert lab.replay("t", after={"t": reported}).reset == []


def test_a_lost_log_is_a_new_one_for_clients_that_subscribed_before_its_first_message() -> None:
    for topic in ("t", None):
        lab = Lab()
        reported = lab.replay("t").positions["t"]
        lab.now += 1
        lab.fill(1)
        lab.store.evict(topic, log_too=True)
        (next_,) = lab.fill(1)
        found = lab.replay("t", after={"t": reported})
        assert (seqs(found), found.reset) == ([next_], ["t"])


def test_a_topic_is_given_no_start_by_a_pattern_nor_where_a_position_is_known() -> None:
    lab = Lab()
    assert lab.replay("*").positions == {}
    assert lab.replay("t", after={"t": 1}).positions == {}


@pytest.mark.parametrize("pattern", ["t", "*"])
def test_a_position_that_a_new_log_would_not_exceed_is_of_another_numbering(pattern: str) -> None:
    lab = Lab()
    start = lab.now * SEQ_PER_MS
    assert lab.replay(pattern, after={"t": start - 1}).reset == []
    found = lab.replay(pattern, after={"t": start})
    assert found.reset == ["t"]
    assert found.positions == ({"t": start - 1} if pattern == "t" else {})


@pytest.mark.parametrize("pattern", ["t", "*"])
@pytest.mark.parametrize("origin", [0, 10**12])
def test_a_position_from_before_one_of_several_nodes_is_of_another(
    pattern: str, origin: int
) -> None:
    lab = Lab(origin=origin)
    first = NOW * SEQ_PER_MS + origin
    assert lab.replay(pattern, after={"t": first - 1}).reset == []
    found = lab.replay(pattern, after={"t": first - 2})
    assert found.reset == ["t"]
    assert found.positions == ({"t": first - 1} if pattern == "t" else {})


def test_a_position_is_of_the_node_that_stated_it_though_its_clock_is_set_back() -> None:
    lab = Lab(origin=10**12)
    lab.now -= 5_000
    positions = lab.replay("t").positions
    assert lab.replay("t", after=positions).reset == []


@pytest.mark.parametrize("pattern", ["t", "*"])
def test_a_position_from_before_a_single_node_is_of_a_lost_log(pattern: str) -> None:
    found = Lab().replay(pattern, after={"t": NOW * SEQ_PER_MS - 2})
    assert (found.reset, found.positions) == ([], {})


@pytest.mark.parametrize("seq", [NOW * SEQ_PER_MS + 10**12, 1])
def test_a_foreign_position_is_reported_only_of_topics_that_are_wanted_and_may_be_read(
    seq: int,
) -> None:
    lab = Lab(origin=10**12)
    marks = dict.fromkeys(("t", "s.open", "s.closed", "other"), seq)

    def is_open(topic: str) -> bool:
        return topic != "s.closed"

    assert lab.replay("t", "s.*", after=marks, allowed=is_open).reset == ["t", "s.open"]


def test_starts_are_bounded_as_logs_are() -> None:
    lab = Lab(max_topics=2)
    reported = [lab.replay(f"t{n}").positions[f"t{n}"] for n in range(3)]
    lab.now += 1
    assert lab.fill(1, "t0") != [reported[0] + 1]
    assert lab.fill(1, "t2") == [reported[2] + 1]


def test_since_is_strict() -> None:
    lab = Lab()
    numbers = lab.fill(5)
    assert seqs(lab.replay("t", since=NOW + 2)) == numbers[3:]
    assert seqs(lab.replay("t", since=NOW - 1)) == numbers


def test_a_sibling_in_the_same_millisecond_is_replayed_by_position() -> None:
    lab = Lab()
    one, two = lab.append().seq, lab.append().seq
    assert seqs(lab.replay("t", after={"t": one})) == [two]


def test_a_position_is_more_precise_than_a_time() -> None:
    lab = Lab()
    a, b = lab.fill(4, "a"), lab.fill(4, "b")
    found = lab.replay("a", "b", after={"a": a[2]}, since=0)
    assert [s for s in seqs(found) if s in a] == a[3:]
    assert [e.seq for e in found.entries if e.topic == "b"] == b


def test_only_the_newest_are_replayed_on_request() -> None:
    lab = Lab()
    a, b = lab.fill(5, "a"), lab.fill(5, "b")
    found = lab.replay("*", newest=2)
    assert seqs(found) == a[-2:] + b[-2:]
    assert found.truncated == []
    assert seqs(lab.replay("a", newest=0)) == []
    assert seqs(lab.replay("a", since=NOW + 2, newest=50)) == a[3:]


def test_a_log_that_does_not_reach_back_reports_it() -> None:
    lab = Lab(max_messages=3)
    numbers = lab.fill(6)
    assert lab.replay("t", after={"t": numbers[1]}).truncated == ["t"]
    assert lab.replay("t", after={"t": numbers[2]}).truncated == []
    assert lab.replay("t", since=NOW + 1).truncated == ["t"]
    assert lab.replay("t", since=NOW + 2).truncated == []
    assert lab.replay("t", newest=3).truncated == []


def test_a_reader_that_resumes_by_time_gets_a_message_that_was_stored_late() -> None:
    lab = Lab(max_messages=1)
    lab.now = NOW + 5
    late = lab.store.append(lab.draft(id="late"), ("user", "u"), lab.now, stamp=NOW)
    assert isinstance(late, Entry)
    assert late.timestamp == NOW
    assert seqs(lab.replay("t", since=NOW + 4)) == [late.seq]
    assert seqs(lab.replay("t", since=NOW + 5)) == []
    assert ids(lab.page(since=NOW + 4)) == ["late"]
    assert ids(lab.page(since=NOW + 5)) == []
    lab.append()
    assert lab.replay("t", since=NOW + 4).truncated == ["t"]
    assert lab.replay("t", since=NOW + 5).truncated == []


@pytest.mark.parametrize("kept", [0, 9])
def test_the_loss_of_a_message_that_was_stored_late_is_reported(kept: int) -> None:
    lab = Lab(max_messages=kept)
    lab.now = NOW + 5
    lab.store.append(lab.draft(ttl=1), ("user", "u"), lab.now, stamp=NOW)
    lab.now += 2_000
    assert lab.replay("t", since=NOW + 4).truncated == ["t"]
    assert lab.replay("t", since=NOW + 5).truncated == []


def test_a_gap_is_reported_after_an_older_message_has_left_the_log() -> None:
    lab = Lab(max_messages=2)
    lab.fill(2)
    lab.now = NOW + 100
    lab.store.break_off(["t"], lab.now)
    lab.append()
    assert lab.replay("t", since=NOW + 99).truncated == ["t"]
    assert lab.replay("t", since=NOW + 100).truncated == []


def test_a_gap_caused_by_a_short_ttl_is_reported() -> None:
    lab = Lab()
    first = lab.append()
    lab.append(ttl=1)
    last = lab.append()
    lab.now += 2_000
    found = lab.replay("t", after={"t": first.seq})
    assert (seqs(found), found.truncated) == ([last.seq], ["t"])
    assert lab.replay("t", since=NOW - 1).truncated == ["t"]


def test_a_gap_caused_by_a_limit_is_reported() -> None:
    lab = Lab()
    numbers = lab.fill(5)
    found = lab.replay("t", after={"t": numbers[0]}, newest=2)
    assert (seqs(found), found.truncated) == (numbers[-2:], ["t"])


def test_a_position_of_a_former_log_resets() -> None:
    lab = Lab()
    old = lab.fill(3)
    lab.store.evict("t", log_too=True)
    lab.now += 1000
    new = lab.fill(2)
    found = lab.replay("t", after={"t": old[-1]})
    assert (seqs(found), found.reset, found.truncated) == (new, ["t"], [])


def test_a_position_ahead_of_the_log_resets() -> None:
    lab = Lab()
    numbers = lab.fill(2)
    found = lab.replay("t", after={"t": numbers[-1] + 5})
    assert (seqs(found), found.reset) == (numbers, ["t"])


def test_nothing_missed_is_neither_truncated_nor_reset() -> None:
    lab = Lab(max_messages=1)
    numbers = lab.fill(5)
    found = lab.replay("t", after={"t": numbers[-1]})
    assert (seqs(found), found.truncated, found.reset) == ([], [], [])


def test_a_pattern_replays_what_may_be_read_in_order_of_time() -> None:
    lab = Lab()
    for topic in ("a.x", "b.x", "a.y", "a.x", "c", "a.y"):
        lab.append(topic)
        lab.now += 1

    def allowed(topic: str) -> bool:
        return topic != "a.y"

    found = lab.replay("a.*", "a.x", since=0, allowed=allowed)
    assert [entry.topic for entry in found.entries] == ["a.x", "a.x"]
    assert list(found.positions) == ["a.x"]
    everything = lab.replay("**", since=0)
    assert [e.timestamp for e in everything.entries] == [NOW + n for n in range(6)]


def test_a_replay_is_bounded_and_reports_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_bounds, "REPLAY_MESSAGES", 4)
    lab = Lab()
    lab.fill(3, "a")
    lab.fill(3, "b")
    found = lab.replay("*", since=0)
    assert [entry.topic for entry in found.entries] == ["a", "b", "b", "b"]
    assert found.truncated == ["a"]


# ---------------------------------------------------------------- pages


def test_pages_lead_back_to_the_first_message() -> None:
    lab = Lab()
    for number in range(7):
        lab.append(id=f"i{number}")
    page = lab.page(limit=3)
    assert (ids(page), page.has_more) == (["i4", "i5", "i6"], True)
    page = lab.page(limit=3, before="i4")
    assert (ids(page), page.has_more) == (["i1", "i2", "i3"], True)
    page = lab.page(limit=3, before="i1")
    assert (ids(page), page.has_more) == (["i0"], False)


def test_pages_before_a_position_lead_back_through_shared_ids() -> None:
    lab = Lab()
    numbers = [seq for n in range(6) for seq in lab.fill(1, id="same", sender=f"u{n}")]
    page = lab.page(limit=2, before=numbers[4])
    assert ([orjson.loads(b)["seq"] for b in page.messages], page.has_more) == (numbers[2:4], True)
    page = lab.page(limit=2, before=numbers[2])
    assert ([orjson.loads(b)["seq"] for b in page.messages], page.has_more) == (numbers[:2], False)
    for nothing in (0, numbers[0]):
        assert lab.page(before=nothing).messages == []


def test_a_page_before_a_message_that_is_gone_is_empty() -> None:
    lab = Lab(max_messages=2)
    for number in range(4):
        lab.append(id=f"i{number}")
    page = lab.page(before="i0")
    assert (ids(page), page.has_more) == ([], False)


def test_pages_lead_forward_from_a_position() -> None:
    lab = Lab()
    numbers = lab.fill(5)
    page = lab.page(after=numbers[0], limit=2)
    assert ([orjson.loads(b)["seq"] for b in page.messages], page.has_more) == (numbers[1:3], True)
    page = lab.page(after=numbers[2], limit=2)
    assert ([orjson.loads(b)["seq"] for b in page.messages], page.has_more) == (numbers[3:], False)
    assert page.position == numbers[-1]


def test_a_page_reports_a_gap() -> None:
    lab = Lab(max_messages=2)
    numbers = lab.fill(5)
    assert lab.page(after=numbers[0]).truncated
    assert not lab.page(after=numbers[2]).truncated
    assert lab.page(after=5).reset
    assert lab.page(since=NOW).truncated


def test_a_page_of_an_unknown_topic_is_empty() -> None:
    assert Lab().page("nothing") == Page((), False, None, False, False)


def test_reports_count_what_is_alive() -> None:
    lab = Lab(max_age=10)
    lab.append("a.x")
    lab.append("a.y", ttl=1)
    lab.append("b")
    lab.now += 2_000
    found = {r.topic: (r.messages, r.last_message_at) for r in lab.store.reports("a", lab.now, 9)}
    assert found == {"a.x": (1, NOW), "a.y": (0, NOW)}


# ---------------------------------------------------------------- against a list


@settings(deadline=None)
@given(st.data())
def test_any_reader_that_resumes_by_position_misses_nothing_unreported(data: st.DataObject) -> None:
    lab = Lab(max_messages=data.draw(st.integers(1, 6)), max_age=5)
    published: list[int] = []
    seen: list[int] = []
    mark: int | None = None
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["publish", "publish", "resume", "wait", "evict", "lose"]))
        if step == "publish":
            entry = lab.append(ttl=data.draw(st.sampled_from([None, 1, 2])))
            published.append(entry.seq)
        elif step == "wait":
            lab.now += data.draw(st.integers(0, 3_000))
        elif step == "evict":
            lab.store.evict("t")
        elif step == "lose":
            lab.store.evict("t", log_too=True)
        else:
            found = lab.replay("t", since=0) if mark is None else lab.replay("t", after={"t": mark})
            got = [e.seq for e in found.entries if e.seq is not None]
            missed = [s for s in published if s > (mark or 0) and s not in got]
            if missed and mark is not None and "t" in found.positions:
                assert found.truncated or found.reset
            seen += got
            mark = found.positions.get("t", mark)
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen)
