"""The blocking client with a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import (
    ClosedError,
    InvalidTopic,
    Message,
    OperationTimeout,
    Published,
    PubSub,
    StateChange,
    TokenContext,
    UsageError,
)
from hanzoai.pubsub.testing import ThreadedServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ps(pubsub_server: ThreadedServer) -> Iterator[PubSub]:
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        yield ps


def test_every_operation_blocks_until_its_result_is_there(ps: PubSub) -> None:
    ps.connect()
    assert ps.state == "connected"
    assert ps.client_id is not None
    with ps.subscribe("demo.1", presence=True) as sub:
        first = ps.publish("demo.1", {"data": 1})
        assert next(sub).id == first.id
        results = ps.publish_many([("demo.1", {"data": n}) for n in range(2, 5)])
        assert all(isinstance(result, Published) for result in results)
        with ps.batch() as batch:
            batch.publish("demo.1", {"data": 5})
        assert len(batch.results) == 1
        assert [next(sub).data for _ in range(4)] == [2, 3, 4, 5]
        assert [message.data for message in ps.history("demo.1")] == [1, 2, 3, 4, 5]
        assert [message.data for message in ps.history("demo.1", limit=2)] == [4, 5]
        ps.update_presence("demo.1", {"status": "busy"})
        assert "demo.1" in [info.topic for info in ps.topics("demo.")]
        assert len(ps.presence("demo.1")) == 1
        (stand,) = ps.positions("demo.*").positions
        assert (stand.topic, stand.last - stand.first) == ("demo.1", 4)
        assert ps.positions("demo.1", after={"demo.1": stand.first}, wait=30).positions == [stand]
        assert sub.positions["demo.1"] is not None
        assert sub.stats.received == 5
        was_active = sub.active
        assert sub.topics == ("demo.1",)
        assert sub.denied == ()
    assert (was_active, sub.active) == (True, False)
    handle = ps.topic("demo.2")
    with handle.subscribe() as other:
        handle.publish({"data": 1})
        assert other.next(timeout=5).data == 1
        assert [message.data for message in handle.history()] == [1]
        handle.update_presence({"status": "idle"})
        assert len(handle.presence()) == 1


def test_the_error_of_a_wait_without_a_connection_names_its_start_and_reason() -> None:
    server = ThreadedServer()
    apart = threading.Event()

    def watch(change: StateChange) -> None:
        if change.to == "reconnecting":
            apart.set()

    ps = PubSub(token=server.admin_token(), **server.options, on_state=watch)
    sub = ps.subscribe("demo.1").wait()
    with pytest.raises(OperationTimeout, match=r"No message arrived within 0\.01 s\. Wait longer"):
        sub.next(timeout=0.01)
    server.stop()
    assert apart.wait(10)
    with pytest.raises(
        OperationTimeout, match=r"not been connected since 2\d{3}-.* s\): .+"
    ) as caught:
        sub.next(timeout=0.01)
    assert "keeps trying" in caught.value.remedy
    ps.close(timeout=0)


def test_waiting_for_a_message_may_be_bounded_and_loses_nothing(ps: PubSub) -> None:
    sub = ps.subscribe("demo.1").wait()
    with pytest.raises(OperationTimeout):
        sub.next(timeout=0.01)
    assert list(sub.messages(timeout=0.01)) == []
    for number in range(700):
        ps.publish("demo.1", {"data": number})
    assert [message.data for message in sub.messages(timeout=0.5)] == list(range(700))
    sub.unsubscribe()
    assert list(sub) == []
    with pytest.raises(ClosedError):
        sub.next()


def test_errors_are_those_of_the_other_client(ps: PubSub) -> None:
    with pytest.raises(InvalidTopic):
        ps.publish("a.*", {"data": 1})
    with pytest.raises(InvalidTopic):
        ps.subscribe("a..b")


def test_several_threads_may_share_a_client_and_a_subscription(ps: PubSub) -> None:
    sub = ps.subscribe("demo.1").wait()
    got: list[Message] = []
    lock = threading.Lock()

    def read() -> None:
        for message in sub.messages(timeout=1):
            with lock:
                got.append(message)

    def write(number: int) -> None:
        for n in range(50):
            ps.publish("demo.1", {"data": number * 50 + n})

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in readers + writers:
        thread.start()
    for thread in readers + writers:
        thread.join(20)
    assert sorted(message.data for message in got) == list(range(200))
    sub.unsubscribe()


def test_handlers_run_in_threads_may_block_and_may_use_the_client(ps: PubSub) -> None:
    got: list[Message] = []
    done = threading.Event()

    def handle(message: Message) -> None:
        time.sleep(0.01)
        ps.publish("demo.2", {"data": message.data})
        got.append(message)
        if len(got) == 3:
            done.set()

    ps.subscribe("demo.1", on_message=handle).wait()
    with ps.subscribe("demo.2") as answers:
        for number in range(3):
            ps.publish("demo.1", {"data": number})
        assert done.wait(10)
        assert [answers.next(5).data for _ in range(3)] == [0, 1, 2]


def test_a_handler_may_close_the_client(pubsub_server: ThreadedServer) -> None:
    ps = PubSub(token=pubsub_server.admin_token(), **pubsub_server.options)
    closed = threading.Event()

    def handle(message: Message) -> None:
        ps.close()
        closed.set()

    ps.subscribe("demo.1", on_message=handle).wait()
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as other:
        other.publish("demo.1", {"data": 1})
        assert closed.wait(4)
    assert ps.state == "closed"


def test_an_asynchronous_handler_cannot_block_the_loop_it_runs_in(ps: PubSub) -> None:
    outcome: list[object] = []
    done = threading.Event()

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        try:
            ps.publish("demo.2", {"data": 1})
        except UsageError as error:
            outcome.append(error)
        done.set()

    ps.subscribe("demo.1", on_message=handle).wait()
    ps.publish("demo.1", {"data": 1})
    assert done.wait(10)
    assert outcome


def test_state_changes_come_as_an_iterator_and_to_a_listener(
    pubsub_server: ThreadedServer,
) -> None:
    heard: list[StateChange] = []
    ps = PubSub(token=pubsub_server.admin_token(), on_state=heard.append, **pubsub_server.options)
    changes = ps.states()
    ps.connect()
    assert [next(changes).to for _ in range(3)] == ["connecting", "authenticating", "connected"]
    ps.close()
    assert [change.to for change in heard][:3] == ["connecting", "authenticating", "connected"]


def test_a_closed_client_refuses_requests_and_can_be_closed_again(
    pubsub_server: ThreadedServer,
) -> None:
    ps = PubSub(token=pubsub_server.admin_token(), **pubsub_server.options)
    ps.close()
    assert ps.state == "closed"
    for call in (ps.connect, ps.states, ps.batch, lambda: ps.publish("a", {"data": 1})):
        with pytest.raises(ClosedError):
            call()
    ps.close()
    ps.disconnect()


def test_no_thread_is_left_behind(pubsub_server: ThreadedServer) -> None:
    before = set(threading.enumerate())
    with (
        PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps,
        ps.subscribe("demo.1", on_presence=print) as sub,
    ):
        assert sub.active
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert not set(threading.enumerate()) - before


def test_a_blocking_callback_gives_the_token(pubsub_server: ThreadedServer) -> None:
    contexts: list[TokenContext] = []

    def get_token(context: TokenContext) -> str:
        contexts.append(context)
        return pubsub_server.admin_token()

    with PubSub(get_token=get_token, **pubsub_server.options) as ps:
        ps.publish("demo.1", {"data": 1})
    assert [context.reason for context in contexts] == ["connect"]


def run(program: str, server: ThreadedServer) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "HANZO_PUBSUB_URL": server.ws,
        "REST": server.http,
        "HANZO_PUBSUB_TOKEN": server.admin_token(),
    }
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_program_that_forgets_to_close_ends_cleanly(pubsub_server: ThreadedServer) -> None:
    process = run(
        """
        import os
        from hanzoai.pubsub import PubSub
        ps = PubSub(rest_url=os.environ["REST"])
        sub = ps.subscribe("demo.1", on_message=print).wait()
        ps.publish("demo.2", {"data": 1})
        """,
        pubsub_server,
    )
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_ends_a_wait(pubsub_server: ThreadedServer) -> None:
    process = run(
        """
        import os
        from hanzoai.pubsub import PubSub
        with PubSub(rest_url=os.environ["REST"]) as ps, ps.subscribe("demo.1") as sub:
            try:
                print("waiting", flush=True)
                next(sub)
            except KeyboardInterrupt:
                print("interrupted", ps.publish("demo.1", {"data": 1}).seq is not None, flush=True)
                print(next(sub).data)
        """,
        pubsub_server,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("interrupted True\n1\n", "", 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_client_in_a_forked_process_raises_an_error_with_a_remedy(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import os, sys
        from hanzoai.pubsub import PubSub, UsageError
        ps = PubSub(rest_url=os.environ["REST"])
        ps.publish("demo.1", {"data": 1})
        child = os.fork()
        if child == 0:
            try:
                ps.publish("demo.1", {"data": 2})
            except UsageError as error:
                sys.stdout.write(error.remedy)
                sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        ps.close()
        """,
        pubsub_server,
    )
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "Create the client in the child process.")
