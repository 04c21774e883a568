"""The data in Redis: logs by class, and ids, so that a repeated job publishes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from hashlib import blake2b
from struct import pack, unpack
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.backplane import Published
from pubsub_server.backplanes import replay_bounds
from pubsub_server.backplanes.redis.backplane import SILENCE_MS
from pubsub_server.errors import ServiceError
from pubsub_server.shared.answers import Answer
from pubsub_server.shared.requests import Draft
from pubsub_server.testing import running_server
from tests.cluster.test_backplane import BOUND
from tests.cluster.waiting import until
from tests.server.test_positions import publish
from tests.server.test_rest import api

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pubsub_server.testing import RunningServer
    from tests.cluster.store import Store

SOAK = bool(os.environ.get("HANZO_PUBSUB_SOAK"))
ROWS = 100_000 if SOAK else 10_000
PART = ROWS // 20
SHORT = 30_000
"""Milliseconds until a log expires; less than the retention of a message."""


def drafts(start: int, count: int, topic: str = "demo.x", data: int = 0) -> list[Draft]:
    return [
        Draft(topic, "row", b"%d" % (number + data), None, f"job-7.{number}", None)
        for number in range(start, start + count)
    ]


async def send(
    node: RunningServer, items: Sequence[Draft], sender: str = "spark"
) -> list[Published | ServiceError]:
    answer: Answer[list[Published | ServiceError]] = Answer()
    node.hub.core.backplane.publish(items, ("service", sender), answer)
    return await answer


async def test_a_job_that_is_repeated_publishes_nothing(store: Store) -> None:
    # The same share of ids that the defaults remember for a job of 100,000 messages.
    settings: dict[str, object] = {"redis_url": store.url, "ids_max": ROWS * 5 // 4}
    async with asyncio.timeout(5 * BOUND), running_server(**settings) as node:
        first: list[Published | ServiceError] = []
        for start in range(0, ROWS, PART):
            first += await send(node, drafts(start, PART))
        assert all(isinstance(each, Published) and not each.duplicate for each in first)
        for start in range(0, ROWS, PART):
            again = await send(node, drafts(start, PART))
            assert all(isinstance(each, Published) and each.duplicate for each in again)
            assert [(e.id, e.seq) for e in again if isinstance(e, Published)] == [
                (e.id, e.seq) for e in first[start : start + PART] if isinstance(e, Published)
            ]
        (other,) = await send(node, drafts(77, 1, data=1))
        assert isinstance(other, ServiceError)
        assert other.code == "conflict"
        # The same id on another topic is another message.
        (elsewhere,) = await send(node, drafts(77, 1, "demo.y"))
        assert isinstance(elsewhere, Published)
        assert not elsewhere.duplicate


async def test_the_newest_ids_of_a_part_are_remembered_and_twice_as_many_at_most(
    store: Store,
) -> None:
    settings: dict[str, object] = {"redis_url": store.url, "redis_shards": 1, "ids_max": 10}
    async with asyncio.timeout(BOUND), running_server(**settings) as node, store.client() as redis:

        async def held() -> int:
            halves = [await redis.hkeys(f"hanzo-pubsub:{{0}}:{half}") for half in "ij"]
            return len({*halves[0], *halves[1]} - {b"since"})

        for start in range(0, 95, 5):
            await send(node, drafts(start, 5))
            assert await held() <= 20
        assert await held() >= 10
        known = [each for each in await send(node, drafts(85, 10)) if isinstance(each, Published)]
        assert all(each.duplicate for each in known)
        assert [
            each.duplicate for each in await send(node, drafts(0, 1)) if isinstance(each, Published)
        ] == [False]


@pytest.mark.parametrize("halves", ["i", "j", "ij"])
async def test_evicted_ids_of_retained_messages_are_still_known(store: Store, halves: str) -> None:
    settings: dict[str, object] = {
        "redis_url": store.url,
        "redis_shards": 1,
        "ids_max": 10,
        "history_max_messages": 30,
    }
    async with asyncio.timeout(BOUND), running_server(**settings) as node, store.client() as redis:
        first = await send(node, drafts(0, 15))
        other = await send(node, drafts(0, 3, "demo.y"))
        await redis.delete(*(f"hanzo-pubsub:{{0}}:{half}" for half in halves))
        again = await send(node, drafts(0, 15))
        again += await send(node, drafts(0, 3, "demo.y"))
        for one, two in zip(first + other, again, strict=True):
            assert isinstance(one, Published)
            assert isinstance(two, Published)
            assert (two.duplicate, two.seq) == (True, one.seq)


async def test_evicted_ids_are_known_although_messages_with_new_ids_follow(store: Store) -> None:
    settings: dict[str, object] = {"redis_url": store.url, "redis_shards": 1}
    async with asyncio.timeout(BOUND), running_server(**settings) as node, store.client() as redis:
        (first,) = await send(node, drafts(0, 1))
        assert isinstance(first, Published)
        await redis.delete("hanzo-pubsub:{0}:i")
        # The other topic starts the ids again, and the script looks up no id that the node created.
        await send(node, drafts(0, 1, "demo.y"))
        await send(node, [Draft("demo.x", "row", b"1", None, None, None)])
        (again,) = await send(node, drafts(0, 1))
        assert isinstance(again, Published)
        assert (again.duplicate, again.seq) == (True, first.seq)


@pytest.mark.parametrize("evicted", [False, True])
async def test_an_id_of_one_sender_is_free_for_another_on_every_node(
    store: Store, evicted: bool
) -> None:
    settings: dict[str, object] = {"redis_url": store.url, "redis_shards": 1}
    async with (
        asyncio.timeout(BOUND),
        running_server(**settings) as one,
        running_server(**settings) as two,
        store.client() as redis,
    ):
        names = ("mallory", 'a "quoted" Ünser', "alice")
        sent: dict[str, Published] = {}
        for name in names:
            (first,) = await send(one, drafts(0, 1), name)
            assert isinstance(first, Published)
            assert not first.duplicate
            sent[name] = first
        assert len({each.seq for each in sent.values()}) == len(names)
        if evicted:
            # The ids are collected again from the log, by sender.
            await redis.delete("hanzo-pubsub:{0}:i")
        for node in (two, one):
            for name in names:
                (again,) = await send(node, drafts(0, 1), name)
                assert isinstance(again, Published)
                assert (again.duplicate, again.seq) == (True, sent[name].seq)
        (late,) = await send(two, drafts(0, 1), "bob")
        assert isinstance(late, Published)
        assert not late.duplicate
        (other,) = await send(two, drafts(0, 1, data=1), "alice")
        assert isinstance(other, ServiceError)
        assert other.code == "conflict"


async def test_an_id_that_the_node_created_is_known_afterwards(store: Store) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        for _ in range(2):
            (first,) = await send(node, [Draft("demo.x", "row", b"1", None, None, None)])
            assert isinstance(first, Published)
            (again,) = await send(node, [Draft("demo.x", "row", b"1", None, first.id, None)])
            assert isinstance(again, Published)
            assert (again.duplicate, again.seq) == (True, first.seq)


@pytest.mark.parametrize("trimmed_by", ["number", "age"])
async def test_a_page_is_truncated_only_if_a_message_newer_than_its_start_was_trimmed(
    store: Store, trimmed_by: str
) -> None:
    settings: dict[str, object] = {"redis_url": store.url, "history_max_messages": 3}
    ttl = None if trimmed_by == "number" else 1
    async with asyncio.timeout(BOUND), running_server(**settings) as node:
        backplane = node.hub.core.backplane
        times: list[int] = []
        while len(times) < (5 if ttl is None else 2):
            # Two messages of the same millisecond have the same timestamp.
            await until(lambda: not times or time.time() * 1000 >= times[-1] + 1)
            (sent,) = await send(node, [Draft("demo.x", "row", b"1", ttl, None, None)])
            assert isinstance(sent, Published)
            times.append(sent.timestamp)

        async def page(since: int) -> tuple[int, bool]:
            found = await backplane.logs.page(
                "demo.x", since=since, before=None, after=None, limit=10
            )
            return len(found.messages), found.truncated

        if ttl is not None:
            await until(lambda: page(times[-1] - 1), (0, True))
            await backplane.logs.positions(["demo.x"], None, joined=())
            assert await page(times[-1] - 1) == (0, True)
            (last,) = await send(node, [Draft("demo.x", "row", b"1", None, None, None)])
            assert isinstance(last, Published)
            times.append(last.timestamp)
            assert [await page(since) for since in times[1:]] == [(1, False), (0, False)]
            assert await page(times[1] - 1) == (1, True)
            return
        assert await page(times[1] - 1) == (3, True)
        assert [await page(since) for since in times[1:3]] == [(3, False), (2, False)]


async def test_a_page_ends_at_a_number_of_bytes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        row = b'"%b"' % (b"x" * 900)
        drafts = [Draft("demo.x", "row", row, None, None, None) for _ in range(5)]
        numbers = [each.seq for each in await send(node, drafts) if isinstance(each, Published)]

        async def page(after: int | None) -> tuple[list[int], bool, bool]:
            found = await node.hub.core.backplane.logs.page(
                "demo.x", since=None, before=None, after=after, limit=50
            )
            positions = [json.loads(body)["seq"] for body in found.messages]
            return positions, found.has_more, found.truncated

        monkeypatch.setattr(replay_bounds, "PAGE_BYTES", 2_500)
        assert await page(None) == (numbers[3:], True, False)
        assert await page(0) == (numbers[:2], True, False)
        assert await page(numbers[2]) == (numbers[3:], False, False)


async def test_a_page_reads_little_more_than_it_has(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_bounds, "PAGE_BYTES", 2_500)
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        row = b'"%b"' % (b"x" * 900)
        drafts = [Draft("demo.x", "row", row, None, None, None) for _ in range(60)]
        sent = [each for each in await send(node, drafts) if isinstance(each, Published)]
        numbers, logs = [each.seq for each in sent], node.hub.core.backplane.logs
        link: Any = logs._reader._link  # type: ignore[attr-defined]
        read, lengths = link.read, list[int]()

        async def noted(*given: Any) -> list[Any]:
            answer: list[Any] = await read(*given)
            lengths.append(len(answer[4]))
            return answer

        monkeypatch.setattr(link, "read", noted)

        async def page(**start: Any) -> list[int]:
            begin = {"since": None, "before": None, "after": None, **start}
            found = await logs.page("demo.x", **begin, limit=50)
            assert found.has_more
            return [json.loads(body)["seq"] for body in found.messages]

        assert await page() == numbers[-2:]
        assert await page(since=1) == numbers[-2:]
        assert await page(after=numbers[9]) == numbers[10:12]
        assert await page(before=sent[40].id) == numbers[38:40]
        assert max(lengths) < 10


async def test_a_page_of_one_large_message_shows_that_others_remain(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_bounds, "PAGE_BYTES", 400)
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        payload = b'"%b"' % (b"x" * 900)
        drafts = [Draft("demo.x", "row", payload, None, None, None) for _ in range(3)]
        sent = [each for each in await send(node, drafts) if isinstance(each, Published)]
        first, middle, last = sent

        async def page(**start: Any) -> tuple[list[str], bool]:
            begin = {"since": None, "before": None, "after": None, **start}
            found = await node.hub.core.backplane.logs.page("demo.x", **begin, limit=50)
            return [json.loads(body)["id"] for body in found.messages], found.has_more

        assert await page() == ([last.id], True)
        assert await page(since=1) == ([last.id], True)
        assert await page(after=0) == ([first.id], True)
        assert await page(after=middle.seq) == ([last.id], False)
        assert await page(before=last.id) == ([middle.id], True)
        assert await page(before=middle.id) == ([first.id], False)


async def test_pages_before_a_position_lead_back_through_shared_ids(store: Store) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        numbers: list[int] = []
        for sender in ("one", "two"):
            for each in await send(node, drafts(0, 6), sender):
                assert isinstance(each, Published)
                numbers.append(each.seq or 0)

        async def page(before: int) -> tuple[list[int], bool]:
            logs = node.hub.core.backplane.logs
            found = await logs.page("demo.x", since=None, before=before, after=None, limit=5)
            return [json.loads(body)["seq"] for body in found.messages], found.has_more

        assert await page(numbers[7]) == (numbers[2:7], True)
        assert await page(numbers[2]) == (numbers[:2], False)
        for nothing in (0, 1, numbers[0]):
            assert await page(nothing) == ([], False)


def made_at(ms: int, number: int) -> str:
    """An id that its publisher created at this time."""
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    time = "".join(digits[ms >> shift & 31] for shift in range(45, -1, -5))
    return f"msg_{time}{number:016}"


def in_order(_times: list[int], number: int) -> str:
    return f"row-{number:06}"


def of_two_clocks(times: list[int], number: int) -> str:
    """One clock is four calls late, on a fast and on a slow machine."""
    return made_at(times[max(-5, -len(times))] if number % 2 else times[-1], number)


def of_a_wrong_clock(times: list[int], number: int) -> str:
    return made_at(times[-1] - 3_600_000 * (number % 2), number)


def without_order(_times: list[int], number: int) -> str:
    return blake2b(b"%d" % number).hexdigest()


@pytest.mark.parametrize(
    ("ids", "most"),
    [(in_order, 100), (of_two_clocks, 200), (of_a_wrong_clock, None), (without_order, None)],
)
async def test_pages_in_the_middle_of_a_long_log_are_found_without_reading_what_is_newer(
    ids: Callable[[list[int], int], str], most: int | None, store: Store
) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url, history_max_messages=20_000) as node,
    ):
        sent: list[Published] = []
        times: list[int] = []
        for start in range(0, 20_000, 500):
            times.append(int(time.time() * 1000))
            drafts = [
                Draft("demo.x", "row", b"1", None, ids(times, number), None)
                for number in range(start, start + 500)
            ]
            sent += [each for each in await send(node, drafts) if isinstance(each, Published)]
        numbers, logs = [each.seq for each in sent], node.hub.core.backplane.logs
        for place in (0, 1, 77, 10_000, 10_001, 19_998, 19_999):
            await store.command("CONFIG", "RESETSTAT")
            found = await logs.page(
                "demo.x", since=None, before=sent[place].id, after=None, limit=20
            )
            seen = [json.loads(body)["seq"] for body in found.messages]
            assert seen == numbers[max(0, place - 20) : place]
            stats = (await store.command("INFO", "commandstats")).decode()
            calls = sum(map(int, re.findall(r"cmdstat_x(?:rev)?range:calls=(\d+)", stats)))
            assert most is None or calls < most


async def test_a_page_before_an_unknown_message_lets_other_calls_pass(store: Store) -> None:
    async with (
        asyncio.timeout(BOUND),
        running_server(redis_url=store.url, history_max_messages=5_000) as node,
        store.client() as redis,
        redis.monitor() as monitor,
    ):
        await send(node, drafts(0, 5_000))
        logs = node.hub.core.backplane.logs
        found = await logs.page("demo.x", since=None, before="unknown", after=None, limit=20)
        assert (found.messages, found.has_more) == ([], False)
        await redis.ping()
        reads = [0]
        while not (command := (await monitor.next_command())["command"]).startswith("PING"):
            if command.startswith("EVAL"):
                reads.append(0)
            elif command.startswith(("XRANGE", "XREVRANGE")):
                reads[-1] += 1
        assert sum(reads) >= 5_000 / 50
        assert max(reads) < 100


@pytest.mark.parametrize("id", ["-123456789abcdefghijklmnop", "msg_-123456789abcdefghijklmnop"])
async def test_a_page_ends_before_a_message_whose_id_looks_like_a_negative_time(
    id: str, store: Store
) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        sent = await send(node, [*drafts(0, 30), Draft("demo.x", "row", b"1", None, id, None)])
        await send(node, drafts(30, 30))
        logs = node.hub.core.backplane.logs
        found = await logs.page("demo.x", since=None, before=id, after=None, limit=20)
        numbers = [each.seq for each in sent if isinstance(each, Published)]
        assert [json.loads(body)["seq"] for body in found.messages] == numbers[10:30]
        gone = await logs.page("demo.x", since=None, before=id[:-1] + "x", after=None, limit=20)
        assert not gone.messages


async def test_an_expired_message_does_not_hide_a_later_one_of_another_publisher_with_its_id(
    store: Store,
) -> None:
    id = made_at(int(time.time() * 1000), 1)
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        logs = node.hub.core.backplane.logs

        async def page() -> list[int]:
            found = await logs.page("demo.x", since=None, before=id, after=None, limit=20)
            return [json.loads(body)["seq"] for body in found.messages]

        await send(node, [*drafts(0, 1), Draft("demo.x", "row", b"1", 1, id, None)])
        assert await page() != []
        await until(page, [])
        rows = [Draft("demo.x", "row", b"1", None, in_order([], n), None) for n in range(30)]
        sent = await send(node, rows)
        await send(node, [Draft("demo.x", "row", b"2", None, id, None)], "other")
        numbers = [each.seq for each in sent if isinstance(each, Published)]
        assert await page() == numbers[-20:]


async def test_pages_before_a_message_end_at_the_beginning_of_the_log(store: Store) -> None:
    async with asyncio.timeout(BOUND), running_server(redis_url=store.url) as node:
        drafts = [Draft("demo.x", "row", b"%d" % n, None, None, None) for n in range(60)]
        drafts[57:57] = [Draft("demo.x", "row", b"0", 1, "gone", None)]
        sent = [each for each in await send(node, drafts) if isinstance(each, Published)]

        async def page(before: str, limit: int, since: int | None = None) -> tuple[list[int], bool]:
            found = await node.hub.core.backplane.logs.page(
                "demo.x", since=since, before=before, after=None, limit=limit
            )
            assert not found.truncated
            return [json.loads(body)["seq"] for body in found.messages], found.has_more

        numbers = [each.seq for each in sent]
        assert await page(sent[55].id, 20) == (numbers[35:55], True)
        assert await page(sent[20].id, 20) == (numbers[:20], False)
        assert await page(sent[20].id, 20, since=sent[0].timestamp - 1) == (numbers[:20], False)
        assert await page(sent[20].id, 20, since=sent[-1].timestamp) == ([], False)
        assert await page(sent[0].id, 20) == ([], False)
        assert await page("unknown", 20) == ([], False)
        # It is expired, so its place is not known.
        await until(lambda: page("gone", 20), ([], False))


async def test_ids_are_forgotten_when_their_time_is_over(store: Store) -> None:
    settings: dict[str, object] = {
        "redis_url": store.url,
        "redis_shards": 1,
        "ids_max_age": 1,
        "history_max_age": 1,
    }
    async with asyncio.timeout(BOUND), running_server(**settings) as node, store.client() as redis:
        await send(node, drafts(0, 1))

        async def keys() -> int:
            return int(await redis.exists("hanzo-pubsub:{0}:i", "hanzo-pubsub:{0}:j"))

        await until(keys, 0)
        (again,) = await send(node, drafts(0, 1))
        assert isinstance(again, Published)
        assert not again.duplicate


async def test_a_batch_reports_a_conflict_for_each_id_used_for_another_message(
    store: Store,
) -> None:
    for settings in ({}, {"redis_url": store.url}):
        async with (
            asyncio.timeout(BOUND),
            running_server(publish_rate_service=10_000, **settings) as node,
            api(node, node.service_token()) as rest,
        ):

            async def batch(*items: tuple[str, int]) -> list[str]:
                messages = [{"topic": "demo.x", "id": id, "data": data} for id, data in items]
                answer = await rest.post("/v1/messages:batch", json={"messages": messages})
                return [
                    each["error"]["code"] if "error" in each else str(each["duplicate"])
                    for each in answer.json()["results"]
                ]

            assert await batch(("a", 1), ("b", 1), ("a", 1), ("a", 2)) == [
                "False", "False", "True", "conflict",
            ]  # fmt: skip
            assert await batch(("b", 2), ("c", 1), ("b", 1)) == ["conflict", "False", "True"]


async def test_the_first_class_whose_pattern_matches_decides_what_a_log_keeps(
    store: Store,
) -> None:
    classes = [
        {"topics": ["demo.jobs.*.rows"], "max_messages": 5, "max_age": "1m"},
        {"topics": ["demo.jobs.**"], "max_messages": 3},
        {"topics": ["demo.brief"], "max_age": 1},
    ]
    settings: dict[str, object] = {
        "redis_url": store.url,
        "history_classes": classes,
        "history_max_messages": 2,
        "publish_rate_service": 10_000,
    }
    async with (
        asyncio.timeout(BOUND),
        running_server(**settings) as node,
        api(node, node.service_token()) as rest,
    ):

        async def kept(topic: str) -> list[int]:
            answer = await rest.get(f"/v1/topics/{topic}/history")
            return [each["seq"] for each in answer.json()["messages"]]

        for topic, count in (("demo.jobs.a.rows", 5), ("demo.jobs.b", 3), ("demo.other", 2)):
            numbers = await publish(rest, topic, 10)
            assert await kept(topic) == numbers[-count:]
        await publish(rest, "demo.brief")
        await until(lambda: kept("demo.brief"), [])
        assert await kept("demo.other")


@pytest.mark.parametrize("shared", [True, False])
async def test_a_page_says_whether_a_position_up_to_its_end_is_missing(
    store: Store, shared: bool
) -> None:
    settings: dict[str, object] = {"history_max_messages": 6, "publish_rate_service": 10_000}
    if shared:
        settings["redis_url"] = store.url
    async with (
        asyncio.timeout(BOUND),
        running_server(**settings) as node,
        api(node, node.service_token()) as rest,
    ):

        async def page(after: int, limit: int = 10) -> tuple[list[int], bool, bool, bool, int]:
            query = {"after": after, "limit": limit}
            body = (await rest.get("/v1/topics/demo.x/history", params=query)).json()
            return (
                [each["seq"] for each in body["messages"]],
                body.get("truncated", False),
                body.get("reset", False),
                body["has_more"],
                body["position"],
            )

        a, b, c, d = await publish(rest, "demo.x", 4)
        # On a busy machine, the page may need more than a second.
        (hole,) = await publish(rest, "demo.x", ttl=3)
        assert await page(0) == ([a, b, c, d, hole], False, False, False, hole)
        e, f = await publish(rest, "demo.x", 2)
        # Six of seven messages are retained, and one of these expires.
        await until(lambda: page(d), ([e, f], True, False, False, f))
        assert await page(a, 3) == ([b, c, d], False, False, True, f)
        assert await page(a - 1, 3) == ([b, c, d], True, False, True, f)
        assert await page(0, 3) == ([b, c, d], True, False, True, f)
        assert await page(f) == ([], False, False, False, f)
        (last,) = await publish(rest, "demo.x", ttl=1)
        await until(lambda: page(f), ([], True, False, False, last))
        # A position that this log never assigned belongs to another log.
        assert (await page(last + 1))[2]


async def numbering(redis: Any, *, ahead: int = 0) -> tuple[float, ...]:
    """Return start, position, newest time, time of the loss, and lineage of `demo.x`."""
    key = "hanzo-pubsub:{0}:s:demo.x"
    start, lost, of, gathered, last, latest = unpack("<6d", await redis.get(key))
    if ahead:
        state = pack("<6d", start, lost, of, gathered, last, latest + ahead)
        await redis.set(key, state, keepttl=True)
    return start, last, latest + ahead, lost, of


async def test_a_clock_that_is_behind_neither_ends_a_log_early_nor_leaves_its_topic_unlisted(
    store: Store,
) -> None:
    settings: dict[str, object] = {"redis_url": store.url, "redis_shards": 1}
    async with asyncio.timeout(BOUND), running_server(**settings) as node, store.client() as redis:
        await send(node, drafts(0, 1))
        # The server that wrote this had a clock one hour ahead of the current server.
        _, _, latest, *_ = await numbering(redis, ahead=3_600_000)
        await redis.pexpire("hanzo-pubsub:{0}:l:demo.x", SHORT)
        await send(node, drafts(1, 1))
        assert await redis.pttl("hanzo-pubsub:{0}:l:demo.x") > SHORT
        assert await redis.zscore("hanzo-pubsub:{0}:z", "demo.x") >= latest


async def test_a_log_is_not_ended_early_by_a_numbering_that_began_in_the_same_second(
    store: Store,
) -> None:
    settings: dict[str, object] = {"redis_url": store.url, "redis_shards": 1}
    async with asyncio.timeout(BOUND), running_server(**settings) as node, store.client() as redis:
        backplane: Any = node.hub.core.backplane
        await send(node, drafts(0, 1))
        for number in range(1, 100):
            _, last, *_ = await numbering(redis)
            await redis.pexpire("hanzo-pubsub:{0}:l:demo.x", SHORT)
            # Simulate another node that knows a position that this store has lost.
            await backplane._reader.heads({"demo.x": int(last) + 5}, 3_600_000)
            _, _, began, *_ = await numbering(redis)
            (answer,) = await send(node, drafts(number, 1))
            assert isinstance(answer, Published)
            assert await redis.pttl("hanzo-pubsub:{0}:l:demo.x") > SHORT
            if answer.timestamp // 1000 == began // 1000:
                return
        pytest.fail("each publish came in a later second than its numbering")


async def test_the_index_of_topics_forgets_those_whose_numbering_has_expired(store: Store) -> None:
    settings: dict[str, object] = {"redis_url": store.url, "redis_shards": 1}
    async with asyncio.timeout(BOUND), running_server(**settings) as node, store.client() as redis:
        backplane: Any = node.hub.core.backplane
        index = "hanzo-pubsub:{0}:z"
        await send(node, drafts(1, 1, "demo.new"))
        now = await redis.zscore(index, "demo.new")
        # As if they had been published that long ago: Redis has removed their other keys since.
        old = {f"demo.{number}": now - SILENCE_MS - 2_000 - number for number in range(1_500)}
        await redis.zadd(index, {**old, "demo.late": now - SILENCE_MS + 3_600_000})
        for _ in range(2):
            await backplane._catching_up.restored([0])
        assert await redis.zrange(index, 0, -1) == [b"demo.late", b"demo.new"]
