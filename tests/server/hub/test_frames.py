from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.hub import inbound as module
from tests.server.hub_rig import Rig

if TYPE_CHECKING:
    import pytest

    from pubsub_server.auth.identity import Identity


async def test_malformed_frames_are_rejected_and_the_connection_stays_open() -> None:
    rig = Rig()
    peer = await rig.client("alice")
    for data in ("{", "[]", '"x"', b"\xff", '{"type":5}', '{"type":"subscribe"}'):
        peer.send(data)
        assert peer.read_one("error")["code"] == "invalid_frame"
    peer.say("levitate", ref="9")
    assert peer.read_one("error")["ref"] == "9"
    peer.say("ping", ref="a")
    assert peer.read_one("pong")["ref"] == "a"


async def test_many_malformed_frames_in_a_row_end_the_connection() -> None:
    rig = Rig()
    peer = await rig.client("alice")
    for _ in range(module.BAD_FRAMES - 1):
        peer.send("{")
    peer.say("ping")
    for _ in range(module.BAD_FRAMES - 1):
        peer.send("{")
    assert peer.ending() is None
    peer.send("{")
    assert peer.ending() == (4400, "invalid_frame")


async def test_an_internal_error_is_reported_as_internal(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    alice = await rig.client("alice")

    def broken(identity: Identity, topic: str) -> bool:
        raise RuntimeError("rules are broken")

    rig.rules.unwritable = broken
    alice.say("publish", ref="1", topic="a", data=1)
    error = alice.read_one("error")
    assert (error["code"], error["ref"]) == ("internal", "1")
    assert "rules are broken" not in error["message"]
    assert "cannot handle a frame" in caplog.text
