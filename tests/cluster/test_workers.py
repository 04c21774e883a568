"""Several processes on one port: they serve as one, one that dies is replaced, all end together."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hanzoai.pubsub import PubSubClient, RetryOptions
from pubsub_server import commands
from pubsub_server.auth import dev_tokens
from pubsub_server.workers.pool import together
from tests.cluster.nodes import Node
from tests.cluster.store import Store
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

BOUND = 50
WORKERS = 3


@asynccontextmanager
async def workers(folder: Path, *flags: str) -> AsyncGenerator[Node]:
    """A server of several workers on a store of its own."""
    store = Store("valkey", folder)
    await store.start()
    key = ("--dev-key-file", str(folder / "dev.key"))
    shared = ("--redis-url", store.url, "--workers", str(WORKERS), *key)
    node = Node("node", folder, *shared, "--log-level", "warning", "--drain-spread", "0", *flags)
    try:
        await node.start()
        yield node
    finally:
        if node.running:
            await node.end()
        await store.end()


def client(node: Node, folder: Path, name: str) -> PubSubClient:
    token = dev_tokens.mint(dev_tokens.load_key(folder / "dev.key"), name, kind="service")
    retry = RetryOptions(base=0.05)
    return PubSubClient(node.ready["ws"], token, rest_url=node.ready["http"], retry=retry)


def children(pid: int) -> set[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return set(map(int, listed.split()))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"
    except FileNotFoundError:
        return False


async def total(node: Node, name: str) -> float:
    async with httpx.AsyncClient() as http:
        text = (await http.get(node.ready["http"] + "/metrics")).text
    families = text_string_to_metric_families(text)
    return sum(each.value for family in families for each in family.samples if each.name == name)


async def test_workers_serve_as_one_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(BOUND),
        workers(tmp_path) as node,
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
        assert await total(node, "hanzo_pubsub_published_total") == 1
        assert await total(node, "hanzo_pubsub_authenticated") == 13
        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: len(children(node.pid) - first), 1)
        await writer.publish("demo.x", {"data": 2}, timeout=BOUND)
        assert [(await anext(sub)).data for sub in subs] == [2] * 12
        await until(lambda: children(node.pid) >= first - {victim})
        await until(lambda: total(node, "hanzo_pubsub_ready"), WORKERS)
        second = children(node.pid)
        assert await node.end() == 0
        assert not any(alive(pid) for pid in second)


async def test_workers_end_when_their_supervisor_is_gone(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), workers(tmp_path) as node:
        pids = children(node.pid)
        await node.end(signal.SIGKILL)
        await until(lambda: any(alive(pid) for pid in pids), False)


async def test_a_port_that_others_listen_on_is_one_clear_line(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), workers(tmp_path) as node:
        other = Node("other", tmp_path, "--workers", "2", "--redis-url", "redis://127.0.0.1:1")
        other.http_port = node.http_port
        with pytest.raises(AssertionError):
            await other.start()
        assert await other.end() == 1
        (line,) = other.log.read_text(encoding="utf-8").splitlines()
        assert line.startswith(f"hanzo-pubsub: port {node.http_port} of 127.0.0.1 is in use")


async def test_what_keeps_a_worker_from_starting_is_said_once(tmp_path: Path) -> None:
    node = Node("node", tmp_path, "--workers", "3", "--redis-url", "redis://127.0.0.1:1")
    with pytest.raises(AssertionError):
        await node.start()
    async with asyncio.timeout(BOUND):
        assert await node.end() == 1
    (line,) = node.log.read_text(encoding="utf-8").splitlines()
    assert "Redis cannot be reached" in line


def test_workers_without_a_store_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.serve(["--dev", "--workers", "2"]) == commands.FAILED
    assert "--workers 2 needs a Redis" in capsys.readouterr().err


def test_counts_are_added_up_and_processes_told_apart() -> None:
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
