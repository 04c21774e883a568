"""The test helpers for programs: TEST-1."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import (
    ConnectionFailed,
    Gap,
    InvalidOption,
    InvalidPayload,
    Message,
    PermissionDenied,
    PubSub,
    PubSubClient,
    PubSubError,
    ReceiveQueue,
    UsageError,
)
from hanzoai.pubsub.testing import MemoryServer, ThreadedServer, VirtualClock, dev_token

if TYPE_CHECKING:
    from pathlib import Path

    from hanzoai.pubsub import StateChange

pytest_plugins = ["pytester"]


# ---------------------------------------------------------------- TEST-1


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)


@pytest.mark.usefixtures("no_sockets")
async def test_test_1_a_reconnect_with_loss_is_tested_in_fifteen_lines_without_a_socket() -> None:
    async with MemoryServer() as server:
        ps = server.client()
        sub = await ps.subscribe("chat.1")
        with server.refusing():  # the network is down
            await server.publish("chat.1", {"data": "lost"})
            server.forget_history()
        await server.clock.advance_until(lambda: ps.state == "connected")
        await server.publish("chat.1", {"data": "hello again"})
        events = sub.events()
        gap = await anext(events)
        assert isinstance(gap, Gap)
        message = await anext(events)
        assert isinstance(message, Message)
        assert message.data == "hello again"


async def test_the_history_has_every_message_of_several_senders_with_the_same_ids() -> None:
    async with MemoryServer() as server:
        for user in ("ann", "bob"):
            ps = server.client(server.token(user))
            for n in range(4):
                await ps.publish("chat.1", {"data": f"{user} {n}"}, id=f"order-{n}")
        whole = [f"{user} {n}" for user in ("ann", "bob") for n in range(4)]
        for size in (2, 3, 4):
            ps = server.client(history_page=size)
            assert [message.data async for message in ps.history("chat.1")] == whole


def test_test_1_a_user_needs_only_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        """
        import pytest
        from hanzoai.pubsub import PubSub, PubSubClient

        async def shout(ps):
            async for message in ps.subscribe("in"):
                await ps.publish("out", {"data": message.data.upper()})

        async def test_it_shouts(pubsub_memory):
            import asyncio
            async with PubSubClient(pubsub_memory.url, pubsub_memory.token("me")) as ps:
                out = await ps.subscribe("out")
                task = asyncio.create_task(shout(ps))
                await pubsub_memory.clock.settle()
                await pubsub_memory.publish("in", {"data": "hi"})
                assert (await anext(out)).data == "HI"
                await out.unsubscribe()
                task.cancel()

        @pytest.mark.pubsub_server(history_max_messages=2)
        def test_a_real_server(pubsub_server):
            with PubSub(token=pubsub_server.service_token(), **pubsub_server.options) as ps:
                for n in range(5):
                    ps.publish("dev.x", {"data": n})
                assert [m.data for m in ps.history("dev.x")] == [3, 4]
                assert pubsub_server.running.stats.published == 5

        def test_another_server(pubsub_server):
            with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
                assert list(ps.history("dev.x")) == []
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_one_server_may_serve_a_whole_session(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\npubsub_server_scope = session"
    )
    pytester.makepyfile(
        """
        seen = []

        def test_one(pubsub_server):
            seen.append(pubsub_server.ws)

        def test_two(pubsub_server):
            assert seen == [pubsub_server.ws]
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


# ---------------------------------------------------------------- the clock


async def test_timers_fire_in_the_order_of_their_times_with_tasks_run_in_between() -> None:
    clock = VirtualClock(start_ms=1_000)
    order: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        order.append(f"{name} {clock.now():g}")
        await clock.sleep(0.5)
        order.append(f"{name} {clock.now():g}")

    tasks = [asyncio.create_task(sleeper("a", 2)), asyncio.create_task(sleeper("b", 1))]
    clock.call_later(3, lambda: order.append("never")).cancel()
    assert clock.pending == 0
    await clock.advance(2.25)
    assert order == ["b 1", "b 1.5", "a 2"]
    assert clock.wall_ms() == 3_250
    assert clock.pending == 1
    await clock.advance(1)
    assert order[-1] == "a 2.5"
    await asyncio.gather(*tasks)


async def test_waiting_until_something_happens_says_how_long_it_took_or_gives_up() -> None:
    clock = VirtualClock()
    done: list[int] = []
    clock.call_later(7, lambda: done.append(1))
    assert await clock.advance_until(lambda: done) == 7
    with pytest.raises(AssertionError, match="virtual seconds"):
        await clock.advance_until(lambda: False)
    clock.call_later(100, lambda: None)
    with pytest.raises(AssertionError, match="10 virtual seconds"):
        await clock.advance_until(lambda: False, limit=10)


async def test_timers_that_start_each_other_endlessly_are_detected() -> None:
    from hanzoai.pubsub.testing import clock as module

    clock = VirtualClock()

    def again() -> None:
        clock.call_later(0, again)

    again()
    limit, module._AT_ONCE = module._AT_ONCE, 100  # type: ignore[misc]
    try:
        with pytest.raises(AssertionError, match="without any time passing"):
            await clock.settle()
    finally:
        module._AT_ONCE = limit  # type: ignore[misc]


# ---------------------------------------------------------------- the memory server


async def test_a_server_its_clock_and_its_clients_show_the_address_in_memory() -> None:
    server = MemoryServer()
    assert repr(server) == "<MemoryServer not running>"
    async with server:
        assert repr(server) == f"<MemoryServer {server.url}>"
        assert repr(server.clock).startswith("<VirtualClock now=0 pending=")
        ps = PubSubClient(server.url, "t")
        assert (ps.url, repr(ps)) == (server.url, f"<PubSubClient {server.url} initialized>")


async def test_a_wrong_argument_of_a_helper_is_named(pubsub_memory: MemoryServer) -> None:
    wrong: Any = "srvice"
    with pytest.raises(InvalidOption, match="Did you mean `service`"):
        pubsub_memory.token("a", kind=wrong)
    with pytest.raises(InvalidOption, match="Did you mean `service`"):
        dev_token("a", kind=wrong)
    with pytest.raises(InvalidPayload, match="The message is str, not a mapping"):
        await pubsub_memory.publish("a.b", wrong)
    for seconds in (-1, wrong):
        with pytest.raises(InvalidOption, match="`seconds` is"):
            await pubsub_memory.clock.advance(seconds)
    await pubsub_memory.clock.advance(timedelta(minutes=1))
    assert pubsub_memory.clock.now() == 60


async def test_the_server_shows_what_clients_sent_without_their_tokens(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client(pubsub_memory.token("alice"))
    await ps.publish("a.b", {"data": 1})
    kinds = [frame["type"] for frame in pubsub_memory.received]
    assert kinds == ["auth", "publish"]
    assert pubsub_memory.received[0]["token"] == "..."
    assert pubsub_memory.stats.published == 1
    assert list(pubsub_memory.attempts) == ["websocket"]


async def test_a_test_makes_tokens_and_decides_when_they_expire(
    pubsub_memory: MemoryServer,
) -> None:
    clock = pubsub_memory.clock
    assert isinstance(clock, VirtualClock)
    changes: list[StateChange] = []
    ps = pubsub_memory.client(pubsub_memory.token("alice", ttl=10), on_state=changes.append)
    await ps.connect()
    await clock.advance(15)
    assert ps.state == "failed"
    other = pubsub_memory.client()
    await other.connect()
    pubsub_memory.expire_tokens()
    pubsub_memory.cut()
    await clock.advance(60)
    assert other.state == "failed"
    with pytest.raises(PubSubError):
        await pubsub_memory.client("made-up").connect()


async def test_a_subscription_to_thousands_of_topics_is_answered_before_what_was_sent_behind_it(
    pubsub_memory: MemoryServer,
) -> None:
    for number in range(2_100):
        await pubsub_memory.publish(f"a.{number}", {"data": number})
    ps = pubsub_memory.client()
    await ps.connect()
    room = ReceiveQueue(messages=3_000)
    async with asyncio.timeout(60), ps.subscribe("a.*", history=1, queue=room) as sub:
        published = await ps.publish("a.0", {"data": "behind"})
        seen = [(await anext(sub)).id for _ in range(2_101)]
    assert seen[-1] == published.id
    assert len(set(seen)) == 2_101


async def test_a_frozen_server_answers_nothing_and_then_everything(
    pubsub_memory: MemoryServer,
) -> None:
    clock = pubsub_memory.clock
    assert isinstance(clock, VirtualClock)
    ps = pubsub_memory.client()
    await ps.connect()
    with pubsub_memory.frozen():
        publish = asyncio.create_task(ps.publish("a.b", {"data": 1}))
        await clock.advance(5)
        assert not publish.done()
    assert (await publish).seq is not None


async def test_a_server_refuses_with_code_and_reason(pubsub_memory: MemoryServer) -> None:
    clock = pubsub_memory.clock
    assert isinstance(clock, VirtualClock)
    ps = pubsub_memory.client()
    with pubsub_memory.refusing(1013, "too busy"):
        connecting = asyncio.create_task(ps.connect(timeout=2))
        await clock.advance(2)
        with pytest.raises(ConnectionFailed, match=r"too busy \(1013\)"):
            await connecting


async def test_a_server_that_is_not_running_raises_a_clear_error() -> None:
    server = MemoryServer()
    with pytest.raises(UsageError, match="not running"):
        server.token()
    async with server:
        assert server.url.startswith("memory://")
        assert await server.start() is server
    with pytest.raises(UsageError, match="not running"):
        await server.publish("a.b", {"data": 1})


def test_a_server_that_starts_outside_of_asyncio_names_the_fixture_to_change() -> None:
    starting = MemoryServer().start()
    with pytest.raises(UsageError, match="let the fixture `anyio_backend` return") as caught:
        starting.send(None)  # as trio runs it
    assert caught.value.code == "wrong_loop"


async def test_a_missing_server_package_is_reported_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("pubsub_server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "hanzoai.pubsub.testing.hub", raising=False)
    monkeypatch.setitem(sys.modules, "pubsub_server", None)
    with pytest.raises(UsageError, match="not installed") as caught:
        await MemoryServer().start()
    assert "[server]" in caught.value.remedy
    with pytest.raises(UsageError, match="not installed"):
        ThreadedServer()


async def test_a_program_that_publishes_sees_its_bad_messages_refused(
    pubsub_memory: MemoryServer,
) -> None:
    with pytest.raises(PubSubError):
        await pubsub_memory.publish("a.*", {"data": 1})


# ---------------------------------------------------------------- the server in a thread


def test_a_server_in_a_thread_has_tokens_faults_and_an_inside(
    pubsub_server: ThreadedServer,
) -> None:
    assert pubsub_server.token("bob") != pubsub_server.service_token()
    assert pubsub_server.call(lambda: 7) == 7

    async def later() -> int:
        await asyncio.sleep(0)
        return 8

    assert pubsub_server.call(later) == 8
    faults: Any = pubsub_server.faults
    assert faults is not None
    pubsub_server.stop()


async def test_the_server_in_memory_answers_and_long_polls_positions() -> None:
    async with asyncio.timeout(60), MemoryServer() as server, server.client() as ps:
        first = await ps.publish("demo.x", {"data": 1})
        assert first.seq is not None
        (stand,) = (await ps.positions("demo.*")).positions
        assert (stand.topic, stand.first, stand.last) == ("demo.x", first.seq, first.seq)
        waiting = asyncio.create_task(ps.positions("demo.*", after={"demo.x": first.seq}, wait=30))
        await ps.publish("demo.y", {"data": 2})
        assert [each.topic for each in (await waiting).positions] == ["demo.x", "demo.y"]


async def test_claims_of_a_token_satisfy_the_rules_of_a_file(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        """
        rules:
          - pattern: "owned.<id>"
            require: {session_owner: "<id>"}
          - pattern: "shared.<id>"
            require: {session_shared: "<id>"}
          - pattern: "agent.<id>"
            require: {agent_access: "<id>"}
        """
    )
    async with MemoryServer(rules=rules) as server:
        token = server.token("alice", sessions_owned=["1"], sessions_shared=["2"], agents=["3"])
        ps = server.client(token=token)
        for topic in ("owned.1", "shared.2", "agent.3"):
            await ps.subscribe(topic)
        for topic in ("owned.2", "shared.3", "agent.1"):
            with pytest.raises(PermissionDenied):
                await ps.subscribe(topic)


async def test_the_blocking_client_refuses_a_server_in_memory_for_which_it_would_wait_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryServer() as server:
        monkeypatch.setenv("HANZO_PUBSUB_URL", server.url)
        for arguments in ((server.url, "t"), (None, "t")):
            with pytest.raises(InvalidOption, match="which a blocking call would stop") as caught:
                PubSub(*arguments)
            assert caught.value.field == "url"
            assert "ThreadedServer" in caught.value.remedy
