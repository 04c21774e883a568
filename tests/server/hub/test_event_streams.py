from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pubsub_server.hub import stream_pace
from tests.server.hub_rig import START_MS, STREAM, Rig

if TYPE_CHECKING:
    import pytest


async def test_a_stream_is_kept_alive_by_comments_and_never_idle() -> None:
    rig = Rig()
    stream = await rig.client("alice", STREAM)
    rig.advance(61)
    assert stream.read() == [{"comment": "keepalive"}] * 4
    assert stream.ending() is None


async def test_an_event_stream_carries_the_same_envelope_with_a_mark_to_resume_from() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    stream = await rig.client("alice", STREAM)
    alice.publish("a", 0)
    stream.send('{"type":"subscribe","topics":["a"],"since":0,"presence":false}')
    alice.subscribe("a")
    alice.publish("a", 1)
    subscribed, message = stream.read()
    assert subscribed["event"] == "subscribed"
    assert subscribed["mark"] == f"{START_MS - 1}-a@{START_MS * 1000}"
    assert [m["data"] for m in subscribed["history"]] == [0]
    assert message["mark"] == f"{START_MS}-a@{START_MS * 1000 + 1}"
    (same,) = alice.messages()
    del message["event"], message["mark"]
    assert message == same


async def test_changes_in_the_pause_after_a_large_list_are_one_list_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_pace, "LARGE", 1)
    monkeypatch.setattr(stream_pace, "BYTES_PER_SECOND", 100)
    rig = Rig()
    stream = await rig.client("stream", STREAM)
    stream.send('{"type":"subscribe","topics":["*"],"presence":true}')
    stream.read()

    async def join(*names: str) -> None:
        for name in names:
            (await rig.client(name)).subscribe("a")

    def lists() -> list[list[str]]:
        frames = [frame for frame in stream.read() if "members" in frame]
        return [[m["user_id"] for m in frame["members"]] for frame in frames]

    await join("ann")
    assert lists() == [["ann"]]
    await join("bob", "cid")
    assert lists() == []
    rig.advance(10)
    assert lists() == [["ann", "bob", "cid"]]
    # The next turn of the loop.
    await asyncio.sleep(0)
    await join("dan")
    assert lists() == [["ann", "bob", "cid", "dan"]]


async def test_a_member_who_joins_last_in_a_pause_gets_no_second_list_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_pace, "LARGE", 1)
    monkeypatch.setattr(stream_pace, "BYTES_PER_SECOND", 100)
    rig = Rig()
    first, second, third = [await rig.client(name, STREAM) for name in ("ann", "bob", "cid")]
    streams = (first, second, third)

    def lists() -> list[int]:
        return [sum("members" in frame for frame in stream.read()) for stream in streams]

    for stream in streams:
        stream.send('{"type":"subscribe","topics":["a"],"presence":true}')
    # The list for the first one about the second one began the pause.
    assert lists() == [2, 1, 1]
    rig.advance(10)
    assert lists() == [1, 1, 0]


async def test_lists_of_one_topic_do_not_wait_for_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_pace, "LARGE", 1)
    monkeypatch.setattr(stream_pace, "BYTES_PER_SECOND", 1)
    rig = Rig()
    stream = await rig.client("stream", STREAM)
    stream.send('{"type":"subscribe","topics":["*"],"presence":true}')
    stream.read()
    ann = await rig.client("ann")
    ann.subscribe("a", "b")
    assert [frame["topic"] for frame in stream.read()] == ["a", "b"]
