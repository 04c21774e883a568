"""Signed frames compared with bee-js, Bee's own client library."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from hanzoai.pubsub import soc
from hanzoai.pubsub.errors import InvalidPayload

SOAK = bool(os.environ.get("HANZO_PUBSUB_SOAK"))
MANY = 1_000 if SOAK else 6
PROGRAM = Path(__file__).parent / "bee_chunks.mjs"


@pytest.mark.timeout(1_800 if SOAK else 60)
def test_bee_js_reads_what_is_signed_here_and_the_other_way_around() -> None:
    made = random.Random(56)
    asked: list[dict[str, str]] = []
    for n in range(MANY):
        size = [1, 31, 32, 33, 4095, 4096][n] if n < 6 else made.randint(1, 4096)
        key, id, payload = made.randbytes(32), made.randbytes(32), made.randbytes(size)
        topic = soc.topic_address(id, soc.owner_of(key))
        values = {"key": key, "id": id, "payload": payload, "topic": topic}
        values["frame"] = soc.sign(key, id, payload)
        asked.append({name: value.hex() for name, value in values.items()})
    done = subprocess.run(
        ["node", PROGRAM], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    for ours, theirs in zip(asked, json.loads(done.stdout), strict=True):
        owner = soc.owner_of(bytes.fromhex(ours["key"]))
        assert theirs["owner"] == owner.hex()
        assert theirs["payload"] == ours["payload"]
        assert theirs["topic"] == ours["topic"]
        id, topic = bytes.fromhex(ours["id"]), bytes.fromhex(ours["topic"])
        frame = bytearray.fromhex(theirs["frame"])
        assert soc.verify(bytes(frame), id, topic) == (owner, bytes.fromhex(ours["payload"]))
        at = made.randrange(len(frame))
        frame[at] ^= 1 if at == 64 else made.randint(1, 255)
        with pytest.raises(InvalidPayload):
            soc.verify(bytes(frame), id, topic)
