"""The blocking client with a real server."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import (
    ClosedError,
    InvalidTopic,
    Message,
    MessagesMissed,
    OperationTimeout,
    Published,
    PubSub,
    ReceiveQueue,
    StateChange,
    SubscriptionStats,
    TokenContext,
    UsageError,
)
from hanzoai.pubsub.runtime.inbox import Inbox
from hanzoai.pubsub.testing import ThreadedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUND = 60
"""Maximum seconds that a busy machine may take."""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def ps(pubsub_server: ThreadedServer) -> Iterator[PubSub]:
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as ps:
        yield ps


def test_a_batch_outside_of_its_with_block_names_it(ps: PubSub) -> None:
    with ps.batch() as sent:
        sent.publish("demo.1", {"data": 1})
        assert repr(sent) == "<BlockingBatch messages=1>"
    for batch in (sent, ps.batch()):
        with pytest.raises(UsageError, match="This batch is not open") as caught:
            batch.publish("demo.1", {"data": 2})
        assert caught.value.remedy == "Publish inside its block."


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
        assert other.next(timeout=BOUND).data == 1
        assert [message.data for message in handle.history()] == [1]
        handle.update_presence({"status": "idle"})
        assert len(handle.presence()) == 1


def test_the_counters_are_read_in_the_thread_that_changes_them_until_it_has_ended(
    ps: PubSub, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []
    read = Inbox.stats

    def noted(inbox: Inbox) -> SubscriptionStats:
        readers.append(threading.current_thread())
        return read(inbox)

    monkeypatch.setattr(Inbox, "stats", noted)
    seen: list[int] = []

    async def count(message: Message) -> None:
        seen.append(sub.stats.received)
        arrived.set()

    arrived = threading.Event()
    with ps.subscribe("demo.1", on_message=count) as sub:
        assert sub.stats.received == 0
        ps.publish("demo.1", {"data": 1})
        assert arrived.wait(BOUND)
        ps.close()
        assert sub.stats.received == 1
    assert seen == [1]
    main = threading.main_thread()
    assert [reader is main for reader in readers] == [False, False, True]


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
    assert apart.wait(BOUND)
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
    messages = itertools.islice(sub.messages(timeout=BOUND), 700)
    assert [message.data for message in messages] == list(range(700))
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
    complete = threading.Event()

    def read() -> None:
        for message in sub:
            with lock:
                got.append(message)
                if len(got) == 200:
                    complete.set()

    def write(number: int) -> None:
        for n in range(50):
            ps.publish("demo.1", {"data": number * 50 + n})

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in readers + writers:
        thread.start()
    assert complete.wait(BOUND)
    sub.unsubscribe()
    for thread in readers + writers:
        thread.join(BOUND)
    assert sorted(message.data for message in got) == list(range(200))


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
        assert done.wait(BOUND)
        assert [answers.next(BOUND).data for _ in range(3)] == [0, 1, 2]


def test_a_handler_may_close_the_client(pubsub_server: ThreadedServer) -> None:
    ps = PubSub(token=pubsub_server.admin_token(), **pubsub_server.options)
    closed = threading.Event()

    def handle(message: Message) -> None:
        # A close that waited for this handler would need all of its time.
        ps.close(timeout=2 * BOUND)
        closed.set()

    ps.subscribe("demo.1", on_message=handle).wait()
    with PubSub(token=pubsub_server.admin_token(), **pubsub_server.options) as other:
        other.publish("demo.1", {"data": 1})
        assert closed.wait(BOUND)
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
    assert done.wait(BOUND)
    assert outcome


def test_a_close_in_the_thread_of_the_client_raises_and_closes_nothing(ps: PubSub) -> None:
    outcome: Future[None] = Future()

    async def handle(message: Message) -> None:
        try:
            ps.close()
        except UsageError as error:
            outcome.set_exception(error)

    ps.subscribe("demo.1", on_message=handle).wait()
    ps.publish("demo.1", {"data": 1})
    with pytest.raises(UsageError, match="would wait for itself"):
        outcome.result(BOUND)
    assert ps.publish("demo.2", {"data": 2}).seq is not None


def test_state_changes_come_as_an_iterator_and_to_a_listener(
    pubsub_server: ThreadedServer,
) -> None:
    received: list[StateChange] = []
    ps = PubSub(
        token=pubsub_server.admin_token(), on_state=received.append, **pubsub_server.options
    )
    changes = ps.states()
    ps.connect()
    assert [next(changes).to for _ in range(3)] == ["connecting", "authenticating", "connected"]
    ps.close()
    assert [change.to for change in received][:3] == ["connecting", "authenticating", "connected"]


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
        thread.join(BOUND)
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
        [
            *(sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning"),
            *("-c", textwrap.dedent(program)),
        ],
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
    out, err = process.communicate(timeout=BOUND)
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
    out, err = process.communicate(timeout=BOUND)
    assert (out, err, process.returncode) == ("interrupted True\n1\n", "", 0)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_the_end_of_a_process_does_not_repeat_the_wait_of_an_interrupted_close(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import asyncio, os, signal, threading
        from hanzoai.pubsub import PubSub
        begun = threading.Event()
        def changed(change):
            if change.to == "closed":  # the close now waits for the handler
                os.kill(os.getpid(), signal.SIGINT)
        async def handle(message):
            begun.set()
            await asyncio.sleep(600)
        ps = PubSub(rest_url=os.environ["REST"], on_state=changed, close_timeout=600)
        ps.subscribe("demo.1", on_message=handle).wait()
        ps.publish("demo.1", {"data": 1})
        begun.wait()
        try:
            ps.close()
        except KeyboardInterrupt:
            print("interrupted")
        """,
        pubsub_server,
    )
    out, _ = process.communicate(timeout=BOUND)
    assert (out, process.returncode) == ("interrupted\n", 0)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_at_the_end_of_a_process_ends_the_wait_for_an_open_client(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import asyncio, os, signal, threading
        from hanzoai.pubsub import PubSub
        begun = threading.Event()
        def changed(change):
            if change.to == "closed":  # the close now waits for the handler
                os.kill(os.getpid(), signal.SIGINT)
        async def handle(message):
            begun.set()
            await asyncio.sleep(600)
        ps = PubSub(rest_url=os.environ["REST"], on_state=changed, close_timeout=600)
        ps.subscribe("demo.1", on_message=handle).wait()
        ps.publish("demo.1", {"data": 1})
        begun.wait()
        """,
        pubsub_server,
    )
    out, err = process.communicate(timeout=BOUND)
    assert (out, err, process.returncode) == ("", "", 0)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_at_the_end_of_a_process_ends_the_wait_for_handlers(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import os, signal, threading
        from hanzoai.pubsub import PubSub
        begun = threading.Event()
        def interrupt(timeout):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()
        def handle(message):
            threading.current_thread().join = interrupt
            begun.set()
            threading.Event().wait()
        ps = PubSub(rest_url=os.environ["REST"])
        ps.subscribe("demo.1", on_message=handle).wait()
        ps.publish("demo.1", {"data": 1})
        begun.wait()
        ps.close(0)
        """,
        pubsub_server,
    )
    out, err = process.communicate(timeout=BOUND)
    assert (out, err, process.returncode) == ("", "", 0)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_handler_that_blocks_does_not_keep_a_process_that_ctrl_c_ends(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import os, threading
        from hanzoai.pubsub import PubSub
        def block(message):
            print("blocked", flush=True)
            threading.Event().wait()
        try:
            with PubSub(rest_url=os.environ["REST"]) as ps:
                ps.subscribe("demo.1", on_message=block).wait()
                ps.publish("demo.1", {"data": 1})
                threading.Event().wait()
        except KeyboardInterrupt:
            print("interrupted")
        """,
        pubsub_server,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "blocked\n"
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=BOUND)
    finally:
        process.kill()
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def test_a_handler_that_has_closed_the_client_ends_before_the_process(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import os, threading
        from hanzoai.pubsub import PubSub
        def stop(message):
            ps.close()
            threading.main_thread().join()
            print("saved")
        ps = PubSub(rest_url=os.environ["REST"])
        ps.subscribe("demo.1", on_message=stop).wait()
        states = ps.states()
        ps.publish("demo.1", {"data": 1})
        for change in states: pass
        """,
        pubsub_server,
    )
    out, err = process.communicate(timeout=BOUND)
    assert (out, err, process.returncode) == ("saved\n", "", 0)


def test_a_running_handler_ends_before_a_process_that_an_exception_ends(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import os, sys, threading
        from hanzoai.pubsub import PubSub
        def save(message):
            started.set()
            threading.main_thread().join()
            print("saved")
        started = threading.Event()
        with PubSub(rest_url=os.environ["REST"]) as ps:
            ps.subscribe("demo.1", on_message=save).wait()
            ps.publish("demo.1", {"data": 1})
            started.wait()
            sys.exit(3)
        """,
        pubsub_server,
    )
    out, err = process.communicate(timeout=BOUND)
    assert (out, err, process.returncode) == ("saved\n", "", 3)


def test_close_does_not_wait_for_a_thread_that_is_blocked(
    pubsub_server: ThreadedServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("hanzoai.pubsub.blocking.portal._JOIN", 0.1)
    blocked, released = threading.Event(), threading.Event()

    async def block(_: Message) -> None:
        blocked.set()
        released.wait(BOUND)

    token = pubsub_server.admin_token()
    ps = PubSub(token=token, **pubsub_server.options)
    ps.subscribe("demo.1", on_message=block).wait()
    with PubSub(token=token, **pubsub_server.options) as other:
        other.publish("demo.1", {"data": 1})
    assert blocked.wait(BOUND)
    ps.close()
    released.set()
    assert "because its thread has been blocked for 5 s" in caplog.text


def test_a_handler_that_exits_does_not_end_the_client(pubsub_server: ThreadedServer) -> None:
    errors: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    token = pubsub_server.admin_token()

    def leave(_: Message) -> None:
        sys.exit(1)

    async def leave_later(_: Message) -> None:
        sys.exit(1)

    with PubSub(token=token, on_error=errors.put, **pubsub_server.options) as ps:
        for topic, handler in (("demo.1", leave), ("demo.2", leave_later)):
            ps.subscribe(topic, on_message=handler).wait()
            ps.publish(topic, {"data": 1})
            assert str(errors.get(timeout=BOUND)) == "A handler raised SystemExit"
        assert ps.publish("demo.3", {"data": 2}).seq


def test_handlers_run_in_the_context_of_the_call_that_set_them(ps: PubSub) -> None:
    user = contextvars.ContextVar[str]("user")
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    user.set("alice")
    ps.subscribe("demo.1", on_message=lambda _: seen.put(user.get("none"))).wait()
    ps.publish("demo.1", {"data": 1})
    assert seen.get(timeout=BOUND) == "alice"


def test_iterations_end_when_another_thread_closes_the_client_and_lose_no_message(
    pubsub_server: ThreadedServer,
) -> None:
    ps = PubSub(token=pubsub_server.admin_token(), **pubsub_server.options)
    sub, all_events = ps.subscribe("demo.1").wait(), ps.subscribe("demo.1").wait().events()
    idle = ps.subscribe("demo.2").wait()
    states, begun = ps.states(), threading.Event()
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def wait() -> None:
        begun.set()
        ended.put("idle" if list(idle) == [] else "not idle")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    begun.wait(BOUND)
    ps.publish_many([("demo.1", {"data": number}) for number in range(300)])
    assert next(sub).data == 0
    ps.close()
    assert [message.data for message in sub] == list(range(1, 300))
    assert len(list(all_events)) == 300
    assert [change.to for change in states][-1] == "closed"
    assert ended.get(timeout=BOUND) == "idle"
    with pytest.raises(ClosedError):
        sub.next()


def test_events_continue_after_a_gap_that_the_iteration_raises(ps: PubSub) -> None:
    small = ReceiveQueue(messages=10)
    with (
        ps.subscribe("demo.1", queue=small, on_gap="raise") as sub,
        ps.subscribe("demo.1") as later,
    ):
        events = sub.events()
        ps.publish_many([("demo.1", {"type": "n", "data": n}) for n in range(20)])
        for _ in range(20):
            later.next(timeout=BOUND)
        with pytest.raises(MessagesMissed):
            next(events)
        event = next(events)
    assert isinstance(event, Message)
    assert event.data == 10


def test_a_dropped_client_warns_and_ends_its_connection_and_thread(
    pubsub_server: ThreadedServer,
) -> None:
    before = set(threading.enumerate())
    ps = PubSub(token=pubsub_server.admin_token(), **pubsub_server.options)
    ps.publish("demo.1", {"data": 1})
    (thread,) = set(threading.enumerate()) - before
    held = [ps]
    del ps
    with pytest.warns(ResourceWarning, match=r"<PubSub .* connected> was dropped .* use `with`"):
        held.clear()
    thread.join(BOUND)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_client_made_keeps_it_open(pubsub_server: ThreadedServer) -> None:
    def client() -> PubSub:
        return PubSub(token=pubsub_server.admin_token(), **pubsub_server.options)

    with client() as ps:
        handled = threading.Event()
        client().subscribe("demo.1", on_message=lambda _: handled.set()).wait()
        sub = client().subscribe("demo.1").wait()
        gc.collect()
        ps.publish("demo.1", {"data": 1})
        assert next(sub).data == 1
        assert handled.wait(BOUND)


def test_a_client_cannot_be_copied_or_pickled(ps: PubSub) -> None:
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UsageError, match="PubSub cannot be copied") as caught:
            duplicate(ps)
        assert caught.value.remedy == "Create a client in each process; threads may share one."
    assert ps.publish("demo.1", {"data": 1}).seq


@forks
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
    out, _ = process.communicate(timeout=BOUND)
    assert (process.returncode, out) == (0, "Create the client in the child process.")


@forks
def test_a_forked_process_may_leave_the_blocks_of_its_parent(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import os, sys
        from hanzoai.pubsub import PubSub
        from hanzoai.pubsub.streams import stream_reader, stream_writer
        with (
            PubSub(rest_url=os.environ["REST"]) as ps,
            ps.subscribe("demo.1") as sub,
            ps.respond("demo.2", lambda request: request.data),
            stream_reader(ps, "demo.3"),
            stream_writer(ps, "demo.3") as writer,
            ps.batch() as batch,
        ):
            child = os.fork()
            if child == 0:
                sys.exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            print(ps.publish("demo.1", {"data": 1}).seq is not None, next(sub).data)
            print(ps.request("demo.2", 2).data)
            writer.write("a")
            writer.complete()
            batch.publish("demo.1", {"data": 3})
        """,
        pubsub_server,
    )
    out, err = process.communicate(timeout=BOUND)
    shown = [line for line in err.splitlines() if "multi-threaded" not in line]
    assert (out.split(), process.returncode) == (["7", "True", "1", "2"], 0), shown


@forks
@pytest.mark.parametrize("end", ["return", "raise ValueError('the child failed')", "sys.exit(1)"])
def test_a_process_that_a_handler_forks_ends_with_the_handler(
    pubsub_server: ThreadedServer, end: str
) -> None:
    process = run(
        f"""
        import os, sys, threading
        from hanzoai.pubsub import PubSub, UsageError
        ended = threading.Event()
        def handle(message):
            child = os.fork()
            if child:
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
                ended.set()
                return
            try:
                ps.publish("demo.1", {{"data": 2}})
            except UsageError as error:
                print(error.remedy, flush=True)
            {end}
        with PubSub(rest_url=os.environ["REST"]) as ps:
            ps.subscribe("demo.1", on_message=handle).wait()
            ps.publish("demo.1", {{"data": 1}})
            ended.wait()
        """,
        pubsub_server,
    )
    try:
        out, err = process.communicate(timeout=BOUND)
    finally:
        process.kill()
    # As in every thread of a program, the error of the child is printed, and its status is 0.
    assert out.splitlines() == ["Create the client in the child process.", "0"], err
    assert ("the child failed" in err, process.returncode) == (end.startswith("raise"), 0)


@forks
def test_a_fork_during_the_first_use_does_not_block_the_child(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import os, sys
        from hanzoai.pubsub import PubSub
        ps = PubSub(rest_url=os.environ["REST"])
        with ps._lock:  # as a thread that uses the client for the first time
            child = os.fork()
            if child == 0:
                print(ps.publish("demo.1", {"data": 1}).seq is not None, flush=True)
                ps.close()
                os._exit(0)
        os.waitpid(child, 0)
        """,
        pubsub_server,
    )
    try:
        out, _ = process.communicate(timeout=BOUND)
    finally:
        process.kill()
    assert out == "True\n"


@forks
def test_a_forked_process_leaves_an_asyncio_client_to_its_parent(
    pubsub_server: ThreadedServer,
) -> None:
    process = run(
        """
        import asyncio, gc, os, sys
        from hanzoai.pubsub import PubSubClient, UsageError
        async def use(ps, sub):
            for call in (lambda: ps.publish("demo.1", {"data": 2}), lambda: anext(sub)):
                try:
                    await call()
                except UsageError as error:
                    print(error.remedy, flush=True)
        async def main():
            async with (
                PubSubClient(rest_url=os.environ["REST"]) as ps,
                ps.subscribe("demo.1") as sub,
            ):
                child = os.fork()
                if child == 0:
                    await use(ps, sub)  # a loop does not run in a forked process
                    asyncio.run(use(ps, sub))
                    sys.exit(7)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                await ps.publish("demo.1", {"data": 1})
                print((await anext(sub)).data)
        asyncio.run(main())
        """,
        pubsub_server,
    )
    out, err = process.communicate(timeout=BOUND)
    assert (out.splitlines(), process.returncode) == (
        [*["Create the client in the child process."] * 4, "7", "1"],
        0,
    ), err


def test_the_messages_after_a_gap_can_still_be_taken_when_the_client_is_closed(
    ps: PubSub, caplog: pytest.LogCaptureFixture
) -> None:
    small = ReceiveQueue(messages=10)
    sub = ps.subscribe("demo.1", queue=small).wait()
    raising = ps.subscribe("demo.1", queue=small, on_gap="raise").wait()
    later = ps.subscribe("demo.1").wait()
    ps.publish_many([("demo.1", {"data": number}) for number in range(100)])
    for _ in range(100):
        later.next(timeout=BOUND)
    ps.close()
    assert [message.data for message in sub] == list(range(90, 100))
    assert "90 messages of topic demo.1" in caplog.text
    with pytest.raises(MessagesMissed):
        next(raising)
    assert [message.data for message in raising] == list(range(90, 100))
