"""The outbox by itself; what a whole session makes of it is in spec/traces and tests/simulation."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.generated.wire import ErrorFrame, Publication, PublishedFrame, PublishFrame
from hanzoai.pubsub.session.effects import Acked, Effect, Rejected, Send, Settle, Unknown
from hanzoai.pubsub.session.events import Publish, SendPolicy
from hanzoai.pubsub.session.outbox import MAX_PAUSE, Outbox
from hanzoai.pubsub.session.peer import Peer

FULL = Peer(plain=False, ref=True, ack=True, seq=True, idempotent=True, batch=True)


def publish(ref: int, size: int = 1, policy: SendPolicy = "error", **more: Any) -> Publish:
    return Publish(ref, (Publication(topic="a", data=1, id=f"m{ref}"),), size, policy, **more)


def sent(out: list[Effect]) -> list[str | None]:
    return [
        effect.frame.ref
        for effect in out
        if isinstance(effect, Send) and isinstance(effect.frame, PublishFrame)
    ]


def test_a_second_publish_of_a_ref_is_not_taken() -> None:
    outbox, out = Outbox(10, 100, 100), list[Effect]()
    outbox.publish(publish(1), out)
    outbox.publish(publish(1), out)
    assert len(outbox) == 1
    assert out == []


def test_room_is_counted_in_messages_and_in_bytes() -> None:
    outbox, out = Outbox(2, 10, 100), list[Effect]()
    assert outbox.has_room(1, 1_000)
    outbox.publish(publish(1, size=9), out)
    assert outbox.has_room(1, 1)
    assert not outbox.has_room(1, 2)
    outbox.publish(publish(2, size=1), out)
    assert not outbox.has_room(1, 0)
    assert (outbox.messages, outbox.bytes) == (2, 10)


def test_every_publish_of_a_full_queue_under_latest_without_a_key_is_refused() -> None:
    outbox, out = Outbox(1, 10, 100), list[Effect]()
    outbox.publish(publish(1, policy="latest"), out)
    outbox.publish(publish(2, policy="latest"), out)
    assert isinstance(out[0], Settle)
    assert isinstance(out[0].outcome, Rejected)
    assert out[0].outcome.code == "queue_full"


def test_a_pause_has_a_limit() -> None:
    outbox, out = Outbox(10, 100, 100), list[Effect]()
    outbox.connected(FULL, out)
    outbox.publish(publish(1), out)
    outbox.failed(ErrorFrame(code="rate_limited", message="", ref="p1", retry_after_ms=10**12), out)
    assert outbox.take_pace() == MAX_PAUSE
    assert outbox.take_pace() is None


def test_absurd_refs_are_nobodys() -> None:
    outbox, out = Outbox(10, 100, 100), list[Effect]()
    outbox.connected(FULL, out)
    outbox.publish(publish(1), out)
    for ref in (None, "", "p", "p-1", "p1.9", "p1.0.0", "p٣", "p" + "9" * 60, "s1"):
        assert not outbox.published(PublishedFrame.model_construct(ref=ref), out)
    assert len(outbox) == 1


def test_nothing_is_left_after_the_end() -> None:
    outbox, out = Outbox(10, 100, 100), list[Effect]()
    outbox.connected(FULL, out)
    outbox.publish(publish(1), out)
    outbox.lost(out)
    outbox.publish(publish(2), out)
    out.clear()
    outbox.settle_all(Rejected("closed", ""), out)
    assert out == [Settle(1, Unknown()), Settle(2, Rejected("closed", ""))]
    assert (len(outbox), outbox.messages, outbox.bytes) == (0, 0, 0)


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
def test_each_publish_is_settled_once_and_counts_stay_true(script: list[tuple[str, Any]]) -> None:
    outbox, out = Outbox(3, 3, 100), list[Effect]()
    refs = 0
    connected = False
    for what, how in script:
        if what == "publish":
            refs += 1
            outbox.publish(publish(refs, policy=how, key="k" if refs % 2 else "l"), out)
        elif what == "connect" and not connected:
            connected = True
            outbox.connected(Peer(ref=True, ack=True, idempotent=how, rate=2), out)
            outbox.flush(out)
        elif what == "lose" and connected:
            connected = False
            outbox.lost(out)
        elif what == "ack" and connected:
            outbox.published(PublishedFrame(ref=f"p{how}"), out)
        elif what == "limit" and connected:
            outbox.failed(ErrorFrame(code="rate_limited", message="", ref=f"p{how}"), out)
        elif what == "pace":
            outbox.paced(out)
        elif what == "expire":
            outbox.expire(how, out)
        assert outbox.messages == len(outbox._queue)
        assert outbox._flying[0] == len(outbox._flight) <= 3
        assert len(outbox._queue) + len(outbox._flight) == len(outbox)
        assert [e.number for e in outbox._queue.values()] == sorted(outbox._queue)
    outbox.settle_all(Rejected("closed", ""), out)
    settled = [effect.ref for effect in out if isinstance(effect, Settle)]
    assert sorted(settled) == list(range(1, refs + 1))
    never = {
        effect.ref
        for effect in out
        if isinstance(effect, Settle)
        and isinstance(effect.outcome, Rejected)
        and effect.outcome.code in ("dropped", "superseded", "queue_full")
    }
    assert not never & {int((ref or "p0")[1:]) for ref in sent(out)}
    assert all(
        f"p{effect.ref}" in sent(out)
        for effect in out
        if isinstance(effect, Settle) and isinstance(effect.outcome, Acked)
    )
