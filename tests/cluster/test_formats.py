"""Nodes of two versions share a Redis: the format of its data changes only with its version."""

from __future__ import annotations

import asyncio
import re
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pubsub_server.backplanes.redis.layout import VERSION
from tests.cluster.fleet import nodes, peer, present
from tests.http_client import http_client

if TYPE_CHECKING:
    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store

BOUND = 60
TOPIC = "demo.format"
RECORDED: Final = sorted((Path(__file__).parent / "formats").glob(f"redis_{VERSION}.*.txt"))
"""What nodes of this version of the layout write, with names for what differs between two runs.

The last file is of this release. Its nodes must read the others, because nodes of earlier releases
may have written them.
"""
MESSAGES: Final = (
    {"id": "one", "type": "first", "data": {"n": 1}},
    {"id": "two", "type": "second", "data": "ü", "ttl": 3_000, "meta": {"a": "b"}},
)
CHANGED: Final = (
    "A node writes other data to Redis than it did. If nodes of the previous release can read it,"
    " and this one can read theirs, add {written} to tests/cluster/formats with the next number."
    " Otherwise, also raise VERSION in layout.py and add `Upgrading` to CHANGELOG.md."
)
TYPES: Final = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", "0", "-1", "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
}
CLIENT, NODE, SECRET = "cl_" + "c" * 40, "e" * 16, "5" * 64


def named(value: bytes, first: int) -> str:
    """A value as text, with names for times, positions and ids."""
    at, now, parts = 0, time.time() * 1000, [""]
    while at < len(value):
        (number,) = struct.unpack("<d", value[at : at + 8].ljust(8, b"\xff"))
        if abs(number - now) < 600_000:
            parts.append("<time8>")
        elif abs(number - first) < 1_000:
            parts.append(f"<seq8+{int(number - first)}>")
        else:
            parts.append(value[at : at + 1].decode("latin-1"))
            at -= 7
        at += 8
    text = "".join(parts)
    # First the ids, whose digits may look like a time.
    text = re.sub("cl_[0-9a-f]{40}", "<client>", text)
    text = re.sub("[0-9a-f]{40}", "<id>", text)
    text = re.sub(r"\d{16}", lambda found: f"<seq+{int(found[0]) - first}>", text)
    text = re.sub(r"\d{13}", "<time>", text)
    text = re.sub(r'"within":\d+', '"within":0', text)
    return text.encode("unicode_escape").decode()


def filled(text: str, first: int) -> bytes:
    """The value of a text of `named`."""
    text = text.encode().decode("unicode_escape")
    now = first // 1000
    parts = re.split(r"(<(?:time|seq)8?(?:\+\d)?>)", text.replace("<client>", CLIENT))
    for index, part in enumerate(parts):
        if index % 2:
            number = first + int(part[-2]) if "seq" in part else now
            whole = str(number) if "8" not in part else struct.pack("<d", number).decode("latin-1")
            parts[index] = whole
    text = "".join(parts).replace("<node>", NODE).replace("<secret>", SECRET)
    return text.replace("<id>", "0" * 40).encode("latin-1")


async def publish(node: RunningServer, message: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {node.token('bot', kind='service')}"}
    async with http_client(headers=headers) as http:
        answer = await http.post(f"{node.http}/v1/topics/{TOPIC}/messages", json=message)
    return dict(answer.json())


def flat(value: Any) -> list[bytes]:
    """The bytes of an answer of Redis, without its structure."""
    if isinstance(value, dict):
        return [part for key in sorted(value) for part in (*flat(key), *flat(value[key]))]
    if isinstance(value, (list, tuple, set)):
        some = sorted(value) if isinstance(value, set) else value
        return [part for each in some for part in flat(each)]
    return [value if isinstance(value, bytes) else b"%d" % int(value)]


async def written(store: Store) -> str:
    """Let a node write a member and two messages; return what is then in the store."""
    # With this timeout, the node keeps its lease if the machine pauses.
    node_of = nodes(store, 1, redis_shards=1, node_timeout=60_000)
    async with node_of as (node,), peer(node, node.token("ann")) as ann:
        await ann.subscribe(TOPIC)
        first, _ = [(await publish(node, each))["seq"] for each in MESSAGES]
        secret = await store.command("GET", "hanzo-pubsub:{0}:secret")
        (name,) = await store.command("ZRANGE", "hanzo-pubsub:{0}:nodes", 0, -1)
        lines: list[str] = []
        for key in await store.command("KEYS", "*"):
            if b":b:" in key:
                # A publish budget expires within milliseconds.
                continue
            kind = (await store.command("TYPE", key)).decode()
            command, *rest = TYPES[kind]
            found = [key, *flat(await store.command(command, key, *rest))]
            values = [each.replace(name, b"<node>").replace(secret, b"<secret>") for each in found]
            lines.append(" ".join([kind, *(f"[{named(each, first)}]" for each in values)]))
    return "\n".join(sorted(lines)) + "\n"


async def fill(store: Store, recorded: Path) -> None:
    """Write recorded data, as if a node had written it a second ago."""
    first = int(time.time() - 1) * 1_000_000
    for line in lines_of(recorded):
        kind, _, rest = line.partition(" ")
        key, *values = (filled(each, first) for each in rest[1:-1].split("] ["))
        if kind == "stream":
            for id, name, record in zip(*[iter(values)] * 3, strict=True):
                await store.command("XADD", key, id, name, record)
            continue
        if kind == "zset":
            values = [each for pair in zip(values[1::2], values[::2], strict=True) for each in pair]
        command = {"string": "SET", "hash": "HSET", "set": "SADD", "zset": "ZADD"}[kind]
        await store.command(command, key, *values)


def lines_of(recorded: Path) -> list[str]:
    return recorded.read_text(encoding="ascii").splitlines()


async def test_a_node_writes_the_recorded_format_to_redis(store: Store, tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND):
        text = await written(store)
    here = tmp_path / f"redis_{VERSION}.{len(RECORDED) + 1}.txt"
    here.write_text(text, encoding="ascii")
    assert RECORDED, CHANGED.format(written=here)
    assert text == RECORDED[-1].read_text(encoding="ascii"), CHANGED.format(written=here)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
async def test_a_node_continues_with_data_of_a_recorded_format(
    store: Store, recorded: Path
) -> None:
    await fill(store, recorded)
    async with (
        asyncio.timeout(BOUND),
        nodes(store, 1, redis_shards=1, node_timeout=60_000) as (node,),
    ):
        token = node.token("bot", kind="service")
        assert [each["user_id"] for each in await present(node, TOPIC, token)] == ["ann"]
        repeated = [await publish(node, each) for each in MESSAGES]
        assert [each["duplicate"] for each in repeated] == [True, True]
        other = await publish(node, {**MESSAGES[0], "data": {"n": 2}})
        assert other["code"] == "conflict"
        third = await publish(node, {"id": "three", "data": 3})
        async with http_client(headers={"Authorization": f"Bearer {token}"}) as http:
            page = (await http.get(f"{node.http}/v1/topics/{TOPIC}/history")).json()
    sequence = [each["seq"] for each in repeated]
    assert [*sequence, third["seq"]] == [sequence[0], sequence[0] + 1, sequence[0] + 2]
    found = [
        {"id": each["id"], "type": each["type"], "data": each["data"]} for each in page["messages"]
    ]
    assert found == [
        *({"id": each["id"], "type": each["type"], "data": each["data"]} for each in MESSAGES),
        {"id": "three", "type": "message", "data": 3},
    ]
