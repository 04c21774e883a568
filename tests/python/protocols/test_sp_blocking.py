"""PUB and SUB sockets for programs with threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hanzoai.pubsub.errors import OperationTimeout
from hanzoai.pubsub.sp.blocking import Closed, NotFound, NotSupported, PubSocket, SubSocket
from hanzoai.pubsub.sp.inbox import ThreadInbox


def joined(pub: PubSocket, sub: SubSocket) -> None:
    sub.dial(pub.listen("tcp://127.0.0.1:0"))
    pub.wait_for_peers(timeout=10)
    sub.wait_for_peers(timeout=10)


@pytest.mark.statement("N-31", "N-12")
def test_a_program_without_asyncio_sends_and_receives() -> None:
    with PubSocket() as pub, SubSocket() as sub:
        sub.subscribe(b"sensor")
        joined(pub, sub)
        pub.send(b"alert:high")
        pub.send(b"sensor:temp=25")
        assert sub.recv(timeout=10) == b"sensor:temp=25"
        sub.unsubscribe(b"sensor")
        with pytest.raises(NotFound):
            sub.unsubscribe(b"sensor")
        with pytest.raises(OperationTimeout):
            sub.recv(timeout=0.01)
        assert pub.stats.sent == 2
        assert sub.stats.received == 1


@pytest.mark.statement("N-12")
def test_threads_share_sockets() -> None:
    with (
        PubSocket(send_queue_size=10_000) as pub,
        SubSocket(recv_queue_size=10_000) as sub,
        ThreadPoolExecutor(8) as threads,
    ):
        sub.subscribe(b"")
        joined(pub, sub)

        def send(thread: int) -> None:
            for n in range(500):
                pub.send(b"%d %d" % (thread, n))

        def receive(_: int) -> list[bytes]:
            return [sub.recv(timeout=10) for _ in range(500)]

        sending = [threads.submit(send, n) for n in range(4)]
        got = [body for part in threads.map(receive, range(4)) for body in part]
        for future in sending:
            future.result()
        assert sorted(got) == sorted(b"%d %d" % (t, n) for t in range(4) for n in range(500))


def test_a_timeout_may_be_infinite() -> None:
    with PubSocket() as pub, SubSocket() as sub, ThreadPoolExecutor(1) as threads:
        sub.subscribe(b"")
        sub.dial(pub.listen("tcp://127.0.0.1:0"))
        receiving = threads.submit(sub.recv, float("inf"))
        pub.wait_for_peers(timeout=float("inf"))
        pub.send(b"x")
        assert receiving.result(60) == b"x"


@pytest.mark.statement("N-07", "N-08", "N-18", "N-22")
def test_blocking_sockets_reject_what_asyncio_sockets_reject() -> None:
    pub, sub = PubSocket(), SubSocket()
    with pytest.raises(NotSupported):
        pub.recv()
    with pytest.raises(NotSupported):
        sub.send(b"x")
    pub.close()
    sub.close()
    sub.close()
    with pytest.raises(Closed):
        pub.send(b"x")
    with pytest.raises(Closed):
        sub.recv()
    with pytest.raises(Closed):
        sub.subscribe(b"")
    assert pub.closed
    assert pub.stats.sent == 0


@pytest.mark.statement("N-13", "N-22")
def test_closing_ends_a_thread_that_receives_and_leaves_none() -> None:
    before = threading.active_count()
    sub = SubSocket()
    sub.subscribe(b"")
    with ThreadPoolExecutor(2) as threads:
        receiving = threads.submit(sub.recv)
        iterating = threads.submit(list, sub)
        sub.close()
        with pytest.raises(Closed):
            receiving.result(10)
        assert iterating.result(10) == []
    assert threading.active_count() == before


@pytest.mark.statement("N-13")
def test_closing_does_not_read_on_at_the_pace_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ThreadInbox, "patience", 1000.0)
    with PubSocket() as pub, SubSocket(recv_queue_size=1) as sub:
        sub.subscribe(b"")
        joined(pub, sub)
        for _ in range(8):
            pub.send(b"x")
        assert sub.recv(timeout=10) == b"x"


@pytest.mark.statement("N-13")
def test_closing_sends_what_was_given_to_send() -> None:
    with SubSocket(recv_queue_size=1000) as sub:
        sub.subscribe(b"")
        with PubSocket(send_queue_size=1000) as pub:
            joined(pub, sub)
            for n in range(500):
                pub.send(b"%d" % n)
        assert [sub.recv(timeout=10) for _ in range(500)] == [b"%d" % n for n in range(500)]
