"""Any events in any order: a session never raises, ends once, and releases everything."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hanzoai.pubsub.dialects.plain.plain_dialect import MAX_REQUESTS
from hanzoai.pubsub.generated.errors import CLOSE_CODES
from hanzoai.pubsub.generated.lifecycle import FINAL, TIMERS
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthExpiringFrame,
    AuthOkFrame,
    Denial,
    ErrorFrame,
    Limits,
    Message,
    MessageFrame,
    PongFrame,
    PresenceMember,
    PresenceSnapshotFrame,
    Publication,
    PublishedFrame,
    PublishFrame,
    PublishResult,
    SubscribedFrame,
    SubscribeFrame,
    UnsubscribedFrame,
    UnsubscribeFrame,
)
from hanzoai.pubsub.session import lifecycle, ports, session
from hanzoai.pubsub.session.cursor import Replay
from hanzoai.pubsub.session.events import SessionEvent
from hanzoai.pubsub.session.ports import StateChanged
from hanzoai.pubsub.session.routes import KNOWN_TOPICS, LIVE
from hanzoai.pubsub.settings.session import SessionOptions
from tests.traces import effects, events
from tests.traces.effects import Rejected, Settle
from tests.traces.events import EVENTS
from tests.traces.recorder import LoggedSession

if TYPE_CHECKING:
    from hanzoai.pubsub.session.cursor import Request

TOP = 2**53 - 1
topics = st.sampled_from(["a", "a.b", "c", "else.where"])
patterns = st.sampled_from(["a", "a.*", "**", "c", "secret"])
seqs = st.sampled_from([None, 0, 1, 2, 3, 4, 5, 9, 1000, TOP - 1, TOP])
times = st.sampled_from([0, 1, 1000, 20_000, TOP])
refs = st.sampled_from([None, "s1", "s2", "s3", "s9", "p1", "p2", "p1.0", "p", "u1", "m1", "x"])
codes = st.sampled_from(
    ["forbidden", "rate_limited", "unavailable", "token_expired", "internal", "made_up"]
)
waits = st.sampled_from([None, 0, 1, 10**9, TOP])
ids = st.sampled_from(["m1", "m2", "m3", "m4"])
kinds = st.sampled_from(["text", "presence.join", "presence.leave", "presence.update"])
members = st.builds(
    PresenceMember,
    client_id=ids,
    user_id=st.just("u"),
    name=st.just("n"),
    joined_at=times,
    last_seen=times,
)
envelopes = st.builds(
    Message,
    id=ids,
    topic=topics,
    type=kinds,
    data=st.sampled_from([None, {}, [], 1, {"client_id": "m1"}, {"member": 3}]),
    timestamp=times,
    ttl=st.sampled_from([None, 0, 1, TOP]),
    seq=seqs,
)
positions = st.dictionaries(topics, st.sampled_from([0, 1, 5, TOP]), max_size=3)
denials = st.builds(Denial, topic=patterns, code=codes)
results = st.builds(
    PublishResult,
    id=st.none() | ids,
    error=st.none() | st.just({"code": "rate_limited", "message": ""}),
)
frames = st.one_of(
    st.builds(
        AuthOkFrame,
        client_id=st.sampled_from(["c", "c" * 500]),
        version=st.sampled_from([None, 1]),
        features=st.sampled_from(
            [None, [], ["ref", "ack"], ["ref", "ack", "seq", "idempotency", "batch"], ["seq"]]
        ),
        expires_at=st.none() | times,
        server_time=st.none() | times,
        limits=st.none() | st.builds(Limits, publish_rate=st.sampled_from([None, 0, 1, TOP])),
    ),
    st.builds(AuthErrorFrame, code=codes, message=st.just(""), retry_after_ms=waits),
    st.builds(AuthExpiringFrame, expires_in=waits),
    st.builds(
        SubscribedFrame,
        topics=st.lists(patterns, max_size=2),
        history=st.none() | st.lists(envelopes, max_size=5),
        positions=st.none() | positions,
        timestamp=st.none() | times,
        truncated=st.none() | st.lists(topics, max_size=2),
        reset=st.none() | st.lists(topics, max_size=2),
        denied=st.none() | st.lists(denials, max_size=2),
        more=st.none() | st.booleans(),
        ref=refs,
    ),
    st.builds(UnsubscribedFrame, topics=st.lists(patterns), ref=refs),
    st.builds(MessageFrame, message=envelopes),
    st.builds(
        PublishedFrame,
        id=st.none() | ids,
        seq=seqs,
        results=st.none() | st.lists(results, max_size=3),
        ref=refs,
    ),
    st.builds(PresenceSnapshotFrame, topic=topics, members=st.lists(members, max_size=3)),
    st.builds(PongFrame),
    st.builds(
        ErrorFrame,
        code=codes,
        message=st.just(""),
        topic=st.none() | topics | patterns,
        retry_after_ms=waits,
        ref=refs,
    ),
)
closes = st.sampled_from([None, 0, 1000, 1006, 1008, 4401, 4403, 4500, 99_999])
publications = st.builds(Publication, topic=topics, data=st.none(), id=ids)
happenings = st.one_of(
    st.just(events.Connect()),
    st.builds(events.Token, fetch=st.integers(1, 3), value=st.just("t"), expires_in=waits),
    st.builds(
        events.TokenFailed, fetch=st.integers(1, 3), refused=st.booleans(), message=st.just("")
    ),
    st.builds(events.Opened, incremental=st.booleans()),
    st.builds(events.Dropped, code=closes, reason=st.just(""), retry_after=waits),
    st.builds(events.Probed, ok=st.booleans()),
    st.just(events.Woke()),
    st.builds(events.Received, frame=frames, at=times),
    st.builds(
        events.TimerFired,
        name=st.sampled_from([*TIMERS, "pace", "rejoin"]),
        idle=st.sampled_from([0, 10_000, 10**6]),
    ),
    st.builds(
        events.Subscribe,
        sub=st.integers(1, 3),
        topics=st.lists(patterns, min_size=1, max_size=3, unique=True).map(tuple),
        since=st.none() | times,
        history=st.sampled_from([None, 0, 2]),
        after=positions,
        presence=st.booleans(),
    ),
    st.builds(events.Unsubscribe, sub=st.integers(1, 4)),
    st.builds(
        events.Publish,
        ref=st.integers(1, 6),
        messages=st.lists(publications, min_size=1, max_size=3).map(tuple),
        size=st.sampled_from([0, 5, 10**9]),
        policy=st.sampled_from(["error", "drop_oldest", "latest"]),
        key=st.sampled_from([None, "k"]),
        batch=st.booleans(),
    ),
    st.builds(events.Expire, ref=st.integers(1, 6)),
    st.builds(
        events.UpdatePresence,
        topic=st.none() | topics,
        data=st.sampled_from([{}, {"s": None}]),
        ref=st.integers(7, 9),
    ),
)
usual: list[events.Event] = [
    events.Connect(),
    events.Subscribe(1, ("a.*", "a")),
    events.Token(1, "t"),
    events.Opened(incremental=True),
]
options = st.builds(
    SessionOptions,
    renewable=st.booleans(),
    transport=st.sampled_from(["auto", "websocket", "sse"]),
    held_messages=st.sampled_from([1, 100]),
    send_queue_messages=st.sampled_from([1, 100]),
    remembered_topics=st.sampled_from([1, 100]),
    remembered_ids=st.sampled_from([1, 100]),
)


class Watched:
    """A session whose effects are checked immediately."""

    def __init__(self, options: SessionOptions) -> None:
        self.session = LoggedSession(options, lambda: 0.5)
        self.timers: set[str] = set()
        self.fetches: set[int] = set()
        self.settled: Counter[int] = Counter()
        self.refs: set[int] = set()
        self.linked = False
        self.finished = 0

    def handle(self, event: Any) -> None:
        before = self.session.lifecycle.state
        if isinstance(event, events.TimerFired):
            self.timers.discard(event.name)
        if isinstance(event, events.Token | events.TokenFailed):
            self.fetches.discard(event.fetch)
        if isinstance(event, events.Dropped):
            self.linked = False
        if isinstance(event, events.Publish | events.UpdatePresence):
            if event.ref in self.refs:
                return
            self.refs.add(event.ref)
        produced = self.session.handle(event)
        if before in FINAL:
            assert self.session.lifecycle.state == before
            assert all(isinstance(e, Settle | effects.Joined) for e in produced)
        for effect in produced:
            assert not (self.finished and before not in FINAL), f"{effect} after the end"
            self._check(effect)
        if self.session.lifecycle.state in FINAL:
            assert self.finished == 1
            assert not self.timers
            assert not self.fetches
            assert not self.linked
            assert self.settled.keys() == self.refs
        assert all(times == 1 for times in self.settled.values())

    def _check(self, effect: Any) -> None:
        match effect:
            case effects.StartTimer(name, after):
                assert 0 <= after < 2**31
                self.timers.add(name)
            case effects.CancelTimer(name):
                self.timers.remove(name)
            case effects.Fetch(id):
                assert not self.fetches
                self.fetches.add(id)
            case effects.AbandonFetch(id):
                self.fetches.remove(id)
            case effects.Dial():
                assert not self.linked
                self.linked = True
            case effects.HangUp():
                assert self.linked
                self.linked = False
            case effects.Send():
                assert self.linked
            case Settle(ref):
                self.settled[ref] += 1
            case effects.Finished():
                self.finished += 1
            case effects.Gap(missed=missed):
                assert missed is None or missed > 0
            case _:
                pass


@given(options, st.booleans(), st.lists(happenings, max_size=60), st.booleans())
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_sequence_of_events_is_survived(
    options: SessionOptions, begun: bool, script: list[Any], abort: bool
) -> None:
    watched = Watched(options)
    for event in [*(usual if begun else []), *script]:
        watched.handle(event)
    if abort or watched.session.lifecycle.state == "initialized":
        watched.handle(events.Abort())
    else:
        watched.handle(events.Close())
        watched.handle(events.TimerFired("drain", 0))
        if watched.session.lifecycle.state not in FINAL:
            watched.handle(events.Abort())
    assert watched.session.lifecycle.state in FINAL


ok = AuthOkFrame(
    client_id="c", version=1, features=["ref", "ack", "seq", "idempotency", "batch", "resume"]
)


@given(options, st.lists(happenings, max_size=60))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_sequence_of_events_after_a_connection_is_survived(
    options: SessionOptions, script: list[Any]
) -> None:
    watched = Watched(options)
    for event in [*usual, events.Received(ok, 1000), *script, events.Abort()]:
        watched.handle(event)
    assert watched.session.lifecycle.state in FINAL


def connected(**options: Any) -> LoggedSession:
    session = LoggedSession(SessionOptions(**options), lambda: 0.5)
    for event in [*usual, events.Received(ok, 1000)]:
        session.handle(event)
    return session


@pytest.mark.parametrize("code", [*range(1000, 1016), *range(3000, 3005), *range(4000, 4600), None])
def test_each_close_code_has_the_effect_of_the_table(code: int | None) -> None:
    session = connected()
    if code == 4409:
        # The first one may belong to a connection that the client has already lost.
        session.handle(events.Dropped(code, "closed"))
        assert session.lifecycle.state == "waiting"
        for event in [events.TimerFired("retry", 0), *usual[-1:], events.Received(ok, 1000)]:
            session.handle(event)
    session.handle(events.Dropped(code, "closed"))
    action = next(
        (row.action for row in CLOSE_CODES if code and row.first <= code <= row.last), "retry"
    )
    assert session.lifecycle.state == ("failed" if action == "stop" else "waiting")
    session.handle(events.TimerFired("retry", 0))
    after = {"stop": "failed", "reauth": "resolving", "retry": "dialing"}[action]
    assert str(session.lifecycle.state) == after


def test_the_delay_fits_full_jitter_with_the_servers_delay_as_minimum() -> None:
    for unit in (0.0, 0.25, 0.999999):
        session = LoggedSession(SessionOptions(), lambda unit=unit: unit)  # type: ignore[misc]
        for event in [*usual, events.Received(ok, 1000)]:
            session.handle(event)
        outage = 0
        for attempt in range(40):
            floor = 700 if attempt % 2 else None
            [changed] = [
                effect
                for effect in session.handle(events.Dropped(1006, "", floor))
                if isinstance(effect, effects.StateChanged)
            ]
            bound = min(30_000, 1_000 * 2**attempt, max(2_000, outage**2 // 160_000))
            expected = max(floor or 0, int(unit * bound))
            outage += expected
            assert (changed.retry_in, changed.attempt) == (expected, attempt + 1)
            session.handle(events.TimerFired("retry", 0))


def test_a_message_costs_one_delivery_and_no_timer() -> None:
    session = connected()
    answer = SubscribedFrame(topics=["a.*", "a"], ref="s1", positions={}, timestamp=1)
    session.handle(events.Received(answer, 1))
    for seq in range(1, 50):
        message = Message(id=f"m{seq}", topic="a", type="t", data=1, timestamp=1, seq=seq)
        produced = session.handle(events.Received(MessageFrame(message=message), 1))
        assert produced == [effects.Deliver(1, message)]


@example(run=[("a", 1, "t"), ("a", 3, "t"), ("a", 4, "t"), ("a.b", 1, "t")])
@given(
    run=st.lists(
        st.tuples(
            st.sampled_from(["a", "a.b", "x"]),
            st.none() | st.integers(1, 6),
            st.sampled_from(["t", "t", "t", "presence.leave"]),
        ),
        max_size=12,
    )
)
def test_messages_together_have_the_effects_of_single_ones(
    run: list[tuple[str, int | None, str]],
) -> None:
    together, single = connected(), connected()
    answer = SubscribedFrame(topics=["a.*", "a"], ref="s1", positions={"a": 0}, timestamp=1)
    messages = [
        Message(id=f"m{n}", topic=topic, type=type, data=1, timestamp=n, seq=seq)
        for n, (topic, seq, type) in enumerate(run)
    ]
    for one in (together, single):
        one.handle(events.Received(answer, 1))
        one.log.entries.clear()
    together.messages(messages)
    for message in messages:
        single.messages([message])
    again = SubscribedFrame(topics=["a.*", "a"], ref="s2", positions={"a": 0}, timestamp=1)
    for one in (together, single):
        one.handle(events.Received(again, 1))  # ends the hold after a hole
    assert together.log.entries == single.log.entries
    assert next_request(together) == next_request(single)


def next_request(session: LoggedSession) -> Request:
    """The start of the next request of subscription 1."""
    return session.subscriptions.all[1].cursor.request()


def test_a_subscription_begins_and_ends_without_a_look_at_the_others() -> None:
    session = connected()
    for other in session.subscriptions.all.values():
        del other.patterns
    session.subscribe(ports.Subscribe(2, ("c",), presence=True))
    session.handle(events.Received(SubscribedFrame(topics=["c"], ref="s2", timestamp=1), 1))
    session.log.entries.clear()
    session.unsubscribe(2)
    assert session.log.entries == [effects.Send(UnsubscribeFrame(topics=["c"], ref="u3"))]


def test_the_next_request_begins_at_the_positions_of_the_answer() -> None:
    session = connected()
    answer = SubscribedFrame(topics=["a.*", "a"], ref="s1", positions={"a": 7}, timestamp=1)
    session.handle(events.Received(answer, 1))
    assert next_request(session).after == {"a": 7}


def test_routes_are_bounded_and_forgotten_with_their_subscription() -> None:
    session = connected()
    for n in range(10_000):
        message = Message(id="m", topic=f"x.{n}", type="t", data=1, timestamp=1)
        session.handle(events.Received(MessageFrame(message=message), 1))
    assert 0 < len(session.subscriptions.routes.known) <= KNOWN_TOPICS
    session.handle(events.Unsubscribe(1))
    assert not session.subscriptions.routes.known
    assert len(session.subscriptions.routes._trie) == 0


def test_no_token_shows_in_repr() -> None:
    session = connected()
    session.handle(events.Received(AuthExpiringFrame(), 1))
    produced = session.handle(events.Token(2, "very-secret"))
    event = SessionEvent(token="very-secret")
    shown = repr((produced, event, session.lifecycle.credentials))
    assert "very-secret" not in shown
    assert any(isinstance(effect, effects.Send) for effect in produced)


def test_every_kind_of_event_and_effect_is_listed() -> None:
    def classes(module: Any) -> set[type]:
        return {
            v
            for v in vars(module).values()
            if isinstance(v, type) and v.__module__ == module.__name__
        }

    requests = {ports.Publish, ports.Subscribe}
    assert classes(events) == set(EVENTS) - requests
    assert requests <= set(EVENTS)
    assert classes(effects) == set(effects.EFFECTS) - {StateChanged}


def test_publishing_after_the_end_is_refused() -> None:
    session = connected()
    session.handle(events.Abort())
    message = Publication(topic="a", data=1, id="m1")
    [settle] = session.handle(events.Publish(1, (message,), 1))
    assert isinstance(settle, Settle)
    assert isinstance(settle.outcome, Rejected)
    assert settle.outcome.code == "closed"
    assert session.handle(events.Connect()) == []


def test_the_core_imports_no_clock_socket_or_random_generator() -> None:
    for module in (session, lifecycle):
        source = inspect.getsource(module)
        assert not re.findall(
            r"^\s*(?:import|from) (asyncio|time|random|logging|httpx|websockets)", source, re.M
        )


def test_a_publish_frame_carries_the_ref_of_its_publish() -> None:
    session = connected()
    message = Publication(topic="a", data=1, id="m1")
    [sent] = session.handle(events.Publish(7, (message,), 1))
    assert isinstance(sent, effects.Send)
    assert isinstance(sent.frame, PublishFrame)
    assert sent.frame.ref == "p7"


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "given up"])
def test_batches_sent_one_by_one_are_forgotten_when_they_end(answered: bool) -> None:
    session = LoggedSession(SessionOptions(), lambda: 0.5)
    lesser = AuthOkFrame(client_id="c", version=1, features=["ref", "ack", "seq", "idempotency"])
    for event in [*usual, events.Received(lesser, 1000)]:
        session.handle(event)
    pair = tuple(Publication(topic="a", type="t", data=n, id=f"m{n}") for n in range(2))
    for ref in range(MAX_REQUESTS + 1):
        session.handle(events.Publish(ref, pair, 10, batch=True))
        if answered:
            for slot in range(2):
                session.handle(events.Received(PublishedFrame(ref=f"p{ref}.{slot}"), 1))
        else:
            session.handle(events.Expire(ref))
    dialect = session.log.dialect
    assert dialect is not None
    assert len(dialect._batches) <= 1


def test_a_subscription_releases_the_answer_of_the_server_after_its_last_part() -> None:
    session = connected()
    session.handle(events.Subscribe(9, ("new",)))
    ref, state = session.subscriptions.requests.copy().popitem()
    for more in (True, None):
        frame = SubscribedFrame(topics=["new"], positions={"new": 3}, ref=ref, more=more)
        session.handle(events.Received(frame, 1))
    assert state.request.sub == 9
    assert state.phase == LIVE
    assert state.replay == Replay()


def test_each_answer_counts_for_any_number_of_requests_in_transit() -> None:
    session = LoggedSession(SessionOptions(), lambda: 0.5)
    hello = AuthOkFrame(client_id="c", version=1, features=["ref", "ack", "seq"])
    count = MAX_REQUESTS + 2
    opening: list[events.Event] = [
        events.Connect(),
        events.Token(1, "t"),
        events.Opened(incremental=True),
        events.Received(hello, 1),
    ]
    for event in opening:
        session.handle(event)
    refs: list[str | None] = []
    for number in range(count):
        for effect in session.handle(events.Subscribe(number, (f"a.t{number}",))):
            if isinstance(effect, effects.Send):
                assert isinstance(effect.frame, SubscribeFrame)
                refs.append(effect.frame.ref)
    joined = [
        effect.sub
        for number, ref in enumerate(refs)
        for effect in session.handle(
            events.Received(SubscribedFrame(topics=[f"a.t{number}"], positions={}, ref=ref), 1)
        )
        if isinstance(effect, effects.Joined)
    ]
    assert joined == list(range(count))
