"""The driver, between a scripted session and a scripted transport."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from itertools import groupby
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.errors import AuthError, PermissionDenied, ProtocolError, PubSubError
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthFrame,
    AuthOkFrame,
    Denial,
    ErrorFrame,
    ErrorInfo,
    Message,
    MessageFrame,
    PingFrame,
    PongFrame,
    Publication,
    PublishedFrame,
    PublishResult,
    Sender,
    SubscribedFrame,
)
from hanzoai.pubsub.runtime.driver import Driver
from hanzoai.pubsub.runtime.inbox import Inbox
from hanzoai.pubsub.session.ports import Peer, Rejected, read_peer
from hanzoai.pubsub.session.session import Session
from hanzoai.pubsub.settings.options import ReceiveQueue, read_options
from hanzoai.pubsub.testing import VirtualClock
from hanzoai.pubsub.transports import TransportClosed, TransportFailed
from hanzoai.pubsub.values import Gap, PresenceChange, StateChange
from hanzoai.pubsub.wire.codec import Malformed, Unknown
from tests.traces import effects, events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from hanzoai.pubsub.generated.wire import ClientFrame, ServerFrame
    from hanzoai.pubsub.session.ports import Ports
    from hanzoai.pubsub.settings.session import SessionOptions
    from hanzoai.pubsub.transports import Incoming, Receiver
    from hanzoai.pubsub.values import TokenContext
    from tests.traces.effects import Effect
    from tests.traces.events import Event


class ScriptedSession(Session):
    """Answers each call with the port calls that the test has prepared."""

    def __init__(self, options: SessionOptions, ports: Ports, random: Callable[[], float]) -> None:
        super().__init__(options, ports, random)
        self.ports = ports
        self.messages = self.receive_messages
        self.incremental = True
        self.seen: list[Event] = []
        self.wait: int | None = None
        self.answers: dict[type[Event], deque[list[Effect]]] = {}
        self.on: Callable[[Event], list[Effect]] | None = None

    def receive_messages(self, messages: Sequence[Message]) -> None:
        for one in messages:
            self.receive(MessageFrame(message=one), 0)

    def published(self, frame: PublishedFrame) -> None:
        self.receive(frame, 0)

    def answer(self, kind: type[Event], *answer: Effect) -> None:
        self.answers.setdefault(kind, deque()).append(list(answer))

    def step(self, event: Event) -> None:
        self.seen.append(event)
        if self.on is not None:
            answer = self.on(event)
        else:
            waiting = self.answers.get(type(event))
            answer = waiting.popleft() if waiting else []
        for key, run in groupby(answer, lambda effect: getattr(effect, "sub", None)):
            together = list(run)
            messages = [one.message for one in together if isinstance(one, effects.Deliver)]
            if key is not None and 1 < len(messages) == len(together):
                self.ports.deliver(key, messages, True)
            else:
                for effect in together:
                    perform(self.ports, effect)

    def connect(self, *, opened: bool = False) -> None:
        self.step(events.Connect(opened))

    def close(self, wait: int | None = None) -> None:
        self.wait = wait
        self.step(events.Close())

    def abort(self) -> None:
        self.step(events.Abort())

    def woke(self) -> None:
        self.step(events.Woke())

    def token(self, call: int, token: str, expires_in: int | None = None) -> None:
        self.step(events.Token(call, token, expires_in))

    def token_failed(self, call: int, message: str, *, refused: bool) -> None:
        self.step(events.TokenFailed(call, refused, message))

    def opened(self, *, incremental: bool) -> None:
        self.incremental = incremental
        self.step(events.Opened(incremental))

    def dropped(self, code: int | None, message: str, retry_after_ms: int | None = None) -> None:
        self.step(events.Dropped(code, message, retry_after_ms))

    def probed(self, *, ok: bool) -> None:
        self.step(events.Probed(ok))

    def receive(self, frame: ServerFrame, at: int) -> None:
        if isinstance(frame, AuthOkFrame):
            self.ports.welcomed(read_peer(frame, at, incremental=self.incremental))
        self.step(events.Received(frame, at))

    def answered(self, *, ok: bool) -> None:
        self.step(events.Answered(ok))

    def offline(self) -> None:
        self.step(events.Offline())

    def timer_fired(self, name: events.TimerName, idle: int) -> None:
        self.step(events.TimerFired(name, idle))

    def unsubscribe(self, sub: int) -> None:
        self.step(events.Unsubscribe(sub))

    def publish(self, request: events.Publish) -> None:
        self.step(request)

    def update_presence(self, topic: str | None, data: Mapping[str, object], ref: int) -> None:
        self.step(events.UpdatePresence(topic, data, ref))


def perform(ports: Ports, effect: Effect) -> None:
    """Call the port's method for an effect."""
    match effect:
        case effects.StateChanged():
            ports.state_changed(effect)
        case effects.Fetch(id, reason, attempt):
            ports.fetch_token(id, reason, attempt)
        case effects.AbandonFetch(id):
            ports.abandon_fetch(id)
        case effects.Dial(transport):
            ports.dial(transport)
        case effects.HangUp(code):
            ports.hang_up(code)
        case effects.Send(frame):
            ports.send(frame)
        case effects.StartTimer(name, after):
            ports.start_timer(name, after)
        case effects.CancelTimer(name):
            ports.cancel_timer(name)
        case effects.Probe():
            ports.probe()
        case effects.ProbeHttp(auth):
            ports.probe(auth)
        case effects.Deliver(sub, message):
            ports.deliver(sub, [message])
        case effects.Gap(sub, topic, from_, to, missed, why):
            ports.gap(sub, Gap(topic, from_, to, missed, why))
        case effects.Joined(sub, topics, denied):
            ports.joined(sub, topics, denied)
        case effects.PresenceChanged(sub, topic, members, change, member):
            ports.presence_changed(sub, PresenceChange(topic, members, change, member))
        case effects.Settle(ref, outcome):
            ports.settle(ref, outcome)
        case effects.Problem(code, message, topic, retry_after):
            ports.problem(
                Rejected(code=code, message=message, topic=topic, retry_after_ms=retry_after)
            )
        case effects.Finished(error):
            ports.finished(error)


class ScriptedTransport:
    incremental = True
    largest: float = math.inf

    def __init__(self, clock: VirtualClock) -> None:
        self.last_received = clock.now()
        self.sent: list[ClientFrame] = []
        self.closed: list[int] = []
        self.opening: Exception | None = None
        self.receiver: Receiver | None = None
        self.paused = True
        self.incoming: deque[Sequence[Incoming] | TransportClosed | ZeroDivisionError] = deque()

    async def open(self, receiver: Receiver) -> None:
        if self.opening is not None:
            raise self.opening
        self.receiver = receiver

    def send(self, frame: ClientFrame) -> None:
        self.sent.append(frame)

    def put(self, *items: Sequence[Incoming] | TransportClosed | ZeroDivisionError) -> None:
        self.incoming += items
        while self.incoming and not self.paused:
            assert self.receiver is not None
            item = self.incoming.popleft()
            if isinstance(item, TransportClosed):
                self.receiver.ended(item)
            elif isinstance(item, ZeroDivisionError):
                raise item
            else:
                self.receiver.frames(item)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.put()

    async def close(self, code: int = 1000) -> None:
        self.closed.append(code)


def end(event: Event) -> list[Effect]:
    return [effects.HangUp(1000), effects.Finished(None)]


class Rig:
    def __init__(self, **options: object) -> None:
        self.clock = VirtualClock()
        self.transports: list[ScriptedTransport] = []
        self.prepared: deque[ScriptedTransport] = deque()
        self.changes: list[StateChange] = []
        self.opened: set[str] = set()
        self.errors: list[tuple[Exception, str | None]] = []
        given = {"token": "secret", **options}
        read = read_options("ws://127.0.0.1/ws", **given)  # type: ignore[arg-type]
        environment: Any = SimpleNamespace(
            clock=self.clock,
            random=lambda: 0.5,
            dial=self.dial,
            prepare_fallback=self.prepare_fallback,
            opened=self.opened,
            url=None,
        )
        self.driver = Driver(read, environment, None, None, make_session=ScriptedSession)
        listeners: Any = self.driver.listeners
        listeners.notify, listeners.report = self.notify, self.report
        assert isinstance(self.driver.session, ScriptedSession)
        self.session = self.driver.session

    def notify(self, change: StateChange) -> None:
        self.changes.append(change)
        self.driver.listeners.waiters.notify()

    def report(self, error: Exception, topic: str | None) -> None:
        self.errors.append((error, topic))

    def dial(self, name: str, options: object) -> ScriptedTransport:
        made = self.prepared.popleft() if self.prepared else ScriptedTransport(self.clock)
        self.transports.append(made)
        return made

    async def prepare_fallback(self, options: object) -> None:
        """All modules are loaded."""

    async def dialed(self) -> ScriptedTransport:
        self.session.answer(events.Connect, effects.Dial("websocket"))
        self.driver.connect()
        self.driver.failures.state = "connected"
        await self.clock.settle()
        return self.transports[-1]

    def wake(self) -> None:
        self.driver.call(self.session.woke)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.session.seen if type(event) is kind]

    def inbox(self, sub: int = 1, **bounds: object) -> Inbox:
        inbox = Inbox(("a",), ReceiveQueue(**bounds), lambda: None)  # type: ignore[arg-type]
        self.driver.deliveries.add(sub, inbox)
        return inbox


@pytest.fixture
async def rig() -> AsyncGenerator[Rig]:
    rig = Rig()
    yield rig
    rig.session.on = end
    if not rig.driver.is_finished:
        async with asyncio.timeout(60):
            await rig.driver.close(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("hanzoai")]
    assert rig.clock.pending == 0


def message(seq: int) -> MessageFrame:
    envelope = Message(id=f"m{seq}", topic="a", type="t", data=seq, timestamp=1, seq=seq)
    return MessageFrame(message=envelope)


def deliver(event: Event) -> list[Effect]:
    if isinstance(event, events.Received) and isinstance(event.frame, MessageFrame):
        return [effects.Deliver(1, event.frame.message)]
    return []


OLD_TOKEN = f"{'header' * 20}.payload.old"
NEW_TOKEN = f"{'header' * 20}.payload.new"


def quoting(token: str) -> list[ServerFrame]:
    """A frame of each kind in which a server explains itself."""
    words = f"{token} is ({token}), not {token[:40]}…"
    error = ErrorInfo(code="odd", message=words, remedy=words)
    return [
        ErrorFrame(code="odd", message=words, remedy=words),
        AuthErrorFrame(code="odd", message=words),
        SubscribedFrame(
            topics=["a"], denied=[Denial(topic="b", code="odd", message=words)], history=[]
        ),
        PublishedFrame(ref="p1", results=[PublishResult(id="m1"), PublishResult(error=error)]),
    ]


async def test_texts_of_a_server_do_not_quote_the_tokens_of_the_connection(rig: Rig) -> None:
    transport = await rig.dialed()
    for token in (OLD_TOKEN, NEW_TOKEN, NEW_TOKEN):
        rig.driver.send(AuthFrame(token=f"Bearer {token}"))
        for told in (OLD_TOKEN, token):
            rig.session.seen.clear()
            transport.put(quoting(told))
            await rig.clock.settle()
            frames = [event.frame for event in rig.session.seen if type(event) is events.Received]
            hidden = str([frame.wire() for frame in quoting(told)]).replace(told, "[token]")
            assert str([frame.wire() for frame in frames]) == hidden


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (f"no {OLD_TOKEN}, {NEW_TOKEN}.", "no [token], [token]."),
        (f"no Bearer {OLD_TOKEN}"[:123], "no Bearer [token]"),
        (f"no Bearer {OLD_TOKEN[:16]}", "no Bearer [token]"),
        (f"no {OLD_TOKEN[:15]}", f"no {OLD_TOKEN[:15]}"),
    ],
)
async def test_a_close_reason_does_not_quote_the_tokens_of_the_connection(
    rig: Rig, reason: str, told: str
) -> None:
    transport = await rig.dialed()
    for token in (OLD_TOKEN, NEW_TOKEN):
        rig.driver.send(AuthFrame(token=f"Bearer {token}"))
    transport.put(TransportClosed(4999, reason))
    await rig.clock.settle()
    assert rig.of(events.Dropped) == [events.Dropped(4999, told)]


async def test_effects_are_performed_in_order(rig: Rig) -> None:
    transport = await rig.dialed()
    ping = PingFrame()
    rig.session.answer(
        events.Woke,
        effects.Send(ping),
        effects.Send(ping),
        effects.HangUp(4000),
        effects.Send(ping),
    )
    rig.wake()
    await rig.clock.settle()
    assert transport.sent == [ping, ping]
    assert transport.closed == [4000]


async def test_an_error_of_the_server_is_reported_with_its_remedy(rig: Rig) -> None:
    problem = Rejected(
        code="odd", message="words", remedy="Do this.", topic="a.b", retry_after_ms=500
    )
    rig.driver.problem(problem)
    ((error, topic),) = rig.errors
    assert isinstance(error, PubSubError)
    assert (error.code, error.remedy, error.retry_after, topic) == ("odd", "Do this.", 0.5, "a.b")


async def test_an_event_that_arrives_while_another_is_handled_waits(rig: Rig) -> None:
    order: list[str] = []

    def handle(event: Event) -> list[Effect]:
        order.append(f"in {type(event).__name__}")
        if isinstance(event, events.Connect):
            return [effects.Fetch(7, "connect", 0), effects.Problem("odd", "words")]
        if isinstance(event, events.Token):
            assert (event.fetch, event.value) == (7, "secret")
        return []

    rig.session.on = handle
    rig.driver.connect()
    order.append("out")
    assert order == ["in Connect", "in Token", "out"]
    ((error, topic),) = rig.errors
    assert isinstance(error, PubSubError)
    assert (error.code, topic) == ("odd", None)


async def test_a_transport_reports_its_opening_and_its_end_with_code_and_delay(rig: Rig) -> None:
    transport = await rig.dialed()
    assert rig.of(events.Opened) == [events.Opened(incremental=True)]
    transport.put(TransportClosed(1013, "busy", 2.5))
    await rig.clock.settle()
    assert rig.of(events.Dropped) == [events.Dropped(1013, "busy", 2_500)]
    assert transport.closed == [1000]


@pytest.mark.parametrize(
    ("told", "code", "reason", "expected"),
    [
        ("going_away", 1001, "going_away", "It moves."),
        ("going_away", 1001, "The connection was closed.", "It moves."),
        ("later_code", 4999, "later_code", "It moves."),
        ("internal", 1001, "going_away", "The server is shutting down."),
        ("going_away", None, "The connection was lost.", "The connection was lost."),
        (None, 1001, "going_away", "The server is shutting down."),
        (None, 1001, "Upgrade to version 7.", "Upgrade to version 7."),
    ],
)
async def test_the_reason_of_an_end_is_the_error_before_it_or_the_meaning_of_a_bare_code(
    rig: Rig, told: str | None, code: int | None, reason: str, expected: str
) -> None:
    transport = await rig.dialed()
    if told is not None:
        rig.driver.problem(Rejected(code=told, message="It moves."))
    transport.put(TransportClosed(code, reason))
    assert rig.of(events.Dropped) == [events.Dropped(code or 1006, expected, None)]


async def test_an_error_explains_the_end_of_its_own_connection_only(rig: Rig) -> None:
    transport = await rig.dialed()
    rig.driver.problem(Rejected(code="going_away", message="It moves."))
    rig.session.answer(events.Dropped, effects.Dial("websocket"))
    transport.put(TransportClosed(1001, "going_away"))
    await rig.clock.settle()
    rig.transports[-1].put(TransportClosed(1001, "going_away"))
    assert rig.of(events.Dropped) == [
        events.Dropped(1001, "It moves.", None),
        events.Dropped(1001, "The server is shutting down.", None),
    ]


async def test_an_unparseable_frame_is_reported_as_an_error(rig: Rig) -> None:
    transport = await rig.dialed()
    transport.put([Malformed("not UTF-8"), Unknown("later")])
    ((error, topic),) = rig.errors
    assert isinstance(error, ProtocolError)
    assert (error.message, topic) == ("A frame of the server was skipped: not UTF-8.", None)


async def test_a_frame_reaches_the_session_within_the_call_that_brings_it(rig: Rig) -> None:
    transport = await rig.dialed()
    transport.put([PongFrame(), PongFrame()])
    assert len(rig.of(events.Received)) == 2


async def test_a_transport_that_does_not_open_is_reported(rig: Rig) -> None:
    failing = ScriptedTransport(rig.clock)
    failing.opening = TransportFailed(4403, "The server answered with HTTP 403.")
    rig.prepared.append(failing)
    await rig.dialed()
    dropped = events.Dropped(4403, "The server answered with HTTP 403.", None)
    assert rig.of(events.Dropped) == [dropped]


async def test_an_unexpected_exception_ends_the_connection_and_not_the_client(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    transport = await rig.dialed()

    def fail(event: Event) -> list[Effect]:
        if isinstance(event, events.Received):
            raise ZeroDivisionError("a bug")
        return []

    rig.session.on = fail
    with caplog.at_level(logging.ERROR, logger="hanzoai.pubsub"):
        transport.put([PongFrame()])
        await rig.clock.settle()
    (dropped,) = rig.of(events.Dropped)
    assert isinstance(dropped, events.Dropped)
    assert dropped.code == 1006
    assert caplog.records


async def test_an_unexpected_exception_after_a_pause_ends_the_connection_too(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    transport = await rig.dialed()
    with caplog.at_level(logging.ERROR, logger="hanzoai.pubsub"):
        transport.put([PongFrame()] * 64, ZeroDivisionError("a bug"))
        assert transport.paused
        await rig.clock.settle()
    assert [type(event) for event in rig.of(events.Dropped)] == [events.Dropped]
    assert caplog.records


async def test_after_hanging_up_nothing_of_that_transport_is_reported(rig: Rig) -> None:
    transport = await rig.dialed()
    rig.session.answer(events.Received, effects.HangUp(1000))
    transport.put([PongFrame(), PongFrame(), PongFrame()])
    await rig.clock.settle()
    transport.put(TransportClosed(1006, "late"))
    await rig.clock.settle()
    assert len(rig.of(events.Received)) == 1
    assert not rig.of(events.Dropped)


async def test_timers_restart_stop_and_report_the_idle_time(
    rig: Rig,
) -> None:
    transport = await rig.dialed()
    rig.session.answer(
        events.Woke,
        effects.StartTimer("ping", 1_000),
        effects.StartTimer("pong", 500),
        effects.CancelTimer("pong"),
        effects.StartTimer("ping", 2_000),
    )
    rig.wake()
    await rig.clock.advance(1.5)
    assert not rig.of(events.TimerFired)
    transport.last_received = rig.clock.now()
    await rig.clock.advance(1)
    assert rig.of(events.TimerFired) == [events.TimerFired("ping", 500)]


async def test_many_messages_of_one_read_are_handled_in_one_go_and_wake_the_reader_once(
    rig: Rig,
) -> None:
    transport = await rig.dialed()
    inbox = rig.inbox()
    rig.session.on = deliver
    woken = 0

    async def wait() -> None:
        nonlocal woken
        while True:
            await inbox.wait()
            woken += 1

    waiting = asyncio.create_task(wait())
    await rig.clock.settle()
    tasks = len(asyncio.all_tasks())
    transport.put([message(seq) for seq in range(50)])
    await rig.clock.settle()
    assert (woken, inbox.stats().received) == (1, 50)
    assert len(asyncio.all_tasks()) == tasks
    waiting.cancel()


@pytest.mark.parametrize("together", [False, True])
async def test_the_reader_yields_before_a_small_queue_overflows(rig: Rig, together: bool) -> None:
    transport = await rig.dialed()
    inbox = rig.inbox(messages=3)
    rig.session.on = deliver
    taken: list[int] = []

    async def read() -> None:
        while True:
            while (entry := inbox.take()) is not None:
                assert isinstance(entry, Message)
                taken.append(entry.data)
            await inbox.wait()

    reading = asyncio.create_task(read())
    run = [message(seq).message for seq in range(500)]
    apart: list[Incoming] = [MessageFrame(message=one) for one in run]
    transport.put([run] if together else apart)
    await rig.clock.settle()
    assert taken == list(range(500))
    reading.cancel()


@pytest.mark.parametrize("kind", ["gap", "presence"])
@pytest.mark.parametrize("separate", [False, True])
async def test_more_gaps_or_changes_at_once_than_fit_do_not_end_a_queue_that_is_read(
    rig: Rig, kind: str, separate: bool
) -> None:
    transport = await rig.dialed()
    inbox = rig.inbox(messages=3, policy="error")
    reader = inbox
    if separate and kind == "presence":
        reader = inbox.presence = rig.inbox(2, messages=3, policy="error")

    def other(event: Event) -> list[Effect]:
        if not isinstance(event, events.Received):
            return []
        if kind == "gap":
            return [effects.Gap(1, "a", None, None, None, "slow_consumer")]
        return [effects.PresenceChanged(1, "a", (), "snapshot", None)]

    rig.session.on = other
    taken = 0

    async def read() -> None:
        nonlocal taken
        while True:
            while reader.take() is not None:
                taken += 1
            await reader.wait()

    reading = asyncio.create_task(read())
    transport.put([message(seq) for seq in range(500)])
    await rig.clock.settle()
    assert (taken, inbox.error, reader.error) == (500, None, None)
    reading.cancel()


async def test_while_a_program_holds_up_the_reading_silence_is_not_counted(rig: Rig) -> None:
    transport = await rig.dialed()
    inbox = rig.inbox(messages=2, policy="block")
    rig.session.on = deliver
    transport.put([message(seq) for seq in range(10)])
    await rig.clock.settle()
    assert inbox.stats().queued == 2
    rig.session.on = None
    rig.session.answer(events.Woke, effects.StartTimer("pong", 60_000))
    rig.wake()
    await rig.clock.advance(60)
    assert rig.of(events.TimerFired) == [events.TimerFired("pong", 0)]
    rig.session.on = deliver
    taken = 0
    while taken < 10:
        while inbox.take() is not None:
            taken += 1
        await rig.clock.settle()
    assert not transport.incoming


async def test_gaps_and_messages_of_one_event_keep_their_order(rig: Rig) -> None:
    inbox = rig.inbox()
    rig.session.answer(
        events.Woke,
        effects.Deliver(1, message(1).message),
        effects.Deliver(1, message(2).message),
        effects.Gap(1, "a", 3, 4, 2, "history_trimmed"),
        effects.Deliver(1, message(5).message),
    )
    rig.wake()
    got = [inbox.take() for _ in range(4)]
    assert [entry.data if isinstance(entry, Message) else entry for entry in got] == [
        1, 2, Gap("a", 3, 4, 2, "history_trimmed"), 5,
    ]  # fmt: skip


async def test_a_subscription_of_which_nothing_is_granted_ends(rig: Rig) -> None:
    inbox = rig.inbox()
    rig.session.answer(events.Woke, effects.Joined(1, (), (Denial(topic="a", code="forbidden"),)))
    rig.wake()
    assert isinstance(inbox.error, PermissionDenied)
    rig.driver.unsubscribe(1)
    assert not rig.of(events.Unsubscribe)


async def test_own_messages_are_kept_back_where_echo_is_off() -> None:
    rig = Rig(echo=False)
    inbox = rig.inbox()
    rig.driver.deliveries.remember_own([Publication(topic="a", data=2, id="m2")], 0)
    rig.session.answer(
        events.Woke, *(effects.Deliver(1, message(seq).message) for seq in range(1, 4))
    )
    rig.wake()
    taken = [inbox.take() for _ in range(2)]
    assert [entry.data for entry in taken if isinstance(entry, Message)] == [1, 3]
    others = (Publication(topic="a", data=None, id=f"other{n}") for n in range(10_001))
    rig.driver.deliveries.remember_own(others, 0)
    rig.session.answer(events.Woke, effects.Deliver(1, message(2).message))
    rig.wake()
    assert inbox.take() is not None


@pytest.mark.parametrize(
    ("resends", "user", "sender", "kept_back"),
    [
        (True, "ann", "bob", False),
        (True, "ann", "ann", True),
        (True, "ann", None, True),
        (True, None, "bob", True),
        (False, "ann", "bob", True),
    ],
)
async def test_with_echo_off_a_server_that_tracks_ids_by_sender_tells_own_messages_apart(
    resends: bool, user: str | None, sender: str | None, kept_back: bool
) -> None:
    rig = Rig(echo=False)
    inbox = rig.inbox()
    rig.driver.deliveries.remember_own([Publication(topic="a", data=2, id="m2")], 0)
    rig.driver.welcomed(Peer(resends=resends, user_id=user))
    who = None if sender is None else Sender(type="user", id=sender)
    frame = message(2).message.model_copy(update={"sender": who})
    rig.session.answer(events.Woke, effects.Deliver(1, frame))
    rig.wake()
    assert (inbox.take() is None) == kept_back


async def test_states_that_look_alike_are_one_change(rig: Rig) -> None:
    rig.session.answer(
        events.Woke,
        effects.StateChanged("initialized", "resolving"),
        effects.StateChanged("resolving", "dialing"),
        effects.StateChanged("dialing", "waiting", 1006, "lost", 500, 1),
    )
    rig.wake()
    assert [change.to for change in rig.changes] == ["connecting", "reconnecting"]
    assert rig.changes[-1] == StateChange("connecting", "reconnecting", 1006, "lost", 0.5, 1)
    assert rig.driver.failures.state == "reconnecting"


async def test_the_features_announced_by_the_server_are_known(rig: Rig) -> None:
    transport = await rig.dialed()
    transport.put([AuthOkFrame(client_id="c1", version=1, features=["ref", "ack", "seq"])])
    await rig.clock.settle()
    assert rig.driver.peer is not None
    assert rig.driver.peer.client_id == "c1"
    assert (rig.driver.peer.acks, rig.driver.peer.plain) == (True, False)


async def test_a_probe_opens_a_websocket_beside_and_closes_it(rig: Rig) -> None:
    await rig.dialed()
    good, bad = ScriptedTransport(rig.clock), ScriptedTransport(rig.clock)
    bad.opening = TransportFailed(None, "no")
    for transport, ok in ((good, True), (bad, False)):
        rig.prepared.append(transport)
        rig.session.answer(events.Woke, effects.Probe())
        rig.wake()
        await rig.clock.settle()
        assert rig.of(events.Probed)[-1] == events.Probed(ok)
        assert transport.closed


async def test_a_callback_is_asked_answered_failed_and_abandoned() -> None:
    asked: list[TokenContext] = []
    outcome: list[object] = []
    hold = asyncio.Event()

    async def get_token(context: TokenContext) -> object:
        asked.append(context)
        if context.attempt == 2:
            await hold.wait()
        result = outcome.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    rig = Rig(token=None, get_token=get_token)
    for fetch, result in ((1, "good"), (2, OSError("secret")), (3, None)):
        outcome.append(result)
        rig.session.answer(events.Woke, effects.Fetch(fetch, "rejected", fetch - 1))
        rig.wake()
        await rig.clock.settle()
    assert asked[0].reason == "rejected"
    assert rig.of(events.Token) == [events.Token(1, "good", None)]
    (failed,) = rig.of(events.TokenFailed)
    assert isinstance(failed, events.TokenFailed)
    assert (failed.fetch, failed.refused) == (2, False)
    assert failed.message.startswith("get_token raised OSError in test_driver.py, line ")
    assert isinstance(rig.errors[0][0], AuthError)
    rig.session.answer(events.Woke, effects.AbandonFetch(3))
    rig.wake()
    hold.set()
    await rig.clock.settle()
    assert len(rig.of(events.Token)) == len(rig.of(events.TokenFailed)) == 1
    rig.session.on = end
    await rig.driver.close(0)


async def test_waking_from_sleep_is_noticed_and_only_that(rig: Rig) -> None:
    await rig.dialed()
    await rig.clock.advance(300)
    assert not rig.of(events.Woke)
    await rig.clock.machine_sleeps(4)
    await rig.clock.advance(5)
    assert not rig.of(events.Woke)
    await rig.clock.machine_sleeps(60)
    await rig.clock.advance(5)
    assert len(rig.of(events.Woke)) == 1


async def test_close_asks_first_and_a_close_without_time_does_not(rig: Rig) -> None:
    rig.session.answer(events.Close, effects.StartTimer("drain", 2_000))
    rig.session.answer(events.TimerFired, effects.Finished(None))
    closing = asyncio.create_task(rig.driver.close(2))
    await rig.clock.advance(1.9)
    assert rig.session.wait == 2_000
    assert not closing.done()
    await rig.clock.advance(0.1)
    async with asyncio.timeout(60):
        await closing
    assert rig.of(events.TimerFired) == [events.TimerFired("drain", 0)]
    other = Rig()
    other.session.answer(events.Abort, effects.Finished(None))
    async with asyncio.timeout(60):
        await other.driver.close(0)
    assert other.of(events.Abort)


async def test_the_end_reaches_every_subscription_with_its_error(rig: Rig) -> None:
    inbox = rig.inbox()
    rig.session.answer(
        events.Woke, effects.Finished(effects.Rejected(code="forbidden", message="not you"))
    )
    rig.wake()
    assert isinstance(inbox.error, PermissionDenied)
    assert rig.driver.is_finished
    assert rig.driver.error is inbox.error
    assert not await rig.driver.connected(60)


async def test_a_task_that_ignores_its_cancellation_is_left_behind_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    release = asyncio.Event()

    async def stubborn() -> None:
        for _ in range(2):
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    task = rig.driver.spawn(stubborn(), "handlers")
    await asyncio.sleep(0)
    rig.session.answer(events.Abort, effects.Finished(None))
    closing = asyncio.create_task(rig.driver.close(0))
    await rig.clock.settle()
    async with asyncio.timeout(60):
        await closing
    assert "handlers" in caplog.text
    assert not task.done()
    release.set()
    await task


class Unanswered(ScriptedTransport):
    """Its server does not answer the close."""

    async def close(self, code: int = 1000) -> None:
        self.closed.append(code)
        await asyncio.get_running_loop().create_future()


async def ends(rig: Rig, closing: asyncio.Task[float]) -> None:
    """Wait for a close that needs no more time; end one that does."""
    try:
        async with asyncio.timeout(10):
            await asyncio.shield(closing)
    finally:
        await rig.clock.advance(60)
        await closing


async def test_close_takes_no_longer_than_its_time_when_the_server_answers_nothing(
    rig: Rig,
) -> None:
    rig.prepared.append(Unanswered(rig.clock))
    transport = await rig.dialed()
    rig.session.answer(events.Close, effects.StartTimer("drain", 2_000))
    rig.session.answer(events.TimerFired, effects.HangUp(1000), effects.Finished(None))
    closing = asyncio.create_task(rig.driver.close(2))
    await rig.clock.advance(2)
    await ends(rig, closing)
    assert transport.closed == [1000]


async def test_a_close_that_has_settled_everything_waits_for_the_close_frame_within_its_timeout(
    rig: Rig,
) -> None:
    rig.prepared.append(Unanswered(rig.clock))
    await rig.dialed()
    rig.session.answer(events.Close, effects.HangUp(1000), effects.Finished(None))
    closing = asyncio.create_task(rig.driver.close(2))
    await rig.clock.advance(1.9)
    assert not closing.done()
    await rig.clock.advance(0.1)
    await ends(rig, closing)


async def test_a_probe_of_http_uses_the_token_of_the_client_and_accepts_a_rejection_as_an_answer(
    rig: Rig,
) -> None:
    auth = AuthFrame(token="t")
    answers: list[tuple[ServerFrame | TransportClosed, bool]] = [
        (AuthOkFrame(client_id="c"), True),
        (AuthErrorFrame(code="token_expired", message="old"), True),
        (AuthErrorFrame(code="unsupported", message="what?"), False),
        (TransportClosed(None, "There is neither /v1/session nor /v1/subscribe."), False),
    ]
    for answer, ok in answers:
        transport = ScriptedTransport(rig.clock)
        transport.put(answer if isinstance(answer, TransportClosed) else [answer])
        rig.prepared.append(transport)
        rig.session.answer(events.Offline, effects.ProbeHttp(auth))
        rig.driver.call(rig.session.offline)
        await rig.clock.settle()
        assert transport.sent == [auth]
        assert transport.closed
        assert rig.of(events.Answered)[-1] == events.Answered(ok)


async def test_a_websocket_that_has_worked_is_known_to_later_clients_of_the_process(
    rig: Rig,
) -> None:
    transport = await rig.dialed()
    assert rig.of(events.Connect) == [events.Connect(opened=False)]
    transport.put([AuthOkFrame(client_id="c")])
    await rig.clock.settle()
    later = Rig()
    later.opened |= rig.opened
    await later.dialed()
    assert later.of(events.Connect) == [events.Connect(opened=True)]
    later.session.on = end
    await later.driver.close(0)


async def test_a_probe_ends_with_its_client(rig: Rig) -> None:
    await rig.dialed()
    rig.session.answer(events.Offline, effects.ProbeHttp(AuthFrame(token="t")))
    rig.driver.call(rig.session.offline)
    await rig.clock.settle()
    rig.session.on = end
    closing = asyncio.create_task(rig.driver.close(2))
    async with asyncio.timeout(60):
        await closing
    assert rig.transports[-1].closed
