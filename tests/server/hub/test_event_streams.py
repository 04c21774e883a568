from __future__ import annotations

from tests.server.hub_rig import START_MS, STREAM, Rig


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
