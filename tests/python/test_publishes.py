"""The publishes of a session alone; spec/traces and tests/simulation test whole sessions."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from hanzoai.pubsub.generated.wire import ErrorFrame, Publication, PublishedFrame, PublishFrame
from hanzoai.pubsub.session.ports import Context, Peer
from hanzoai.pubsub.session.publishes import MAX_PAUSE, Publishes
from hanzoai.pubsub.settings.session import SessionOptions
from tests.traces.effects import Acked, Effect, Rejected, Send, Settle, Unknown
from tests.traces.events import Publish, SendPolicy
from tests.traces.recorder import Log

FULL = Peer(plain=False, acks=True, resends=True)


class Rig:
    """Publishes with ports that write a log."""

    def __init__(self, messages: int, size: int) -> None:
        self.log = Log()
        options = SessionOptions(send_queue_messages=messages, send_queue_bytes=size)
        self.context = Context(options, self.log, lambda: 0.5)
        self.publishes = Publishes(self.context)

    def connect(self, peer: Peer) -> None:
        self.context.peer = peer
        self.publishes.connected()

    def lose(self) -> None:
        self.publishes.lost()
        self.context.peer = None


def publish(ref: int, size: int = 1, policy: SendPolicy = "error", **more: Any) -> Publish:
    return Publish(ref, (Publication(topic="a", data=1, id=f"m{ref}"),), size, policy, **more)


class Unmoved(OrderedDict[int, Any]):
    """A queue in which nothing changes its place."""

    def move_to_end(self, key: int, last: bool = True) -> None:
        raise AssertionError(f"{key} was moved")


def sent(out: list[Effect]) -> list[str | None]:
    return [
        effect.frame.ref
        for effect in out
        if isinstance(effect, Send) and isinstance(effect.frame, PublishFrame)
    ]


def test_a_newer_value_of_a_key_moves_no_other_publish() -> None:
    publishes = Rig(10, 100).publishes
    publishes._queue = Unmoved()
    for ref in range(1, 5):
        publishes.publish(publish(ref, policy="latest", key="k" if ref % 2 else "l"))
    publishes.publish(publish(5))
    publishes.publish(publish(6, policy="latest", key="k"))
    assert [entry.publish.ref for entry in publishes._queue.values()] == [6, 4, 5]
    assert publishes._queued == [3, 3]


def test_room_is_counted_in_messages_and_in_bytes() -> None:
    rig = Rig(2, 10)
    publishes = rig.publishes
    assert publishes.has_room(publish(9, size=1_000))
    publishes.publish(publish(1, size=9))
    assert publishes.has_room(publish(9, size=1))
    assert not publishes.has_room(publish(9, size=2))
    publishes.publish(publish(2, size=1))
    assert not publishes.has_room(publish(9, size=0))
    assert publishes._queued == [2, 10]


def test_every_publish_of_a_full_queue_under_latest_without_a_key_is_refused() -> None:
    rig = Rig(1, 10)
    publishes, out = rig.publishes, rig.log.entries
    publishes.publish(publish(1, policy="latest"))
    publishes.publish(publish(2, policy="latest"))
    assert isinstance(out[0], Settle)
    assert isinstance(out[0].outcome, Rejected)
    assert out[0].outcome.code == "queue_full"


def test_a_publish_takes_its_turn_when_it_is_within_the_bound_of_the_queue() -> None:
    rig = Rig(2, 100)
    publishes = rig.publishes
    for ref in range(1, 6):
        publishes.publish(publish(ref, policy="block", background=ref < 5))
    rig.connect(Peer(acks=True, resends=True, rate=1))
    for _ in range(100):
        for name in sent(rig.log.entries):
            publishes.published(PublishedFrame(ref=name))
        publishes.paced()
        publishes.flush()
    assert sent(rig.log.entries) == ["p1", "p2", "p3", "p5", "p4"]


def test_a_pause_has_a_limit() -> None:
    rig = Rig(10, 100)
    rig.connect(FULL)
    rig.publishes.pause(10**12)
    assert rig.context.timers.after("pace") == MAX_PAUSE


class Compared(int):
    """A ref that counts the comparisons with others."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return super().__eq__(other)

    __hash__ = int.__hash__


def test_a_publish_expires_without_a_search_among_those_that_wait() -> None:
    rig = Rig(1_000, 1_000)
    for ref in range(1, 1_000):
        rig.publishes.publish(publish(ref))
    rig.publishes.expire([Compared(999)])
    assert len(rig.publishes) == 998
    assert Compared.count < 10


def test_absurd_refs_match_no_publish() -> None:
    rig = Rig(10, 100)
    publishes = rig.publishes
    rig.connect(FULL)
    publishes.publish(publish(1))
    for ref in (None, "", "p", "p-1", "p1.9", "p1.0.0", "p٣", "p" + "9" * 60, "s1"):
        assert not publishes.published(PublishedFrame.model_construct(ref=ref))
    assert len(publishes) == 1


def test_nothing_is_left_after_the_end() -> None:
    rig = Rig(10, 100)
    publishes, out = rig.publishes, rig.log.entries
    rig.connect(FULL)
    publishes.publish(publish(1))
    rig.lose()
    publishes.publish(publish(2))
    out.clear()
    publishes.settle_all(Rejected(code="closed", message=""))
    assert out == [Settle(1, Unknown()), Settle(2, Rejected(code="closed", message=""))]
    assert (len(publishes), publishes._queued) == (0, [0, 0])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(["error", "drop_oldest", "latest"])),
        st.tuples(st.just("connect"), st.booleans()),
        st.tuples(st.just("lose"), st.none()),
        st.tuples(st.just("ack"), st.integers(1, 12)),
        st.tuples(st.just("limit"), st.integers(1, 12)),
        st.tuples(st.just("pace"), st.none()),
        st.tuples(st.just("expire"), st.integers(1, 12)),
    ),
    max_size=60,
)


@given(steps)
@example(
    [
        *[("publish", "error")] * 3,
        ("connect", False),
        ("limit", 1),
        ("publish", "drop_oldest"),
    ]
)
def test_each_publish_is_settled_once_and_counts_stay_true(script: list[tuple[str, Any]]) -> None:
    rig = Rig(3, 3)
    publishes, out = rig.publishes, rig.log.entries
    refs = 0
    limited: Counter[str] = Counter()
    connected = False
    for what, how in script:
        if what == "publish":
            refs += 1
            publishes.publish(publish(refs, policy=how, key="k" if refs % 2 else "l"))
        elif what == "connect" and not connected:
            connected = True
            rig.connect(Peer(acks=True, resends=how, rate=2))
        elif what == "lose" and connected:
            connected = False
            rig.lose()
        elif what == "ack" and connected:
            publishes.published(PublishedFrame(ref=f"p{how}"))
        elif what == "limit" and connected:
            ref = f"p{how}"
            limited[ref] += ref in publishes._flight
            publishes.pause(None)
            publishes.rejected(ErrorFrame(code="rate_limited", message="", ref=ref))
        elif what == "pace" and connected:
            publishes.paced()
            publishes.flush()
        elif what == "expire":
            publishes.expire([how])
        assert publishes._queued[0] == len(publishes._queue)
        assert publishes._flying[0] == len(publishes._flight) <= 3
        numbers = [entry.number for entry in publishes._queue.values()]
        assert numbers == sorted(numbers)
    publishes.lost()
    publishes.settle_all(Rejected(code="closed", message=""))
    settled = [effect.ref for effect in out if isinstance(effect, Settle)]
    assert sorted(settled) == list(range(1, refs + 1))
    never = {
        effect.ref
        for effect in out
        if isinstance(effect, Settle)
        and isinstance(effect.outcome, Rejected)
        and effect.outcome.code in ("dropped", "superseded", "queue_full")
    }
    # The client drops nothing that it has sent, unless the server has limited it each time.
    times = Counter(sent(out))
    assert all(times[f"p{ref}"] <= limited[f"p{ref}"] for ref in never)
    assert all(
        f"p{effect.ref}" in sent(out)
        for effect in out
        if isinstance(effect, Settle) and isinstance(effect.outcome, Acked)
    )
